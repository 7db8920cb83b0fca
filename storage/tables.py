"""Every table of the database, as SQLAlchemy 2 declarative classes; rows never leave `storage`.

migrations/versions holds the same schema as it grew; a test compares the two on both databases.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Double, ForeignKey, Index, Integer, MetaData, Text, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from storage.columns import IdType, JsonType, UtcTime


class Base(DeclarativeBase):
    """Maps Python types to columns, and names constraints so that migrations can."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map: ClassVar[dict[Any, Any]] = {
        str: Text,
        datetime: UtcTime,
        dict[str, Any]: JsonType,
        list[Any]: JsonType,
        float: Double,
    }


class TestSpecRow(Base):
    """A test ever submitted: its canonical JSON under its key."""

    __tablename__ = "test_specs"
    key: Mapped[str] = mapped_column(primary_key=True)
    subject_key: Mapped[str] = mapped_column(index=True)
    kernel: Mapped[str]
    canonical: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]


class BuildRow(Base):
    """A build that an administrator registered; the emulator's own are code (`gonogo.builds`)."""

    __tablename__ = "builds"
    name: Mapped[str] = mapped_column(primary_key=True)
    executor: Mapped[str]
    line: Mapped[str]
    sequence: Mapped[int] = mapped_column(BigInteger)
    commit: Mapped[str | None]
    profile: Mapped[str | None]
    outputs: Mapped[list[Any] | None]
    created_at: Mapped[datetime]


class JobRow(Base):
    """One submission. Its row is the lock of everything below it: whoever changes chunks, attempts, results or events takes it first."""

    __tablename__ = "jobs"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    state: Mapped[str]
    verdict: Mapped[str | None]
    error: Mapped[str | None]
    waiting_reason: Mapped[str | None]
    version: Mapped[int] = mapped_column(default=1)
    owner: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    subject_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    build_line: Mapped[str]
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
    reference: Mapped[str | None]  # the build that this one is compared with; null: float64 alone
    # Counters, changed under the job's lock.
    total: Mapped[int]
    done: Mapped[int] = mapped_column(default=0)
    chunk_count: Mapped[int]
    open_chunks: Mapped[int]
    counts: Mapped[dict[str, Any]]
    outcomes: Mapped[dict[str, Any] | None]  # of a selection's job: how many tests of all iterations were passed, failed, ...
    last_event: Mapped[int] = mapped_column(default=0)
    diagnosis: Mapped[dict[str, Any] | None]
    created_at: Mapped[datetime]
    deadline_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    cancel_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    __table_args__ = (
        Index("ix_jobs_state", "state", "id"),
        Index("ix_jobs_test", "test_key", "id"),
        Index("ix_jobs_subject", "subject_key", "id"),
        Index("ix_jobs_build", "build", "id"),
    )


class JobLabelRow(Base):
    """A label of a job, apart from its JSON so that lists can be filtered by it."""

    __tablename__ = "job_labels"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True)
    value: Mapped[str]
    __table_args__ = (Index("ix_job_labels_value", "name", "value", "job_id"),)


class ChunkRow(Base):
    """About 20 s of a job's work, run by one attempt at a time. `attempts` counts those that count against it."""

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
    __table_args__ = (UniqueConstraint("job_id", "number"), Index("ix_chunks_state", "state", "queue", "job_id"))


class AttemptRow(Base):
    """One try to run a chunk. `epoch` is the life of the Redis it was published in; null = not published yet."""

    __tablename__ = "attempts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    chunk_id: Mapped[str] = mapped_column(IdType, ForeignKey("chunks.id"), index=True)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), index=True)
    number: Mapped[int]
    state: Mapped[str]
    queue: Mapped[str]
    work: Mapped[list[Any]]
    epoch: Mapped[str | None]
    worker: Mapped[str | None]
    device: Mapped[str | None]
    host: Mapped[str | None]
    host_run: Mapped[str | None]
    seed: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    error: Mapped[str | None]
    log_tail: Mapped[str | None]
    telemetry: Mapped[dict[str, Any] | None]  # of its device: temperature, clock, power, firmware
    batches: Mapped[list[Any]]  # numbers of the batches stored so far
    expected: Mapped[dict[str, Any] | None]  # what its "finished" said: {"sent": [[seed, repeat], ...], "batches": n or null, "outcome"}
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    heard_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    __table_args__ = (Index("ix_attempts_state", "state", "queue"),)


class SeedResultRow(Base):
    """One output of one (seed, repeat) of a job; output '' for a seed without numbers (hang, crash, error).

    Partitioned by RANGE (job_id) on PostgreSQL: the id is a UUIDv7, so a partition is a month (storage/partitions.py).
    """

    __tablename__ = "seed_results"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    seed: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    repeat: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    output: Mapped[str] = mapped_column(primary_key=True)
    arrival: Mapped[int]  # 1, 2, ... per job and (seed, repeat), in order of storing
    attempt_id: Mapped[str] = mapped_column(IdType)
    # of the whole seed, the same in each of its rows
    seed_verdict: Mapped[str]
    seed_explanation: Mapped[str | None]
    device: Mapped[str | None]
    host_run: Mapped[str | None]
    position: Mapped[int | None]
    duration_ms: Mapped[float | None]
    profile: Mapped[str | None]
    policy: Mapped[str | None]
    message: Mapped[str | None]
    # of this output
    verdict: Mapped[str]
    explanation: Mapped[str | None]
    tolerance_ratio: Mapped[float | None]
    budget_ratio: Mapped[float | None]
    chi: Mapped[float | None]
    max_abs: Mapped[float | None]
    rms: Mapped[float | None]
    pcc_deficit: Mapped[float | None]
    row_z: Mapped[float | None]
    xhat_z: Mapped[float | None]
    scale_z: Mapped[float | None]
    digest: Mapped[str | None]
    outcome: Mapped[str | None]  # of a test that exists already: what it says of itself, green or red
    nonfinite: Mapped[dict[str, Any] | None]  # statistic -> "nan" | "inf" | "-inf", for those stored as NULL
    statistics: Mapped[dict[str, Any] | None]  # the others, as they came
    __table_args__ = (Index("ix_seed_results_arrival", "job_id", "arrival"), {"postgresql_partition_by": "RANGE (job_id)"})


class RollupRow(Base):
    """One output of a closed job in a few numbers: what history pages read instead of every seed."""

    __tablename__ = "rollups"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    output: Mapped[str] = mapped_column(primary_key=True)
    subject_key: Mapped[str]
    test_key: Mapped[str]
    build: Mapped[str]
    executor: Mapped[str]
    seeds: Mapped[int]
    duration_ms: Mapped[float | None]  # mean of one seed
    tolerance_ratio: Mapped[float | None]  # these are maxima over the job's seeds
    budget_ratio: Mapped[float | None]
    chi: Mapped[float | None]
    max_abs: Mapped[float | None]
    row_z: Mapped[float | None]
    xhat_z: Mapped[float | None]
    scale_z: Mapped[float | None]
    rms: Mapped[float | None]  # these two are means
    pcc_deficit: Mapped[float | None]
    __table_args__ = (Index("ix_rollups_subject", "subject_key", "executor", "job_id"), Index("ix_rollups_test", "test_key", "job_id"))


class ArtifactRow(Base):
    """Something larger that belongs to a seed: a diagnosis, an error map, coefficients, a log."""

    __tablename__ = "artifacts"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"))
    attempt_id: Mapped[str] = mapped_column(IdType)
    kind: Mapped[str]
    seed: Mapped[int] = mapped_column(BigInteger)
    repeat: Mapped[int]
    output: Mapped[str]
    size: Mapped[int]
    content: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    __table_args__ = (UniqueConstraint("job_id", "kind", "seed", "repeat", "output"),)


class EventRow(Base):
    """What happened to a job, numbered 1, 2, ... per job: the SSE stream."""

    __tablename__ = "events"
    job_id: Mapped[str] = mapped_column(IdType, ForeignKey("jobs.id"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    type: Mapped[str]
    data: Mapped[dict[str, Any]]
    at: Mapped[datetime]


class OutboxRow(Base):
    """Something to do outside the database, written in the transaction that decided it; `dedupe` makes it happen once."""

    __tablename__ = "outbox"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    topic: Mapped[str]
    dedupe: Mapped[str] = mapped_column(unique=True)
    payload: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    due_at: Mapped[datetime | None]  # null = done
    tries: Mapped[int] = mapped_column(default=0)
    error: Mapped[str | None]
    done_at: Mapped[datetime | None] = mapped_column(index=True)
    __table_args__ = (
        Index("ix_outbox_due", "due_at", sqlite_where=text("due_at IS NOT NULL"), postgresql_where=text("due_at IS NOT NULL")),
    )


class FlagRow(Base):
    """A finding about a test on one line of builds and one kind of board, with its evidence and its life."""

    __tablename__ = "flags"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    kind: Mapped[str]
    state: Mapped[str]
    test_key: Mapped[str] = mapped_column(ForeignKey("test_specs.key"))
    subject_key: Mapped[str]
    kernel: Mapped[str]
    build: Mapped[str]
    build_line: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    owner: Mapped[str | None]
    reason: Mapped[str | None]
    evidence: Mapped[dict[str, Any]]
    first_job: Mapped[str] = mapped_column(IdType)
    last_job: Mapped[str] = mapped_column(IdType)
    jobs: Mapped[int]
    version: Mapped[int]
    opened_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    __table_args__ = (UniqueConstraint("kind", "test_key", "build_line", "arch", "board"), Index("ix_flags_state", "state", "kind", "id"))


class WorkerRow(Base):
    """A device worker, as its last heartbeat described it."""

    __tablename__ = "workers"
    name: Mapped[str] = mapped_column(primary_key=True)
    host: Mapped[str | None]
    device: Mapped[str | None]
    queues: Mapped[list[Any]]
    attempt_id: Mapped[str | None] = mapped_column(IdType)
    seed: Mapped[int | None] = mapped_column(BigInteger)
    stage: Mapped[str | None]
    first_heard_at: Mapped[datetime]
    heard_at: Mapped[datetime] = mapped_column(index=True)


class DeviceRow(Base):
    """A chip of a host, or a virtual device, as its worker announced it; its health, and what is wanted of it."""

    __tablename__ = "devices"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    identity: Mapped[str] = mapped_column(unique=True)  # host/name, as results name it
    host: Mapped[str] = mapped_column(index=True)
    name: Mapped[str]
    arch: Mapped[str]
    board: Mapped[str]
    serial: Mapped[str | None]
    pci: Mapped[str | None]
    firmware: Mapped[dict[str, Any]]
    driver: Mapped[str | None]
    source: Mapped[str]
    queues: Mapped[list[Any]]
    worker: Mapped[str | None]
    attempt_id: Mapped[str | None] = mapped_column(IdType)
    online: Mapped[bool]
    health: Mapped[str]
    reason: Mapped[str | None]
    drained: Mapped[bool]
    asked: Mapped[int]  # how often someone wanted it tested
    version: Mapped[int]
    telemetry: Mapped[dict[str, Any] | None]
    digests: Mapped[dict[str, Any] | None]  # of its last canary: {"build", "arch", "outputs": {output: digest}}
    first_heard_at: Mapped[datetime]
    heard_at: Mapped[datetime]
    changed_at: Mapped[datetime]
    health_at: Mapped[datetime | None]  # since when its health is what it is; null: as `changed_at`


class GoldenRow(Base):
    """The digest of a build's canary that devices of an architecture must give; `second_device` null: nobody has confirmed it yet."""

    __tablename__ = "goldens"
    executor: Mapped[str] = mapped_column(primary_key=True)
    build: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]
    first_device: Mapped[str]
    second_device: Mapped[str | None]
    learned_at: Mapped[datetime]
    confirmed_at: Mapped[datetime | None]


class CanaryRow(Base):
    """A device's latest explained canary of a build. Times are of the clock of its host."""

    __tablename__ = "canaries"
    device_id: Mapped[str] = mapped_column(IdType, ForeignKey("devices.id"), primary_key=True)
    executor: Mapped[str] = mapped_column(primary_key=True)
    build: Mapped[str] = mapped_column(primary_key=True)
    arch: Mapped[str] = mapped_column(primary_key=True)
    digest: Mapped[str]  # of all outputs: "dbeta=... dgamma=... dx=..."
    since: Mapped[datetime]  # the first of the unbroken series that gave this digest
    at: Mapped[datetime]
    accused: Mapped[bool]  # the device was made suspect for this digest; a person's word after that stands
    __table_args__ = (Index("ix_canaries_build", "executor", "build", "arch"),)


class DeviceHealthRow(Base):
    """One change of a device: of its health, of being there, of being drained. Rows are only ever added."""

    __tablename__ = "device_health"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    device_id: Mapped[str] = mapped_column(IdType, ForeignKey("devices.id"))
    at: Mapped[datetime]
    what: Mapped[str]  # "health", "state" or "drain"
    before: Mapped[str | None]
    after: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    evidence: Mapped[dict[str, Any] | None]
    __table_args__ = (Index("ix_device_health_device", "device_id", "id"),)


class LeaseRow(Base):
    """Who does a job that only one process may do at a time, and until when by the database's clock (epoch seconds)."""

    __tablename__ = "leases"
    name: Mapped[str] = mapped_column(primary_key=True)
    holder: Mapped[str]
    until: Mapped[float]


class TokenRow(Base):
    """A bearer token: only a keyed hash of it is stored."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]
    prefix: Mapped[str]
    hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SessionRow(Base):
    """A login of the pages; `id` is the hash of the cookie."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(primary_key=True)
    token_id: Mapped[str] = mapped_column(IdType, ForeignKey("tokens.id"), index=True)
    csrf: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class IdempotencyRow(Base):
    """The answer to a request with an Idempotency-Key; `scope` is a hash of token, method, path and key."""

    __tablename__ = "idempotency_keys"
    scope: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[str]
    status: Mapped[int] = mapped_column(Integer)
    response: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


class AuditRow(Base):
    """Who did what to what."""

    __tablename__ = "audit"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    at: Mapped[datetime]
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    detail: Mapped[dict[str, Any] | None]
