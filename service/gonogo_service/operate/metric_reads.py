"""The numbers behind /metrics, aggregated by the database.

They are cheap enough for a scrape every few seconds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.spec.verdicts import Verdict
from gonogo_service.devices import workers
from gonogo_service.devices.model import DeviceRow, WorkerRow
from gonogo_service.flags.model import FlagRow, FlagState
from gonogo_service.hosts import refused_messages
from gonogo_service.jobs import queue_estimate
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import (
    AttemptState,
    ChunkState,
    DeviceState,
    JobState,
    WebhookState,
    WorkerState,
)
from gonogo_service.kit.outbox import leases
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.operate import final_job_counts
from gonogo_service.operate.final_job_counts import Memory
from gonogo_service.webhooks.model import DeliveryRow, WebhookRow

PRESENCE = "presence/"
"""Each background process holds one lease with this prefix.

Other leases are held by the process that does the duty.
"""


@dataclass(frozen=True)
class DeviceNumbers:
    """One device, "host/name", with its state and temperature.

    The temperature is in degrees Celsius; None if its worker reports none.
    """

    device: str
    board: str
    state: str
    health: str
    drained: bool
    temperature_c: float | None


@dataclass(frozen=True)
class Numbers:
    """The state of the service at a moment.

    Counts are by label, ages in seconds (0 = nothing waits).
    """

    jobs: dict[str, int]  # by state
    seeds: dict[str, int]  # by verdict
    chunks: dict[tuple[str, str], int]  # open ones, by (queue, state)
    # oldest waiting chunk, by queue; 0 for a queue that is served and empty
    queue_age_s: dict[str, float]
    # live workers whose device takes work, by queue; 0 for a queue with chunks and no worker
    queue_workers: dict[str, int]
    workers: dict[str, int]  # by state
    devices: tuple[DeviceNumbers, ...]
    refused: dict[tuple[str, str], int]  # messages, by (sender or "unknown", reason)
    flags: dict[str, int]  # unresolved ones, by kind
    outbox: int
    outbox_age_s: float
    # oldest attempt whose worker has finished while some of its results are still on their way
    ingest_lag_s: float
    webhooks: dict[str, int]  # subscriptions by state
    deliveries: int  # messages that will be tried, or tried again
    delivery_age_s: float  # oldest of them
    webhook_lag_s: float  # time since the earliest due time of them
    background: int  # live background processes
    duties: tuple[str, ...]  # leases in force, without those of presence


def numbers(
    session: Session,
    *,
    heartbeat_timeout_s: float,
    memory: Memory | None = None,
    now: datetime | None = None,
) -> Numbers:
    """Read the numbers.

    memory: the caller's, the same for each call; without one all jobs are counted.
    """
    now = now or utcnow()
    jobs, seeds = final_job_counts.count(session, memory or Memory(), now=now)
    chunks = {
        (queue, state.value): number
        for (queue, state), number in queue_estimate.open_chunks(session).items()
    }
    served = workers.live(session, now=now, timeout_s=heartbeat_timeout_s)
    queues = sorted({queue for queue, _ in chunks} | set(served))

    def waits_since(queue: str) -> datetime | None:
        return (
            queue_estimate.oldest(session, queue) if (queue, ChunkState.waiting) in chunks else None
        )

    states: Counter[str] = Counter()
    for heard_at, attempt in session.execute(select(WorkerRow.heard_at, WorkerRow.attempt)):
        late = now - heard_at > timedelta(seconds=heartbeat_timeout_s)
        states[
            WorkerState.offline if late else WorkerState.busy if attempt else WorkerState.idle
        ] += 1
    unresolved = tuple(state for state in FlagState if state is not FlagState.resolved)
    flags = session.execute(
        select(FlagRow.kind, func.count())
        .where(FlagRow.state.in_(unresolved))
        .group_by(FlagRow.kind)
    )
    pending, first = session.execute(
        select(func.count(), func.min(OutboxRow.created_at)).where(
            OutboxRow.due_at.is_not(None), OutboxRow.done_at.is_(None)
        )
    ).one()
    reported = session.scalar(
        select(func.min(AttemptRow.heard_at)).where(AttemptRow.state == AttemptState.reported)
    )
    deliveries, oldest, due = session.execute(
        select(func.count(), func.min(DeliveryRow.created_at), func.min(DeliveryRow.due_at)).where(
            DeliveryRow.due_at.is_not(None)
        )
    ).one()
    webhooks = session.execute(select(WebhookRow.state, func.count()).group_by(WebhookRow.state))
    lease_names = leases.holders(session)
    return Numbers(
        jobs=_filled(JobState, jobs),
        seeds=_filled(Verdict, seeds),
        chunks=chunks,
        queue_age_s={queue: _age(waits_since(queue), now) for queue in queues},
        queue_workers={queue: served[queue] for queue in queues},
        workers=_filled(WorkerState, states),
        devices=_devices(session, now - timedelta(seconds=heartbeat_timeout_s)),
        refused={
            (sender or "unknown", reason): count
            for (sender, reason), count in refused_messages.counts(session).items()
        },
        flags=_filled(FlagKind, dict(flags.all())),
        outbox=pending,
        outbox_age_s=_age(first, now),
        ingest_lag_s=_age(reported, now),
        webhooks=_filled(WebhookState, dict(webhooks.all())),
        deliveries=deliveries,
        delivery_age_s=_age(oldest, now),
        webhook_lag_s=_age(due, now),
        background=sum(name.startswith(PRESENCE) for name in lease_names),
        duties=tuple(sorted(name for name in lease_names if not name.startswith(PRESENCE))),
    )


def _age(moment: datetime | None, now: datetime) -> float:
    return 0.0 if moment is None else max(0.0, (now - moment).total_seconds())


def _filled(names: Iterable[str], counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts, with 0 for every known name without one.

    So each series exists from the first scrape and has no late start.
    """
    return {str(name): 0 for name in names} | {str(name): number for name, number in counts.items()}


def _devices(session: Session, limit: datetime) -> tuple[DeviceNumbers, ...]:
    """Return every device; one whose worker was last heard before `limit` is offline."""
    devices = []
    for row in session.scalars(select(DeviceRow).order_by(DeviceRow.device)):
        state = row.state_at(limit)
        is_read = row.telemetry is not None and state is not DeviceState.offline
        devices.append(
            DeviceNumbers(
                row.device,
                row.board,
                state,
                row.health,
                row.drained,
                row.telemetry.temperature_c if is_read and row.telemetry else None,
            )
        )
    return tuple(devices)
