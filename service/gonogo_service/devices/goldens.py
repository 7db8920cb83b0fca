"""Canary digests: each device's latest one, and each host's golden one per build and architecture.

The rules are in gonogo.devices.golden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gonogo.devices import golden
from gonogo.devices.golden import CanaryResult, Golden, GoldenFinding
from gonogo_service.devices import changes, heartbeats, periods
from gonogo_service.devices.model import (
    CanaryAccusation,
    CanaryDifference,
    CanaryRow,
    DeviceRow,
    GoldenRow,
)
from gonogo_service.kit import audit
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth

COUNTED = (DeviceHealth.good, DeviceHealth.suspect)
"""Health of the devices whose canaries count.

A bad device has no passed canary. A device in maintenance may be in any state.
"""
ACTOR = "background"
MAX_CANARIES = 16
"""The canaries of a device, one for each executor and build; the one that ran longest ago goes."""
EXCUSED = "other devices of its host give the same bits now: the build has changed, not the device"
_KEY = ("executor", "build", "arch")
Rows = Sequence[tuple[DeviceRow, CanaryRow]]


@dataclass(frozen=True)
class ReportOutcome:
    """The outcome of a worker's report."""

    changed: bool
    """True if the health of the report's device changed."""
    suspected: Mapping[str, str] = field(default_factory=dict)
    """Device -> why it became suspect."""
    excused: tuple[str, ...] = ()
    """Devices that are no longer suspect."""
    canary_requested: tuple[str, ...] = ()
    """Devices from which a canary was requested."""


def report(session: Session, body: Mapping[str, Any], *, now: datetime) -> ReportOutcome:
    """Record a worker's report on its device (see `heartbeats.report`).

    The digests of a passed canary are compared with those of its host's other devices. What would
    change the golden digest too soon after other changes waits for the next canary. Raises
    IntegrityError if two first canaries arrive at the same time: try again.
    """
    device, evidence = str(body.get("device")), dict(body.get("evidence") or {})
    outputs = {str(name): str(value) for name, value in dict(evidence.get("digests") or {}).items()}
    kind = select(DeviceRow.host, DeviceRow.arch).where(DeviceRow.device == device)
    place = session.execute(kind).one_or_none()
    build, health = str(evidence.get("canary") or ""), body.get("health")
    if place is None or not (health == DeviceHealth.good and build and outputs):
        changed = heartbeats.report(session, body, now=now)
        if place is not None and health == DeviceHealth.bad and build:
            periods.record_canary(session, device, CanaryOutcome.failed, now=now)
        return ReportOutcome(changed)
    key = {"executor": str(evidence.get("executor") or ""), "build": build, "arch": place.arch}
    # The golden row is locked before any device.
    of_host = {"host": place.host, **key}
    golden_row = session.get(GoldenRow, of_host, with_for_update=True, populate_existing=True)
    changed = heartbeats.report(session, body, now=now)
    here = changes.locked(session, device)
    assert here is not None
    may_tell = changes.has_room(session, here, "health", now=now)
    digest = " ".join(f"{name}={value}" for name, value in sorted(outputs.items()))
    is_new = _store(session, here, key, digest, now, may_tell)
    if is_new is None or here.health not in COUNTED:
        return ReportOutcome(changed)
    rows = _present(session, key, here)
    given = [
        CanaryResult(row.device, canary.digest, canary.since, canary.at) for row, canary in rows
    ]
    finding = golden.judge(None if golden_row is None else golden_row.known, given)
    known = finding.golden
    assert known is not None
    differs = known.digest != digest

    def tell(text: str) -> None:
        about = asdict(CanaryDifference(build, place.arch, outputs, known.digest))
        health = here.health
        changes.note(session, here, "health", health, health, ACTOR, text, about, now=now)

    if finding.change is not None:
        if not may_tell:
            return ReportOutcome(changed)
        subject = "/".join(of_host.values())
        _store_golden(session, golden_row or GoldenRow(**of_host), subject, finding, now)
        tell(f"the golden bits of {subject} are {finding.change} with its canary")
    outcome = CanaryOutcome.golden if known.second is not None else CanaryOutcome.first
    periods.record_canary(session, device, CanaryOutcome.differs if differs else outcome, now=now)
    requested: tuple[str, ...] = ()
    if is_new and differs:
        if may_tell:
            tell(_difference(known, outputs))
        is_excused = device in finding.excused
        if known.second is not None and not is_excused and here.health is DeviceHealth.good:
            requested = _request_canaries(rows, here, known)
    excused = _excuse(session, rows, finding, now)
    return ReportOutcome(changed, _accuse(session, rows, finding, now), excused, requested)


def forget(session: Session) -> None:
    """Delete the golden digests of builds that no device of the host has run lately."""
    canary_of_host = (
        select(CanaryRow.device_id)
        .join(DeviceRow, DeviceRow.id == CanaryRow.device_id)
        .where(
            DeviceRow.host == GoldenRow.host,
            *(getattr(CanaryRow, name) == getattr(GoldenRow, name) for name in _KEY),
        )
        .correlate(GoldenRow)
    )
    session.execute(
        delete(GoldenRow)
        .where(~canary_of_host.exists())
        .execution_options(synchronize_session=False)
    )


def _store(
    session: Session,
    device: DeviceRow,
    key: Mapping[str, str],
    digest: str,
    now: datetime,
    may_tell: bool,
) -> bool | None:
    """Store a canary; return whether its digest is new for the device.

    None: it is of another build, for which there is no room.
    """
    row = session.get(CanaryRow, {"device_id": device.id, **key})
    if row is None:
        if not may_tell:
            return None
        table = CanaryRow
        latest = select(table).where(table.device_id == device.id).order_by(table.at.desc())
        for oldest in session.scalars(latest.offset(MAX_CANARIES - 1)):
            session.delete(oldest)
        row = CanaryRow(device_id=device.id, **key, digest="", since=now, at=now)
        session.add(row)
    is_new = digest != row.digest
    if is_new:
        row.digest, row.since, row.accused = digest, now, False
    row.at = now
    session.flush()
    return is_new


def _present(session: Session, key: Mapping[str, str], here: DeviceRow) -> Rows:
    """Return the canaries that count: of the host's devices that are online and may work.

    The reporting device is always included.
    """
    query = (
        select(DeviceRow, CanaryRow)
        .join(CanaryRow, CanaryRow.device_id == DeviceRow.id)
        .where(*(getattr(CanaryRow, name) == value for name, value in key.items()))
        .where(DeviceRow.host == here.host)
        .where(DeviceRow.health.in_(COUNTED), DeviceRow.online | (DeviceRow.id == here.id))
        .order_by(DeviceRow.id)
    )
    return [(device, stored) for device, stored in session.execute(query)]


def _store_golden(
    session: Session, row: GoldenRow, subject: str, finding: GoldenFinding, now: datetime
) -> None:
    """Store the new golden digest, and add it to the audit log."""
    known, before = finding.golden, row.digest
    assert known is not None
    row.digest, row.first_device, row.second_device = known.digest, known.first, known.second
    row.confirmed_at = now if known.second is not None else None
    session.add(row)
    session.flush()
    devices = [device for device in (known.first, known.second) if device is not None]
    detail = {"digest": known.digest, "before": before, "devices": devices}
    action = f"golden.{finding.change}"
    audit.record(session, actor=ACTOR, action=action, subject=subject, detail=detail)


def _difference(known: Golden, outputs: Mapping[str, str]) -> str:
    of_golden = dict(part.split("=", 1) for part in known.digest.split(" "))
    names = {*of_golden, *outputs}
    differing = sorted(name for name in names if of_golden.get(name) != outputs.get(name))
    givers = (
        f"{known.first} and {known.second}"
        if known.second is not None
        else f"{known.first}, which no second device of its host has confirmed"
    )
    return (
        f"rounding explains the canary's numbers, but the bits of {', '.join(differing)} differ"
        f" from the golden ones of {givers}"
    )


def _request_canaries(rows: Rows, here: DeviceRow, known: Golden) -> tuple[str, ...]:
    """Request canaries from the host's other devices with the golden digest; return their names.

    They show whether the build has changed for all, or only this device differs.
    """
    others = [
        device for device, canary in rows if device.id != here.id and canary.digest == known.digest
    ]
    for device in others:
        device.test_requests += 1
    return tuple(device.device for device in others)


def _accuse(session: Session, rows: Rows, finding: GoldenFinding, now: datetime) -> dict[str, str]:
    """Mark accused devices as suspect, once per digest; return {device: reason}.

    So a person's decision to set such a device back to good stands.
    """
    assert finding.golden is not None
    by_name = {device.device: canary for device, canary in rows}
    suspected: dict[str, str] = {}
    for accused in finding.accused:
        canary, reason = by_name[accused.device], accused.words
        digests = canary.digest, finding.golden.digest
        about = asdict(CanaryAccusation(canary.build, canary.arch, *digests, accused.witness))
        if not canary.accused and changes.suspect(session, accused.device, reason, about, now=now):
            canary.accused = True
            suspected[accused.device] = reason
    session.flush()
    return suspected


def _excuse(session: Session, rows: Rows, finding: GoldenFinding, now: datetime) -> tuple[str, ...]:
    """Lift suspicions without a reason: the digest became golden, or another device gives it too.

    Returns the devices that are no longer suspect.
    """
    excused = []
    for device, canary in rows:
        if canary.accused and device.device in finding.excused:
            if device.health is DeviceHealth.suspect:
                if not changes.change(session, device, DeviceHealth.good, ACTOR, EXCUSED, now=now):
                    continue  # too soon: the next canary excuses it
                excused.append(device.device)
            canary.accused = False
    session.flush()
    return tuple(excused)
