"""Suites, and runs with their jobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ForeignKey, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo import urls
from gonogo.spec.suites import count_tests
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.values import JobCommit
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, Stored, WordOf
from gonogo_service.kit.database.states import RunState
from gonogo_service.kit.versioned import Versioned

_OPEN = text("state IN ('running', 'cancelling')")


class SuiteRow(Versioned):
    """The newest version of a named list of tests."""

    __tablename__ = "suites"
    file: Mapped[dict[str, str] | None] = mapped_column(
        info=INTERNAL, deferred=True, doc="A bodies.SuiteFile, whose change makes no new version"
    )

    @property
    def description(self) -> str:
        """Return what it is for."""
        return str(self.content.get("description", ""))

    @property
    def tests(self) -> int:
        """Return the number of tests, with expanded matrices."""
        return count_tests(self.content)

    @property
    def builds(self) -> int:
        """Return the number of builds that it names."""
        return len(self.content.get("builds") or ())


@dataclass(frozen=True)
class SuiteOfRun:
    """The suite; version null means that it came with the run."""

    name: str
    version: int | None


@dataclass(frozen=True)
class JobsOfRun:
    """Counts of a run's jobs: all, ended, and by verdict."""

    total: int
    ended: int
    verdicts: dict[str, int]


@dataclass(frozen=True)
class SeedsOfRun:
    """Counts of a run's (seed, repeat) pairs: all, with a result, and by verdict."""

    total: int
    done: int
    verdicts: dict[str, int]


@dataclass(frozen=True)
class RunLinks:
    """Addresses of a run."""

    self: str
    page: str


class RunRow(Base):
    """A run: one submission of a suite. `verdict` is the worst verdict of its jobs.

    It is null until the run ends, and when a job was canceled and all others passed. While it is
    open, its counts are those of its jobs, which `runs.current` reads; they are stored at its end.
    """

    # A transaction locks all jobs that it needs first: the run's lock is always the last one.
    __tablename__ = "runs"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]  # of its suite, stored or inline
    suite_version: Mapped[int | None]  # null: the run brought its own suite
    schedule: Mapped[str | None] = mapped_column("schedule_id", IdType)
    due_at: Mapped[datetime | None]  # of its schedule; null: a person started it
    state: Mapped[RunState] = mapped_column(WordOf(RunState), default=RunState.running)
    verdict: Mapped[Verdict | None] = mapped_column(WordOf(Verdict))
    version: Mapped[int] = mapped_column(default=1)
    owner: Mapped[str]
    builds: Mapped[list[str]] = mapped_column(default=list)
    labels: Mapped[dict[str, str]] = mapped_column(default=dict)
    commit: Mapped[JobCommit | None] = mapped_column(Stored(JobCommit))
    job_count: Mapped[int]
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    counts: Mapped[dict[str, int]] = mapped_column(default=dict)  # seeds by verdict
    job_counts: Mapped[dict[str, int]] = mapped_column(default=dict)  # jobs by verdict
    red: Mapped[int] = mapped_column(
        default=0, doc="The jobs with a red seed or test: one that fails, hangs or crashes"
    )
    hollow: Mapped[int] = mapped_column(
        default=0, doc="The jobs with a hollow pass; the verdict shows only the worse of the two"
    )
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_runs_open", "id", sqlite_where=_OPEN, postgresql_where=_OPEN),
        Index("ix_runs_name", "name", "id"),
        Index("ix_runs_schedule", "schedule_id", "id"),
    )
    ended = 0
    """The jobs that have ended, while it is open."""

    @property
    def suite(self) -> SuiteOfRun:
        """Return its suite."""
        return SuiteOfRun(self.name, self.suite_version)

    @property
    def jobs(self) -> JobsOfRun:
        """Return the counts of its jobs."""
        ended = self.job_count if self.state.final else self.ended
        return JobsOfRun(self.job_count, ended, self.job_counts)

    @property
    def seeds(self) -> SeedsOfRun:
        """Return the counts of its seeds."""
        return SeedsOfRun(self.total, self.done, self.counts)

    @property
    def links(self) -> RunLinks:
        """Return its addresses."""
        return RunLinks(self=f"{urls.API}/runs/{self.id}", page=urls.run(self.id))


class RunJobRow(Base):
    """A job of a run, in the order of the suite's entries; a job belongs to at most one run."""

    __tablename__ = "run_jobs"
    run_id: Mapped[str] = mapped_column(IdType, ForeignKey("runs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), unique=True)
    name: Mapped[str]
