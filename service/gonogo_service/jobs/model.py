"""Jobs, their chunks, attempts, artifacts and events."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType, JsonType


class JobRow(Base):
    """One submitted job.

    Its row is the lock of everything below it: a transaction locks it before it changes chunks,
    attempts, results or events.
    """

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    # gonogo_service.kit.database.states.JobKind
    kind: Mapped[str] = mapped_column(default="seeds", server_default="seeds")
    state: Mapped[str]
    verdict: Mapped[str | None]
    error: Mapped[str | None]
    waiting_reason: Mapped[str | None]
    version: Mapped[int] = mapped_column(default=1)
    owner: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    workload_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    branch: Mapped[str]
    build_sequence: Mapped[int] = mapped_column(BigInteger)
    executor: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    queue: Mapped[str]
    context: Mapped[Any] = mapped_column(JsonType)
    priority: Mapped[int]
    request: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    commit: Mapped[dict[str, Any] | None]
    resubmit_of: Mapped[str | None] = mapped_column(IdType)
    reference: Mapped[str | None]  # the build to compare with; null: only float64
    # For sequential seeds (jobs/sequential.py): {"start", "max", "stop_on_finding",
    # ...} and how far the decision has read.
    sequential: Mapped[dict[str, Any] | None]
    stop: Mapped[dict[str, Any] | None]  # the decision
    suspects: Mapped[dict[str, Any] | None]  # the added seeds, and the conclusion from all
    # Counters, changed under the job's lock.
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    chunk_count: Mapped[int]
    open_chunks: Mapped[int]
    counts: Mapped[dict[str, Any]]
    # Of a selection's job: the number of tests over all iterations that passed, failed, ...
    outcomes: Mapped[dict[str, Any] | None]
    # Red and hollow seeds, or tests of a selection over all iterations (gonogo.reports.red_hollow).
    red: Mapped[int] = mapped_column(default=0)
    hollow: Mapped[int] = mapped_column(default=0)
    last_event: Mapped[int] = mapped_column(default=0)
    diagnosis: Mapped[dict[str, Any] | None]
    # The judge's version, and the hash of its reference's graph; null until arrays are judged.
    judge: Mapped[str | None]
    created_at: Mapped[datetime]
    deadline_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    cancel_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    # When retention removed a tier of it (service/gonogo_service/operate/retention.py).
    artifacts_removed_at: Mapped[datetime | None]
    seeds_removed_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_jobs_state", "state", "id"),
        Index("ix_jobs_test", "test_key", "id"),
        Index("ix_jobs_workload", "workload_key", "id"),
        Index("ix_jobs_build", "build", "id"),
        Index("ix_jobs_variant", "test_key", "branch", "arch", "board", "id"),
        Index("ix_jobs_newest", "test_key", "branch", "arch", "board", "build_sequence", "id"),
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

    The chunk at the cursor becomes a row when it is sent (service/gonogo_service/jobs/ranges.py).
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
    """One try to run a chunk.

    `epoch` is the broker generation that it was published in: a new one starts when Redis loses its
    data. It is null until the attempt is published.
    """

    __tablename__ = "attempts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    chunk_id: Mapped[str] = mapped_column(IdType, ForeignKey("chunks.id"), index=True)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), index=True)
    number: Mapped[int]
    state: Mapped[str]
    queue: Mapped[str]
    work: Mapped[list[Any]]
    epoch: Mapped[str | None]
    # Whose messages about it count: set by the first one.
    host_id: Mapped[str | None] = mapped_column(IdType)
    worker: Mapped[str | None]
    device: Mapped[str | None]
    host: Mapped[str | None]
    host_run: Mapped[str | None]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    error: Mapped[str | None]
    log_tail: Mapped[str | None]
    telemetry: Mapped[dict[str, Any] | None]  # of its device: temperature, clock, power, firmware
    batches: Mapped[dict[str, Any]]  # numbers of the batches stored so far, with their digests
    # From its "finished" message: {"sent": [[seed, repeat], ...], "batches": n or null, "outcome"}.
    expected: Mapped[dict[str, Any] | None]
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
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"))
    attempt_id: Mapped[str] = mapped_column(IdType)
    kind: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    repeat: Mapped[int]
    output: Mapped[str]
    size: Mapped[int]
    digest: Mapped[str]  # SHA-256 of the content as JSON
    content: Mapped[dict[str, Any]]
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
