"""Changes of a device's health and orders, by workers, people and the background.

Each is in the device's history and in the audit log.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gonogo_service.devices import change_limits
from gonogo_service.devices import store as devices
from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.devices.store import DeviceWithHistory
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.states import DeviceHealth
from gonogo_service.kit.outbox import outbox

FOLDED = "folded"
"""The field of an entry's evidence with the number of changes that it stands for."""


def suspect(
    session: Session, identity: str, reason: str, evidence: Mapping[str, Any], *, now: datetime
) -> bool:
    """Mark a good device as suspect and request a canary; return whether it changed.

    The background calls it when the device, not the tests, seems to be at fault.
    """
    row = locked(session, identity)
    if row is None or row.health != DeviceHealth.good:
        return False
    row.test_requests += 1
    return change(
        session,
        row,
        DeviceHealth.suspect,
        actor="background",
        reason=reason,
        evidence=evidence,
        now=now,
    )


def change(
    session: Session,
    row: DeviceRow,
    after: DeviceHealth,
    *,
    actor: str,
    reason: str,
    evidence: Mapping[str, Any] | None = None,
    by_person: bool = False,
    now: datetime,
) -> bool:
    """Set the health; return whether it changed.

    The change goes into the device's history, the audit log, and a message to subscribers. Where a
    host's messages have changed the device too often (see `change_limits`), only the health is
    set, and the newest entry of the history says so. `announce` tells the rest later.
    """
    before = DeviceHealth(row.health)
    has_room = by_person or change_limits.has_room(session, row, "health", now=now)
    if has_room or not _fold(session, row, after, actor, reason, evidence, now=now):
        note(session, row, "health", before, after, actor, reason, evidence, now=now)
    if before is after:
        return False
    announced = DeviceHealth(row.announced_health or before)
    row.health, row.reason, row.changed_at, row.health_at = after.value, reason, now, now
    row.version += 1
    row.announced_health = None if has_room or announced is after else announced.value
    session.flush()
    if has_room and announced is not after:
        _announce(session, row, announced, actor, now=now)
    return True


def announce(session: Session, row: DeviceRow, *, now: datetime) -> None:
    """Tell the audit log and subscribers of a change that came too soon after others."""
    if row.announced_health is None or not change_limits.has_room(session, row, "health", now=now):
        return
    before = DeviceHealth(row.announced_health)
    row.announced_health = None
    session.flush()
    _announce(session, row, before, "background", now=now)


def _fold(
    session: Session,
    row: DeviceRow,
    after: DeviceHealth,
    actor: str,
    reason: str,
    evidence: Mapping[str, Any] | None,
    *,
    now: datetime,
) -> bool:
    """Change the newest entry of a device's history; return False where it must stay.

    The times in which the device was sick only become longer by it: results of a sick device say
    nothing about a test. So an entry that made it sick gets one that ends this.
    """
    newest = session.scalar(
        select(DeviceHealthRow)
        .where(DeviceHealthRow.device_id == row.id, DeviceHealthRow.what == "health")
        .order_by(DeviceHealthRow.id.desc())
        .limit(1)
    )
    if newest is None:
        return False
    folded = int((newest.evidence or {}).get(FOLDED) or 0)
    made_sick = not folded and newest.after != DeviceHealth.good
    if made_sick and after is DeviceHealth.good:
        return False
    newest.after, newest.actor, newest.reason = after.value, actor, reason
    newest.evidence = (
        dict(evidence or {}) if made_sick else {**(evidence or {}), FOLDED: folded + 1}
    )
    if after is DeviceHealth.good:
        newest.at = now
    session.flush()
    return True


def _announce(
    session: Session, row: DeviceRow, before: DeviceHealth, actor: str, *, now: datetime
) -> None:
    after = DeviceHealth(row.health)
    detail = {
        "device": row.identity,
        "before": before.value,
        "after": after.value,
        "reason": row.reason,
    }
    audit.record(
        session, actor=actor, action="device.health_changed", subject=row.id, detail=detail
    )
    payload = {
        "device": row.id,
        "version": row.version,
        "before": before.value,
        "after": after.value,
    }
    outbox.add(
        session,
        "device.health_changed",
        f"device.health_changed:{row.id}:{row.version}",
        payload,
        now=now,
    )


def patch(
    session: Session,
    device_id: str,
    fields: Mapping[str, Any],
    *,
    actor: str,
    now: datetime | None = None,
) -> DeviceWithHistory | None:
    """Apply a person's changes to a device and return it; None if it doesn't exist.

    The fields: health ("good", "maintenance"), drained, test (request a canary), reason. Setting
    the health back to good requests a canary: a worker that still considers the device bad runs it
    before it takes work again.
    """
    now = now or utcnow()
    row = (
        session.get(DeviceRow, device_id, with_for_update=True, populate_existing=True)
        if is_id(device_id)
        else None
    )
    if row is None:
        return None
    reason = str(fields.get("reason") or "")
    if fields.get("health") is not None:
        after = DeviceHealth(fields["health"])
        if after is DeviceHealth.good and row.health != DeviceHealth.good:
            row.test_requests += 1
        if row.health != after:
            change(session, row, after, actor=actor, reason=reason, by_person=True, now=now)
    if fields.get("test"):
        row.test_requests += 1
        audit.record(
            session,
            actor=actor,
            action="device.test_requested",
            subject=row.id,
            detail={"device": row.identity, "reason": reason},
        )
    if fields.get("drained") is not None:
        drain(session, row, bool(fields["drained"]), actor=actor, reason=reason, now=now)
    session.flush()
    return devices.look(session, device_id, now=now)


def drain(
    session: Session, row: DeviceRow, drained: bool, *, actor: str, reason: str, now: datetime
) -> bool:
    """Drain a device after its current seed, or undrain it; return whether this is a change."""
    if row.drained == drained:
        return False
    words = ("working", "drained")
    note(session, row, "drain", words[not drained], words[drained], actor, reason, now=now)
    row.drained, row.changed_at = drained, now
    row.version += 1
    session.flush()
    detail = {"device": row.identity, "reason": reason}
    audit.record(
        session,
        actor=actor,
        action="device.drained" if drained else "device.undrained",
        subject=row.id,
        detail=detail,
    )
    return True


def drain_worker(
    session: Session,
    worker: str,
    drained: bool,
    *,
    actor: str,
    reason: str,
) -> list[str] | None:
    """Drain or undrain every device last served by a worker.

    Returns the ids of the devices that changed; None if there is no such device.
    """
    return _drain_all(
        session,
        DeviceRow.worker == worker,
        drained,
        actor=actor,
        reason=reason,
        now=utcnow(),
    )


def drain_host(
    session: Session,
    host: str,
    drained: bool,
    *,
    actor: str,
    reason: str,
) -> list[str] | None:
    """Drain or undrain every device of a host.

    Returns the ids of the devices that changed; None if the host has no device.
    """
    return _drain_all(
        session, DeviceRow.host == host, drained, actor=actor, reason=reason, now=utcnow()
    )


def _drain_all(
    session: Session,
    condition: ColumnElement[bool],
    drained: bool,
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> list[str] | None:
    rows = list(
        session.scalars(select(DeviceRow).where(condition).order_by(DeviceRow.id).with_for_update())
    )
    if not rows:
        return None
    return [
        row.id for row in rows if drain(session, row, drained, actor=actor, reason=reason, now=now)
    ]


def locked(session: Session, identity: str) -> DeviceRow | None:
    """Lock the device of this identity and return it; None if it doesn't exist."""
    return session.scalar(select(DeviceRow).where(DeviceRow.identity == identity).with_for_update())


def note(
    session: Session,
    row: DeviceRow,
    what: str,
    before: str | None,
    after: str,
    actor: str,
    reason: str | None,
    evidence: Mapping[str, Any] | None = None,
    *,
    now: datetime,
) -> None:
    """Add a row to the device's history.

    `what` is "health", "state" (online), "drain" or "firmware". Whoever records a message of a host
    asks `change_limits` first.
    """
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
