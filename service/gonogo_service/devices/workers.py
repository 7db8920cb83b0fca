"""Device workers, known only by their heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import WorkerRow
from gonogo_service.devices.store import TIMEOUT_S, without_work
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page

FORGET = timedelta(days=7)
MAX_OF_HOST = 256
"""The workers of a host that are remembered: each of its devices may have one."""
FORGET_SILENT = timedelta(minutes=3)
"""A host that has more forgets those that are silent for this long."""


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
    is_new = row is None
    if row is None:
        row = WorkerRow(name=name, queues=[], first_heard_at=now, heard_at=now)
        session.add(row)
    changed = (queues is not None and list(queues) != row.queues) or now - row.heard_at > timedelta(
        seconds=TIMEOUT_S
    )
    if queues is not None:
        row.queues = list(queues)
    row.device, row.host = device or row.device, host or row.host
    row.version = version or row.version
    row.attempt, row.seed, row.stage, row.heard_at = attempt, seed, stage, max(now, row.heard_at)
    session.flush()
    return is_new or changed


def make_room(session: Session, name: str, *, host: str, now: datetime) -> str | None:
    """Forget silent workers of a host if it has too many for a new one.

    Returns in words what is too much if they aren't silent.
    """
    of_host = select(func.count()).where(WorkerRow.host == host)
    if session.get(WorkerRow, name) is not None:
        return None
    excess = (session.scalar(of_host) or 0) + 1 - MAX_OF_HOST
    if excess <= 0:
        return None
    silent = list(
        session.scalars(
            select(WorkerRow.name)
            .where(WorkerRow.host == host, WorkerRow.heard_at < now - FORGET_SILENT)
            .order_by(WorkerRow.heard_at)
            .limit(excess)
        )
    )
    if len(silent) < excess:
        return f"{host} would have {MAX_OF_HOST + excess} workers; allowed: {MAX_OF_HOST}"
    session.execute(delete(WorkerRow).where(WorkerRow.name.in_(silent)))
    return None


def list_(
    session: Session,
    *,
    limit: int = 50,
    cursor: str | None = None,
    now: datetime | None = None,
    timeout_s: float = TIMEOUT_S,
) -> Page[WorkerRow]:
    """Return workers by name; the cursor is a name."""
    since = (now or utcnow()) - timedelta(seconds=timeout_s)
    query = select(WorkerRow).order_by(WorkerRow.name).limit(limit + 1)
    if cursor is not None:
        query = query.where(WorkerRow.name > cursor)
    rows = session.scalars(query).all()
    for row in rows:
        row.state = row.state_at(since)
    return Page.cut(rows, limit, lambda worker: worker.name)


def live(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> Counter[str]:
    """Return the number of online workers by queue.

    Workers whose device is bad, drained or in maintenance are left out.
    """
    since = now - timedelta(seconds=timeout_s)
    query = select(WorkerRow.name, WorkerRow.queues).where(WorkerRow.heard_at >= since)
    rows, idle = session.execute(query).all(), without_work(session)
    return Counter(queue for name, queues in rows for queue in queues if (name, queue) not in idle)


def forget(session: Session, *, now: datetime) -> None:
    """Delete workers without a heartbeat for a week."""
    session.execute(delete(WorkerRow).where(WorkerRow.heard_at < now - FORGET))
