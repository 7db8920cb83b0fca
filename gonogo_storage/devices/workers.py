"""Device workers, known only by their heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.states import WorkerState
from gonogo_storage.devices import devices
from gonogo_storage.tables import WorkerRow

TIMEOUT_S = 30.0
FORGET = timedelta(days=7)


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
    row.attempt_id, row.seed, row.stage, row.heard_at = attempt, seed, stage, max(now, row.heard_at)
    return changed


def gone(session: Session, name: str) -> None:
    """Delete a worker that has stopped."""
    session.execute(delete(WorkerRow).where(WorkerRow.name == name))


def list_(
    session: Session, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> list[dict[str, Any]]:
    """Return all workers as plain JSON, ordered by name.

    The keys: "name", "host", "device", "queues", "state" (idle, busy, offline), "attempt", "seed",
    "stage", "first_heard_at", "heard_at".
    """
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    return [
        {
            "name": row.name,
            "host": row.host,
            "device": row.device,
            "queues": row.queues,
            "state": (
                WorkerState.offline
                if row.heard_at < limit
                else WorkerState.busy
                if row.attempt_id
                else WorkerState.idle
            ).value,
            "attempt": row.attempt_id,
            "seed": row.seed,
            "stage": row.stage,
            "first_heard_at": timestamp(row.first_heard_at),
            "heard_at": timestamp(row.heard_at),
        }
        for row in session.scalars(select(WorkerRow).order_by(WorkerRow.name))
    ]


def live(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> Counter[str]:
    """Return the number of online workers by queue.

    Workers whose device is bad, drained or in maintenance are left out.
    """
    rows = session.execute(
        select(WorkerRow.name, WorkerRow.queues).where(
            WorkerRow.heard_at >= now - timedelta(seconds=timeout_s)
        )
    ).all()
    idle = devices.without_work(session)
    return Counter(queue for name, queues in rows for queue in queues if (name, queue) not in idle)


def forget(session: Session, *, now: datetime) -> None:
    """Delete workers without a heartbeat for a week."""
    session.execute(delete(WorkerRow).where(WorkerRow.heard_at < now - FORGET))
