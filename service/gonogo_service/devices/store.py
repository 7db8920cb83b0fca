"""Devices as they are now: their state, their job, whether their canary is golden, their orders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import (
    CanaryRow,
    DeviceHealthRow,
    DeviceRow,
    GoldenRow,
)
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth, JobKind

TIMEOUT_S = 30.0
HISTORY = 200
"""Maximum number of changes that `history` returns."""
NO_WORK = (DeviceHealth.bad, DeviceHealth.maintenance)


def list_(
    session: Session, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> list[DeviceRow]:
    """Return all devices, ordered by host and name."""
    rows = session.scalars(select(DeviceRow).order_by(DeviceRow.host, DeviceRow.name)).all()
    return complete(session, rows, now=now, timeout_s=timeout_s)


def look(
    session: Session, device_id: str, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> DeviceRow | None:
    """Return a device; None if it doesn't exist."""
    row = session.get(DeviceRow, device_id) if is_id(device_id) else None
    if row is not None:
        complete(session, [row], now=now, timeout_s=timeout_s)
    return row


def history(session: Session, device_id: str) -> list[DeviceHealthRow]:
    """Return the changes of a device, newest first."""
    table = DeviceHealthRow
    query = select(table).where(table.device_id == device_id).order_by(table.id.desc())
    return list(session.scalars(query.limit(HISTORY)))


def complete(
    session: Session, rows: Sequence[DeviceRow], *, now: datetime | None, timeout_s: float
) -> list[DeviceRow]:
    """Set what no column says: the state, the job (of gauges none), whether the canary is golden.

    A device that was not heard for `timeout_s` is offline.
    """
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    attempts = [row.attempt for row in rows if row.attempt]
    query = select(AttemptRow.id, AttemptRow.job_id).join(JobRow, JobRow.id == AttemptRow.job_id)
    query = query.where(AttemptRow.id.in_(attempts), JobRow.kind == JobKind.seeds)
    jobs = {row.id: row.job_id for row in session.execute(query)} if attempts else {}
    standing = _standing(session, rows[0].id if len(rows) == 1 else None) if rows else {}
    for row in rows:
        row.state = row.state_at(limit)
        row.job = jobs.get(row.attempt or "")
        if (canary := row.canary) is not None:
            canary.golden = standing.get((row.id, canary.executor, canary.build, canary.arch))
    return list(rows)


def _standing(session: Session, device_id: str | None) -> dict[tuple[str, ...], CanaryOutcome]:
    """Return how each device's latest canary of (executor, build, arch) compares."""
    key_columns = ("executor", "build", "arch")
    same_key = and_(
        GoldenRow.host == DeviceRow.host,
        *(getattr(GoldenRow, name) == getattr(CanaryRow, name) for name in key_columns),
    )
    query = (
        select(CanaryRow, GoldenRow)
        .join(DeviceRow, DeviceRow.id == CanaryRow.device_id)
        .join(GoldenRow, same_key)
    )
    if device_id is not None:
        query = query.where(CanaryRow.device_id == device_id)
    return {
        (canary.device_id, canary.executor, canary.build, canary.arch): (
            CanaryOutcome.differs
            if canary.digest != golden.digest
            else CanaryOutcome.golden
            if golden.second_device is not None
            else CanaryOutcome.first
        )
        for canary, golden in session.execute(query)
    }


def orders(session: Session, *, host: str) -> dict[str, dict[str, Any]]:
    """Return the orders for the workers of a host's devices, by the device.

    An order is {"order": "work" | "drain" | "maintenance", "canaries": number of requested ones}.
    """
    table = DeviceRow
    rows = session.execute(
        select(table.device, table.health, table.drained, table.test_requests).where(
            table.host == host
        )
    ).all()
    return {
        device: {
            "order": "maintenance"
            if health is DeviceHealth.maintenance
            else "drain"
            if drained
            else "work",
            "canaries": test_requests,
        }
        for device, health, drained, test_requests in rows
    }


def without_work(session: Session) -> set[tuple[str, str]]:
    """Return (worker, queue) of devices that get no work; their worker may not know it yet."""
    query = select(DeviceRow.worker, DeviceRow.queues).where(
        DeviceRow.drained | DeviceRow.health.in_(NO_WORK)
    )
    return {
        (worker, queue) for worker, queues in session.execute(query) if worker for queue in queues
    }
