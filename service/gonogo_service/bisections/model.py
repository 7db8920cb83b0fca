"""Bisections and their probes: the rows, which are also the answers, and what their JSON holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column, relationship

from gonogo import urls
from gonogo.flakiness.bisecting import Expect, Signal, Stage
from gonogo.flakiness.masking import BuildChange
from gonogo.spec.verdicts import Verdict
from gonogo.urls import API
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, Stored, WordOf
from gonogo_service.kit.database.states import BisectionState
from gonogo_service.tests.model import TestSpecRow

LABEL = "bisection"
"""Label of a probe's job: the id of its bisection."""
ChangeKind = Literal["fixed", "broken", "masked", "unmasked", "quieter", "louder"]


@dataclass(frozen=True)
class SearchPlace:
    """A search over a part of the series: what it knows of the place of the change."""

    track: Signal
    low: int
    high: int
    """The places of its first and its last build"""
    posterior: list[tuple[int, float]]
    """For each testable build but the first: its place, and the probability that it is the first
    changed one"""
    build: str | None
    """The likeliest build; null before any is"""
    probability: float


@dataclass(frozen=True)
class SearchTrack(SearchPlace):
    """A search with its stage, and with the rates of bad runs before and after the change."""

    stage: Stage
    evidence: float
    place: int | None
    """The place of `build`"""
    before: float
    after: float


@dataclass(frozen=True)
class SearchMove:
    """The searches after a number of ended runs."""

    runs: int
    tracks: list[SearchPlace]


@dataclass(frozen=True)
class FoundChange:
    """A change with its evidence: the compared numbers of its two neighbors' runs."""

    track: Signal
    kind: ChangeKind
    place: int
    build: str
    """The first changed build"""
    before: str
    """The last unchanged build"""
    between: list[str]
    """Builds between the two that could not be tested"""
    probability: float
    rates: tuple[float, float]
    """The rates of bad runs before and after"""
    words: str
    comparison: BuildChange


@dataclass(frozen=True)
class BisectionProgress:
    """A bisection in its newest version: the data of its events."""

    state: BisectionState
    runs: int
    tracks: list[SearchTrack]
    conclusion: str | None
    words: str | None


@dataclass(frozen=True)
class BisectionLinks:
    """Paths of a bisection's resources."""

    self: str
    events: str
    jobs: str
    page: str


_OPEN = text("state = 'running'")


class BisectionRow(Base):
    """A search for the build of a branch that changed a test's result.

    Its row is the lock of its probes. A transaction locks it before any job.
    """

    __tablename__ = "bisections"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    state: Mapped[BisectionState] = mapped_column(WordOf(BisectionState))
    signal: Mapped[Signal] = mapped_column(WordOf(Signal))
    expect: Mapped[Expect] = mapped_column(WordOf(Expect))
    several: Mapped[bool]
    owner: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    queue: Mapped[str]
    builds: Mapped[list[str]] = mapped_column(Stored(list[str]))
    # what all probes' jobs share: test, target, context, ...
    request: Mapped[dict[str, Any]] = mapped_column(info=INTERNAL)
    seed_start: Mapped[int] = mapped_column(BigInteger)
    max_runs: Mapped[int]
    runs: Mapped[int] = mapped_column(default=0)  # probes so far, including running ones
    version: Mapped[int] = mapped_column(default=1)
    tracks: Mapped[list[SearchTrack]] = mapped_column(
        Stored(list[SearchTrack]), default=list, deferred=True, deferred_group="searches"
    )
    # the earlier states of the searches, for the page's drawing: store.with_move
    moves: Mapped[list[SearchMove] | None] = mapped_column(
        Stored(list[SearchMove]), info=INTERNAL, deferred=True, deferred_group="searches"
    )
    findings: Mapped[list[FoundChange]] = mapped_column(Stored(list[FoundChange]), default=list)
    conclusion: Mapped[str | None] = mapped_column(
        doc="found, no_change, untestable, undecided; null until it is over"
    )
    words: Mapped[str | None]
    error: Mapped[str | None]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    spec: Mapped[TestSpecRow] = relationship(viewonly=True, lazy="selectin")
    probes: Mapped[list[ProbeRow]] = relationship(
        order_by="ProbeRow.number", back_populates="bisection"
    )
    __table_args__ = (
        Index("ix_bisections_open", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("ix_bisections_test", "test_key", "id"),
    )

    @property
    def test(self) -> dict[str, Any]:
        """The test in its canonical form."""
        return self.spec.test

    @property
    def links(self) -> BisectionLinks:
        """Paths of its resources."""
        address = f"{API}/bisections/{self.id}"
        return BisectionLinks(
            self=address,
            events=f"{address}/events",
            jobs=f"{API}/jobs?label={LABEL}={self.id}",
            page=urls.bisection(self.id),
        )


class ProbeRow(Base):
    """One run of one build: a job of one seed, and its result."""

    __tablename__ = "bisection_probes"
    bisection_id: Mapped[str] = mapped_column(IdType, ForeignKey("bisections.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    place: Mapped[int] = mapped_column(doc="The place of its build in the series")
    seed: Mapped[int] = mapped_column(BigInteger)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"))
    ended: Mapped[bool] = mapped_column(default=False)
    verdict: Mapped[str | None]
    red: Mapped[bool | None] = mapped_column(doc="null: the run has no verdict")
    wrong: Mapped[bool | None] = mapped_column(
        doc="null: unknown whether rounding explains the error"
    )
    bisection: Mapped[BisectionRow] = relationship(back_populates="probes")
    __table_args__ = (UniqueConstraint("job_id"),)

    @property
    def job(self) -> str:
        """The id of its job."""
        return self.job_id

    @property
    def build(self) -> str:
        """The build that it runs."""
        return self.bisection.builds[self.place]

    def is_bad(self, track: Signal) -> bool | None:
        """Return whether the run was bad by a signal; None where it can't say."""
        if track is Signal.numbers:
            return self.wrong
        if track is Signal.verdicts:
            return self.red
        is_known = self.verdict is not None and self.verdict != Verdict.error
        return self.verdict == track.value if is_known else None
