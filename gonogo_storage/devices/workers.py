"""Device workers, known only by their heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.paging import Page
from gonogo_storage.db.records import from_object
from gonogo_storage.db.states import WorkerState
from gonogo_storage.devices import orders
from gonogo_storage.tables import WorkerRow

TIMEOUT_S = 30.0
FORGET = timedelta(days=7)


@dataclass(frozen=True)
class Worker:
    """A worker with its state and its attempt."""

    name: str
    host: str | None
    device: str | None
    queues: list[str]
    state: WorkerState
    attempt: str | None
    seed: int | None
    stage: str | None
    first_heard_at: datetime
    heard_at: datetime


def heard(
    session: Session,
    name: str,
    *,
    queues: Sequence[str] | None,
    device: str | None,
    host: str | None = None,
    attempt: str | None,
    seed: int | None = None,
    stage: str | None = None,
    version: str | None = None,
    now: datetime,
) -> bool:
    """Record a heartbeat of a worker; `queues` None keeps the known ones.

    Returns whether the worker is new, was offline, or has other queues than before.
    """
    row = session.get(WorkerRow, name)
    if row is None:
        session.add(
            WorkerRow(
                name=name,
                host=host,
                device=device,
                queues=list(queues or ()),
                attempt_id=attempt,
                seed=seed,
                stage=stage,
                version=version,
                first_heard_at=now,
                heard_at=now,
            )
        )
        session.flush()
        return True
    changed = (queues is not None and list(queues) != row.queues) or now - row.heard_at > timedelta(
        seconds=TIMEOUT_S
    )
    if queues is not None:
        row.queues = list(queues)
    row.device, row.host = device or row.device, host or row.host
    row.version = version or row.version
    row.attempt_id, row.seed, row.stage, row.heard_at = attempt, seed, stage, max(now, row.heard_at)
    return changed


def gone(session: Session, name: str) -> None:
    """Delete a worker that has stopped."""
    session.execute(delete(WorkerRow).where(WorkerRow.name == name))


def list_(
    session: Session, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> Page[Worker]:
    """Return all workers, ordered by name."""
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.name))
    return Page(tuple(_worker(row, limit) for row in rows), None)


def _worker(row: WorkerRow, limit: datetime) -> Worker:
    """Return a worker; one that was not heard since `limit` is offline."""
    state = WorkerState.busy if row.attempt_id else WorkerState.idle
    return from_object(
        Worker,
        row,
        state=WorkerState.offline if row.heard_at < limit else state,
        attempt=row.attempt_id,
    )


def live(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> Counter[str]:
    """Return the number of online workers by queue.

    Workers whose device is bad, drained or in maintenance are left out.
    """
    rows = session.execute(
        select(WorkerRow.name, WorkerRow.queues).where(
            WorkerRow.heard_at >= now - timedelta(seconds=timeout_s)
        )
    ).all()
    idle = orders.without_work(session)
    return Counter(queue for name, queues in rows for queue in queues if (name, queue) not in idle)


def forget(session: Session, *, now: datetime) -> None:
    """Delete workers without a heartbeat for a week."""
    session.execute(delete(WorkerRow).where(WorkerRow.heard_at < now - FORGET))
