"""Gauges: a test measured with right and wrong kernels. The row is also the answer.

A gauge's work is done by a hidden job with the same id. Its results have their own table.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index
from sqlalchemy.ext.associationproxy import AssociationProxy, association_proxy
from sqlalchemy.orm import Mapped, mapped_column, relationship

from gonogo import urls
from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.elsewhere import OtherInputs
from gonogo.gauge.kernels import Planned
from gonogo.gauge.summary import GaugeReport, Slack
from gonogo.urls import API
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, Stored, WordOf
from gonogo_service.kit.database.states import ChunkCounts, JobState
from gonogo_service.tests.model import TestSpecRow


@dataclass(frozen=True)
class GaugePart(Planned):
    """A part of a gauge; `where` is its place in `elsewhere`, or null for the test's inputs."""

    where: int | None = None


@dataclass(frozen=True)
class GaugeTarget:
    """The device that a gauge runs on."""

    arch: str
    board: str


@dataclass(frozen=True)
class GaugeLinks:
    """Paths of a gauge's resources."""

    self: str
    test: str
    page: str


class GaugeRow(Base):
    """A gauge: its test, its parts, and its findings.

    State, counters, chunks and events are those of the job with the same id.
    """

    __tablename__ = "gauges"
    id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    branch: Mapped[str]  # with test, arch and board: the variant of its flag and grade
    arch: Mapped[str] = mapped_column(info=INTERNAL)
    board: Mapped[str] = mapped_column(info=INTERNAL)
    seeds: Mapped[list[int]] = mapped_column(Stored(list[int]))
    search: Mapped[bool]  # whether to try other inputs if no tolerance works
    elsewhere: Mapped[list[OtherInputs]] = mapped_column(
        Stored(list[OtherInputs]),
        deferred=True,
        deferred_group="whole",
        doc="Other inputs, which were tried because no tolerance works with those of the test",
    )
    # a result's `part` is an index into this list
    parts: Mapped[list[GaugePart]] = mapped_column(
        Stored(list[GaugePart]), deferred=True, deferred_group="whole"
    )
    # Number of stored rows, changed under the job's lock. The job's own `done`, of seeds, stays 0.
    done: Mapped[int]
    sharpness: Mapped[Sharpness | None] = mapped_column(
        WordOf(Sharpness), doc="null until it is over"
    )
    # Wrong part -> [passed seeds, seeds on which it can show]; the grade is computed from this.
    misses: Mapped[dict[str, Any] | None] = mapped_column(info=INTERNAL)
    slack: Mapped[list[Slack] | None] = mapped_column(
        Stored(list[Slack]), info=INTERNAL, doc="null until it has finished"
    )
    words: Mapped[str | None]  # the findings in a few sentences
    report: Mapped[GaugeReport | None] = mapped_column(
        Stored(GaugeReport),
        deferred=True,
        deferred_group="whole",
        doc="The report of `gonogo gauge --json`, with the command that measures it again",
    )
    job: Mapped[JobRow] = relationship(viewonly=True, lazy="selectin")
    spec: Mapped[TestSpecRow] = relationship(viewonly=True, lazy="selectin")
    error: AssociationProxy[str | None] = association_proxy("job", "error")
    waiting_reason: AssociationProxy[str | None] = association_proxy("job", "waiting_reason")
    version: AssociationProxy[int] = association_proxy("job", "version")
    owner: AssociationProxy[str] = association_proxy("job", "owner")
    workload_key: AssociationProxy[str] = association_proxy("job", "workload_key")
    kernel: AssociationProxy[str] = association_proxy("job", "kernel")
    total: AssociationProxy[int] = association_proxy("job", "total")
    created_at: AssociationProxy[datetime] = association_proxy("job", "created_at")
    deadline_at: AssociationProxy[datetime] = association_proxy("job", "deadline_at")
    started_at: AssociationProxy[datetime | None] = association_proxy("job", "started_at")
    finished_at: AssociationProxy[datetime | None] = association_proxy("job", "finished_at")
    test: AssociationProxy[dict[str, Any]] = association_proxy("spec", "test")
    __table_args__ = (Index("ix_gauges_test", "test_key", "id"),)

    @property
    def state(self) -> JobState:
        """The state of its job."""
        return JobState(self.job.state)

    @property
    def chunks(self) -> ChunkCounts:
        """The units that workers process."""
        return ChunkCounts(self.job.chunk_count, self.job.open_chunks)

    @property
    def target(self) -> GaugeTarget:
        """The device that it runs on."""
        return GaugeTarget(self.arch, self.board)

    @property
    def links(self) -> GaugeLinks:
        """Paths of its resources."""
        return GaugeLinks(
            self=f"{API}/gauges/{self.id}",
            test=f"{API}/tests/{self.test_key}",
            page=urls.gauge(self.id),
        )


class GaugeResultRow(Base):
    """The result of one seed of one part.

    It is kept apart from seed results: a mutant says nothing about any build of the test.
    """

    __tablename__ = "gauge_results"
    gauge_id: Mapped[str] = mapped_column(IdType, ForeignKey("gauges.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    part: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    attempt_id: Mapped[str] = mapped_column(IdType)
    device: Mapped[str | None]
    duration_ms: Mapped[float | None]
    row: Mapped[dict[str, Any]]  # from gonogo.gauge.measure, without part and seed
