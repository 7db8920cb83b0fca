"""Jobs, their chunks, attempts, artifacts and events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.ext.hybrid import hybrid_property
from sqlalchemy.orm import Mapped, column_property, mapped_column, relationship

from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.values import (
    ImportedFile,
    JobCommit,
    JobTarget,
    SeedDecision,
    SeedProgress,
    SuspectSeeds,
)
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import INTERNAL, IdType, JsonType, Stored, WordOf
from gonogo_service.kit.database.states import ChunkCounts, JobKind, JobState
from gonogo_service.tests.model import TestSpecRow


class JobRow(Base):
    """One submitted job.

    Its row is the lock of everything below it: a transaction locks it before it changes chunks,
    attempts, results or events.
    """

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[JobKind] = mapped_column(
        WordOf(JobKind), default=JobKind.seeds, server_default="seeds"
    )
    state: Mapped[JobState] = mapped_column(WordOf(JobState))
    verdict: Mapped[Verdict | None] = mapped_column(
        WordOf(Verdict),
        doc="null until the job ends, and for a canceled job whose seeds all passed",
    )
    error: Mapped[str | None]
    waiting_reason: Mapped[str | None]
    version: Mapped[int] = mapped_column(default=1)
    owner: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    workload_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    branch: Mapped[str]
    build_sequence: Mapped[int] = mapped_column(BigInteger, info=INTERNAL)
    executor: Mapped[str] = mapped_column(info=INTERNAL)
    arch: Mapped[str] = mapped_column(info=INTERNAL)
    board: Mapped[str] = mapped_column(info=INTERNAL)
    queue: Mapped[str]
    context: Mapped[str | dict[str, Any]] = mapped_column(JsonType)
    priority: Mapped[int]
    request: Mapped[dict[str, Any]] = mapped_column(info=INTERNAL)
    labels: Mapped[dict[str, str]] = mapped_column(JsonType)
    commit: Mapped[JobCommit | None] = mapped_column(Stored(JobCommit))
    resubmit_of: Mapped[str | None] = mapped_column(IdType)
    # the build to compare with; null: only float64
    reference: Mapped[str | None] = mapped_column(info=INTERNAL)
    sequential: Mapped[SeedProgress | None] = mapped_column(
        Stored(SeedProgress),
        doc="For sequential seeds: the request, and how far the decision has read",
    )
    stop: Mapped[SeedDecision | None] = mapped_column(
        Stored(SeedDecision), doc="For sequential seeds, once decided"
    )
    suspects: Mapped[SuspectSeeds | None] = mapped_column(
        Stored(SuspectSeeds), doc="null without suspect seeds"
    )
    # Counters, changed under the job's lock.
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    chunk_count: Mapped[int] = mapped_column(info=INTERNAL)
    open_chunks: Mapped[int] = mapped_column(info=INTERNAL)
    counts: Mapped[dict[str, int]] = mapped_column(
        JsonType, doc="The (seed, repeat) pairs with a result, by verdict"
    )
    outcomes: Mapped[dict[str, int] | None] = mapped_column(
        JsonType,
        doc="For a selection: the tests of all iterations by their outcome (passed, failed, ...)",
    )
    # gonogo.reports.red_hollow
    red: Mapped[int] = mapped_column(
        default=0,
        doc="The seeds that fail, hang or crash; the same tests of a selection, and those with an"
        " error of their own, over all iterations",
    )
    hollow: Mapped[int] = mapped_column(
        default=0,
        doc="Those that are hollow passes; the verdict shows only the worse of the two",
    )
    last_event: Mapped[int] = mapped_column(default=0)
    diagnosis: Mapped[JobDiagnosis | None] = mapped_column(
        Stored(JobDiagnosis, lenient=True), doc="The diagnosis of the most telling seed"
    )
    diagnosis_words: Mapped[str | None] = column_property(
        diagnosis["words"].as_string(), deferred=True
    )
    # The judge's version, and the hash of its reference's graph; null until arrays are judged.
    judge: Mapped[str | None] = mapped_column(info=INTERNAL)
    created_at: Mapped[datetime]
    deadline_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    cancel_at: Mapped[datetime | None] = mapped_column(info=INTERNAL)
    finished_at: Mapped[datetime | None]
    # When retention removed a tier of it (gonogo_service/operate/retention.py).
    artifacts_removed_at: Mapped[datetime | None] = mapped_column(
        doc="When retention removed its artifacts and logs"
    )
    seeds_removed_at: Mapped[datetime | None] = mapped_column(
        doc="When retention removed its results per seed; the counts stay"
    )
    __table_args__ = (
        Index("ix_jobs_state", "state", "id"),
        Index("ix_jobs_test", "test_key", "id"),
        Index("ix_jobs_workload", "workload_key", "id"),
        Index("ix_jobs_build", "build", "id"),
        Index("ix_jobs_variant", "test_key", "branch", "arch", "board", "id"),
        Index("ix_jobs_newest", "test_key", "branch", "arch", "board", "build_sequence", "id"),
    )
    spec: Mapped[TestSpecRow] = relationship(innerjoin=True, viewonly=True)

    @hybrid_property
    def is_selection(self) -> bool:
        """Return whether it runs tests that exist already, in iterations, instead of a kernel."""
        return self.kernel == KERNEL

    @property
    def test(self) -> dict[str, Any]:
        """Return the test in its canonical form, without fields that have their default."""
        return self.spec.test

    @property
    def target(self) -> JobTarget:
        """Return the target that it runs on."""
        return JobTarget(self.executor, self.arch, self.board)

    @property
    def seeds(self) -> Any:
        """Return the seeds as requested: a list, `start` and `count`, or `start` and `max`."""
        return self.request["seeds"]

    @property
    def repeats(self) -> int:
        """Return how often each seed runs."""
        return int(self.request.get("repeats", 1))

    @property
    def added_seeds(self) -> Sequence[int]:
        """Return the seeds that suspect ones added, in their order."""
        return () if self.suspects is None else self.suspects.added

    @property
    def import_(self) -> ImportedFile | None:
        """Return the report that an imported job was read from."""
        source = self.request.get("import")
        return None if source is None else ImportedFile(**source)

    @property
    def chunks(self) -> ChunkCounts:
        """Return its chunks: all, and those that haven't ended."""
        return ChunkCounts(self.chunk_count, self.open_chunks)

    @property
    def removed(self) -> tuple[str, ...]:
        """Return what retention removed of it, and what stays, in sentences."""
        gone = (
            (self.artifacts_removed_at, "Its artifacts and logs were", ""),
            (
                self.seeds_removed_at,
                "Its results per seed were",
                "; its verdict, its counts and its statistics stay",
            ),
        )
        return tuple(
            f"{what} removed on {at:%Y-%m-%d}, as the server's retention says{rest}."
            for at, what, rest in gone
            if at is not None
        )


class JobLabelRow(Base):
    """A label of a job, in its own table so that lists can filter by it."""

    __tablename__ = "job_labels"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    __table_args__ = (Index("ix_job_labels_value", "name", "value", "job_id"),)


_UNMADE = text("chunks_cut < until")


class ChunkRangeRow(Base):
    """The chunks of a job that aren't rows yet: a range of its work, and a cursor.

    The chunk at the cursor becomes a row when it is sent (jobs/work.py).
    """

    __tablename__ = "chunk_ranges"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    # the number of its first chunk
    first: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    queue: Mapped[str]
    seeds: Mapped[Any] = mapped_column(JsonType)  # a list, or {"start", "count"}
    members: Mapped[list[Any]]  # the repeats of each seed; of a gauge its parts
    pairs: Mapped[int]
    pair_s: Mapped[float]
    growth: Mapped[int | None]  # most seeds of a chunk of sequential seeds
    chunks: Mapped[int]
    until: Mapped[int]  # as many chunks are made at the most: fewer than `chunks` once canceled
    # The cursor: the number of chunks made, and the place after their last pair.
    chunks_cut: Mapped[int]
    position: Mapped[int]
    # The chunks that may be sent: of sequential seeds those that the next decision can need.
    released: Mapped[int]
    released_pairs: Mapped[int]
    __table_args__ = (
        Index(
            "ix_chunk_ranges_open",
            "queue",
            "job_id",
            sqlite_where=_UNMADE,
            postgresql_where=_UNMADE,
        ),
    )


class ChunkRow(Base):
    """About 20 s of a job's work, run by one attempt at a time; it is a row once it was sent.

    `attempts` is the number of attempts that count against its limit.
    """

    __tablename__ = "chunks"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"))
    number: Mapped[int]
    state: Mapped[str]
    queue: Mapped[str]
    work: Mapped[list[Any]]
    estimate_s: Mapped[float]
    attempts: Mapped[int] = mapped_column(default=0)
    returns: Mapped[int] = mapped_column(default=0)
    attempt_id: Mapped[str | None] = mapped_column(IdType)
    __table_args__ = (
        UniqueConstraint("job_id", "number"),
        Index("ix_chunks_state", "state", "queue", "job_id"),
    )


class AttemptRow(Base):
    """One try to run a chunk. Until a worker claims it, `heard_at` is when one was last woken."""

    __tablename__ = "attempts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    chunk_id: Mapped[str] = mapped_column(
        IdType, ForeignKey("chunks.id"), index=True, info=INTERNAL
    )
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), index=True, info=INTERNAL)
    number: Mapped[int]
    state: Mapped[str]
    queue: Mapped[str] = mapped_column(info=INTERNAL)
    work: Mapped[list[Any]] = mapped_column(info=INTERNAL)
    # The host that has claimed it.
    host_id: Mapped[str | None] = mapped_column(IdType, info=INTERNAL)
    worker: Mapped[str | None]
    device: Mapped[str | None]
    host: Mapped[str | None]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    error: Mapped[str | None]
    log_tail: Mapped[str | None]
    telemetry: Mapped[dict[str, Any] | None]  # of its device: temperature, clock, power, firmware
    # numbers of the batches stored so far, with their digests
    batches: Mapped[dict[str, Any]] = mapped_column(info=INTERNAL)
    # From its "finished" message: {"sent": [[seed, repeat], ...], "batches": n or null, "outcome"}.
    expected: Mapped[dict[str, Any] | None] = mapped_column(info=INTERNAL)
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_attempts_state", "state", "queue"),
        Index("ix_attempts_device", "device", "id"),
    )


class ArtifactRow(Base):
    """A larger object of a seed, such as an error map or a log."""

    __tablename__ = "artifacts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), info=INTERNAL)
    attempt_id: Mapped[str] = mapped_column(IdType, info=INTERNAL)
    kind: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    repeat: Mapped[int]
    output: Mapped[str]
    size: Mapped[int] = mapped_column(doc="Bytes of its content as JSON")
    content: Mapped[dict[str, Any]] = mapped_column(info=INTERNAL)
    created_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("job_id", "kind", "seed", "repeat", "output"),)


class EventRow(Base):
    """An event of a job's SSE stream, numbered 1, 2, ... per job."""

    __tablename__ = "events"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str]
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]
