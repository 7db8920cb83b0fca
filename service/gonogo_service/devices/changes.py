"""Changes of a device's health and orders, by workers, people and the background.

Each is in the device's history and in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo_service.devices.model import DeviceHealthRow, DeviceRow, What
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import floor, is_id, new_id
from gonogo_service.kit.database.states import DeviceHealth
from gonogo_service.kit.outbox import outbox

WINDOW = timedelta(hours=1)
MAX_OF_DEVICE = 12
"""Entries of one kind in an hour: a device that fails and recovers six times makes as many.

A host with a valid token may send anything. Each entry may bring one of the audit log and a message
to every webhook, and none of them is ever deleted."""
MAX_OF_HOST = 512
"""The entries of all devices of a host: each of its 256 may go bad and become good again."""


def has_room(session: Session, device: DeviceRow, what: What, *, now: datetime) -> bool:
    """Return whether a device's history may get one more entry of this kind in this hour."""
    table = DeviceHealthRow
    recent = (
        select(func.count())
        .select_from(table)
        .where(table.what == what, table.id >= floor(now - WINDOW))
    )
    if (session.scalar(recent.where(table.device_id == device.id)) or 0) >= MAX_OF_DEVICE:
        return False
    of_host = recent.join(DeviceRow, DeviceRow.id == table.device_id).where(
        DeviceRow.host == device.host
    )
    return (session.scalar(of_host) or 0) < MAX_OF_HOST


def locked(session: Session, device: str) -> DeviceRow | None:
    """Lock the device of this name and return it; None if it doesn't exist."""
    return session.scalar(select(DeviceRow).where(DeviceRow.device == device).with_for_update())


def suspect(
    session: Session, device: str, reason: str, evidence: Mapping[str, Any], *, now: datetime
) -> bool:
    """Mark a good device as suspect and request a canary; return whether it changed.

    The background calls it when the device, not the tests, seems to be at fault.
    """
    row = locked(session, device)
    if row is None or row.health is not DeviceHealth.good:
        return False
    row.test_requests += 1
    return change(session, row, DeviceHealth.suspect, "background", reason, evidence, now=now)


def change(
    session: Session,
    row: DeviceRow,
    after: DeviceHealth,
    actor: str,
    reason: str,
    evidence: Mapping[str, Any] | None = None,
    *,
    by_person: bool = False,
    now: datetime,
) -> bool:
    """Set the health; return whether it changed.

    The change goes into the device's history, the audit log, and a message to subscribers. A device
    whose health changes too often stays sick until there is room in its history: only a change for
    the worse, or by a person, needs none.
    """
    before = row.health
    is_worse = after is not before and after is not DeviceHealth.good
    if not (by_person or is_worse or has_room(session, row, "health", now=now)):
        return False
    note(session, row, "health", before, after, actor, reason, evidence, now=now)
    if before is after:
        return False
    row.health, row.reason, row.changed_at, row.health_at = after, reason, now, now
    row.version += 1
    session.flush()
    type_, healths = "device.health_changed", {"before": before.value, "after": after.value}
    detail = {"device": row.device, **healths, "reason": reason}
    audit.record(session, actor=actor, action=type_, subject=row.id, detail=detail)
    payload = {"device": row.id, "version": row.version, **healths}
    outbox.add(session, type_, f"{type_}:{row.id}:{row.version}", payload, now=now)
    return True


def patch(
    session: Session,
    device_id: str,
    fields: Mapping[str, Any],
    *,
    actor: str,
    now: datetime | None = None,
) -> DeviceRow | None:
    """Apply a person's changes to a device and return it; None if it doesn't exist.

    The fields: health ("good", "maintenance"), drained, test (request a canary), reason. Setting
    the health back to good requests a canary: a worker that still considers the device bad runs it
    before it takes work again.
    """
    now = now or utcnow()
    if not is_id(device_id):
        return None
    row = session.get(DeviceRow, device_id, with_for_update=True, populate_existing=True)
    if row is None:
        return None
    reason = str(fields.get("reason") or "")
    if fields.get("health") is not None and row.health != fields["health"]:
        after = DeviceHealth(fields["health"])
        row.test_requests += after is DeviceHealth.good
        change(session, row, after, actor, reason, by_person=True, now=now)
    if fields.get("test"):
        row.test_requests += 1
        detail = {"device": row.device, "reason": reason}
        audit.record(
            session, actor=actor, action="device.test_requested", subject=row.id, detail=detail
        )
    if fields.get("drained") is not None:
        drain(session, row, bool(fields["drained"]), actor=actor, reason=reason, now=now)
    session.flush()
    return row


def drain(
    session: Session, row: DeviceRow, drained: bool, *, actor: str, reason: str, now: datetime
) -> bool:
    """Drain a device after its current seed, or undrain it; return whether this is a change."""
    if row.drained == drained:
        return False
    states = ("working", "drained")
    note(session, row, "drain", states[not drained], states[drained], actor, reason, now=now)
    row.drained, row.changed_at = drained, now
    row.version += 1
    session.flush()
    action = "device.drained" if drained else "device.undrained"
    detail = {"device": row.device, "reason": reason}
    audit.record(session, actor=actor, action=action, subject=row.id, detail=detail)
    return True


def drain_all(
    session: Session, condition: ColumnElement[bool], drained: bool, *, actor: str, reason: str
) -> list[str] | None:
    """Drain or undrain every device of a condition, such as those of a host or of a worker.

    Returns the ids of the devices that changed; None if there is no such device.
    """
    query = select(DeviceRow).where(condition).order_by(DeviceRow.id).with_for_update()
    rows, now = session.scalars(query).all(), utcnow()
    changed = [drain(session, row, drained, actor=actor, reason=reason, now=now) for row in rows]
    return [row.id for row, is_new in zip(rows, changed, strict=True) if is_new] if rows else None


def note(
    session: Session,
    row: DeviceRow,
    what: What,
    before: str | None,
    after: str,
    actor: str,
    reason: str | None,
    evidence: Mapping[str, Any] | None = None,
    *,
    now: datetime,
) -> None:
    """Add an entry to the device's history. Who records a message of a host asks `has_room`."""
    session.add(
        DeviceHealthRow(
            id=new_id(),
            device_id=row.id,
            at=now,
            what=what,
            before=None if before is None else str(before),
            after=str(after),
            actor=actor,
            reason=reason,
            evidence=None if evidence is None else dict(evidence),
        )
    )
    session.flush()
