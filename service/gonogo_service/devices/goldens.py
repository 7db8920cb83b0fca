"""Canary digests: each device's latest one, and each host's golden one per build and architecture.

The rules are in gonogo.devices.golden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gonogo.devices import golden
from gonogo.devices.golden import CanaryResult, Finding, Golden
from gonogo_service.devices import change_limits, device_changes, heartbeats, periods
from gonogo_service.devices.device_evidence import CanaryAccusation, CanaryDifference
from gonogo_service.devices.model import CanaryRow, DeviceRow, GoldenRow
from gonogo_service.kit import audit
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth

COUNTED = (DeviceHealth.good.value, DeviceHealth.suspect.value)
"""Health of the devices whose canaries count.

A bad device has no passed canary. A device in maintenance may be in any state.
"""
ACTOR = "background"
MAX_CANARIES = 16
"""The canaries of a device, one for each executor and build; the one that ran longest ago goes."""


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


@dataclass(frozen=True)
class _Key:
    host: str
    executor: str
    build: str
    arch: str

    @property
    def subject(self) -> str:
        """The key as the audit log names it."""
        return f"{self.host}/{self.executor}/{self.build}/{self.arch}"


def report(session: Session, body: Mapping[str, Any], *, now: datetime) -> ReportOutcome:
    """Record a worker's report on its device (see `heartbeats.report`).

    The digests of a passed canary are compared with those of its host's other devices. What would
    change the golden digest too soon after other changes waits for the next canary. Raises
    IntegrityError if two first canaries arrive at the same time: try again.
    """
    evidence = dict(body.get("evidence") or {})
    digests = {
        str(name): str(value) for name, value in sorted(dict(evidence.get("digests") or {}).items())
    }
    place = session.execute(
        select(DeviceRow.host, DeviceRow.arch).where(DeviceRow.identity == str(body.get("device")))
    ).one_or_none()
    passed_canary = (
        place is not None
        and body.get("health") == DeviceHealth.good
        and evidence.get("canary")
        and digests
    )
    if place is None or not passed_canary:
        changed = heartbeats.report(session, body, now=now)
        if place is not None and body.get("health") == DeviceHealth.bad and evidence.get("canary"):
            periods.record_canary(session, str(body["device"]), CanaryOutcome.failed, now=now)
        return ReportOutcome(changed)
    executor, build = str(evidence.get("executor") or ""), str(evidence["canary"])
    key = _Key(place.host, executor, build, place.arch)
    # The golden row is locked before any device.
    golden_row = session.get(
        GoldenRow,
        (key.host, key.executor, key.build, key.arch),
        with_for_update=True,
        populate_existing=True,
    )
    changed = heartbeats.report(session, body, now=now)
    row = session.scalar(
        select(DeviceRow).where(DeviceRow.identity == str(body["device"])).with_for_update()
    )
    assert row is not None
    has_room = change_limits.has_room(session, row, "health", now=now)
    at = heartbeats.canary_time(body, now)
    is_new = _store(session, row, key, digests, at, has_room=has_room)
    if is_new is None or row.health not in COUNTED:
        return ReportOutcome(changed)
    canaries = _canaries(session, key, row)
    finding = golden.judge(_golden(golden_row), [result for _, _, result in canaries])
    assert finding.golden is not None
    if finding.change is not None:
        if not has_room:
            return ReportOutcome(changed)
        _store_golden(session, key, golden_row, finding, now)
        words = f"the golden bits of {key.subject} are {finding.change} with its canary"
        _note(session, row, key, finding.golden, digests, words, now=now)
    periods.record_canary(session, row.identity, _outcome(finding.golden, digests), now=now)
    strays = is_new and finding.golden.digest != _digest(digests)
    if strays and has_room:
        words = _difference(finding.golden, digests)
        _note(session, row, key, finding.golden, digests, words, now=now)
    alone = (
        finding.golden.second is not None
        and row.identity not in finding.excused
        and row.health == DeviceHealth.good
    )
    requested = _request_canaries(canaries, row, finding.golden) if strays and alone else ()
    excused = _excuse(session, canaries, finding, now)
    return ReportOutcome(changed, _accuse(session, key, canaries, finding, now), excused, requested)


def _digest(outputs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(outputs.items()))


def _outcome(known: Golden, outputs: Mapping[str, str]) -> CanaryOutcome:
    if known.digest != _digest(outputs):
        return CanaryOutcome.differs
    return CanaryOutcome.first if known.second is None else CanaryOutcome.golden


def forget(session: Session) -> None:
    """Delete the golden digests of builds that no device of the host has run lately."""
    names = ("executor", "build", "arch")
    canary_of_host = (
        select(CanaryRow.device_id)
        .join(DeviceRow, DeviceRow.id == CanaryRow.device_id)
        .where(
            DeviceRow.host == GoldenRow.host,
            *(getattr(CanaryRow, name) == getattr(GoldenRow, name) for name in names),
        )
        .correlate(GoldenRow)
    )
    session.execute(
        delete(GoldenRow)
        .where(~canary_of_host.exists())
        .execution_options(synchronize_session=False)
    )


def _note(
    session: Session,
    device: DeviceRow,
    key: _Key,
    known: Golden,
    outputs: Mapping[str, str],
    words: str,
    *,
    now: datetime,
) -> None:
    """Add words about a device's canary to its history."""
    evidence = _evidence(key, known, outputs)
    health = device.health
    device_changes.note(session, device, "health", health, health, ACTOR, words, evidence, now=now)


def _store(
    session: Session,
    device: DeviceRow,
    key: _Key,
    outputs: Mapping[str, str],
    at: datetime,
    *,
    has_room: bool,
) -> bool | None:
    """Store a canary; return whether its digest is new for the device.

    It is None if a later canary is already stored, and for another build's without room for it.
    """
    digest = _digest(outputs)
    row = session.get(CanaryRow, (device.id, key.executor, key.build, key.arch))
    if row is None:
        if not has_room:
            return None
        _make_room(session, device)
        names = {"executor": key.executor, "build": key.build, "arch": key.arch}
        session.add(
            CanaryRow(device_id=device.id, **names, digest=digest, since=at, at=at, accused=False)
        )
        session.flush()
        return True
    if at < row.at:
        return None
    is_new = digest != row.digest
    if is_new:
        row.digest, row.since, row.accused = digest, at, False
    row.at = at
    session.flush()
    return is_new


def _make_room(session: Session, device: DeviceRow) -> None:
    """Delete the device's oldest canaries, so that one more has room."""
    latest = select(CanaryRow).where(CanaryRow.device_id == device.id).order_by(CanaryRow.at.desc())
    for row in session.scalars(latest.offset(MAX_CANARIES - 1)):
        session.delete(row)
    session.flush()


def _canaries(
    session: Session, key: _Key, here: DeviceRow
) -> list[tuple[DeviceRow, CanaryRow, CanaryResult]]:
    """Return the canaries that count: of the host's devices that are online and may work.

    The reporting device is always included.
    """
    query = (
        select(DeviceRow, CanaryRow)
        .join(CanaryRow, CanaryRow.device_id == DeviceRow.id)
        .where(
            CanaryRow.executor == key.executor,
            CanaryRow.build == key.build,
            CanaryRow.arch == key.arch,
        )
        .where(DeviceRow.host == key.host)
        .where(DeviceRow.health.in_(COUNTED), DeviceRow.online | (DeviceRow.id == here.id))
        .order_by(DeviceRow.id)
    )
    return [
        (
            device,
            canary,
            CanaryResult(device.identity, canary.digest, canary.since, canary.at),
        )
        for device, canary in session.execute(query)
    ]


def _golden(row: GoldenRow | None) -> Golden | None:
    return None if row is None else Golden(row.digest, row.first_device, row.second_device)


def _store_golden(
    session: Session, key: _Key, row: GoldenRow | None, finding: Finding, now: datetime
) -> None:
    """Store the new golden digest, and add it to the audit log."""
    known = finding.golden
    assert known is not None
    before = None if row is None else row.digest
    confirmed_at = now if known.second is not None else None
    if row is None:
        row = GoldenRow(
            host=key.host,
            executor=key.executor,
            build=key.build,
            arch=key.arch,
            digest=known.digest,
            first_device=known.first,
            second_device=known.second,
        )
        session.add(row)
    row.digest, row.first_device, row.second_device, row.confirmed_at = (
        known.digest,
        known.first,
        known.second,
        confirmed_at,
    )
    session.flush()
    detail = {
        "digest": known.digest,
        "before": before,
        "devices": [device for device in (known.first, known.second) if device is not None],
    }
    audit.record(
        session, actor=ACTOR, action=f"golden.{finding.change}", subject=key.subject, detail=detail
    )


def _difference(known: Golden, outputs: Mapping[str, str]) -> str:
    golden_digests = dict(part.split("=", 1) for part in known.digest.split(" "))
    names = sorted(
        name
        for name in {*golden_digests, *outputs}
        if golden_digests.get(name) != outputs.get(name)
    )
    givers = (
        f"{known.first} and {known.second}"
        if known.second is not None
        else f"{known.first}, which no second device of its host has confirmed"
    )
    return (
        f"rounding explains the canary's numbers, but the bits of {', '.join(names)} differ from"
        f" the golden ones of {givers}"
    )


def _evidence(key: _Key, known: Golden, outputs: Mapping[str, str]) -> dict[str, Any]:
    return asdict(CanaryDifference(key.build, key.arch, dict(outputs), known.digest))


def _request_canaries(
    canaries: list[tuple[DeviceRow, CanaryRow, CanaryResult]], here: DeviceRow, known: Golden
) -> tuple[str, ...]:
    """Request canaries from the host's other devices with the golden digest; return their names.

    They show whether the build has changed for all, or only this device differs.
    """
    others = [
        device
        for device, canary, _ in canaries
        if device.id != here.id and canary.digest == known.digest
    ]
    for device in others:
        device.test_requests += 1
    return tuple(device.identity for device in others)


def _accuse(
    session: Session,
    key: _Key,
    canaries: list[tuple[DeviceRow, CanaryRow, CanaryResult]],
    finding: Finding,
    now: datetime,
) -> dict[str, str]:
    """Mark accused devices as suspect, once per digest; return {device: reason}.

    So a person's decision to set such a device back to good stands.
    """
    assert finding.golden is not None
    rows = {device.identity: canary for device, canary, _ in canaries}
    suspected: dict[str, str] = {}
    for accusation in finding.accused:
        canary = rows[accusation.device]
        evidence = asdict(
            CanaryAccusation(
                canary=key.build,
                arch=key.arch,
                digest=canary.digest,
                golden=finding.golden.digest,
                witness=accusation.witness,
            )
        )
        if not canary.accused and device_changes.suspect(
            session, accusation.device, accusation.words, evidence, now=now
        ):
            canary.accused = True
            suspected[accusation.device] = accusation.words
    session.flush()
    return suspected


def _excuse(
    session: Session,
    canaries: list[tuple[DeviceRow, CanaryRow, CanaryResult]],
    finding: Finding,
    now: datetime,
) -> tuple[str, ...]:
    """Lift suspicions without a reason: the digest became golden, or another device gives it too.

    Returns the devices that are no longer suspect.
    """
    excused = []
    for device, canary, _ in canaries:
        if canary.accused and device.identity in finding.excused:
            canary.accused = False
            if device.health == DeviceHealth.suspect:
                reason = (
                    "other devices of its host give the same bits now: the build has changed, not"
                    " the device"
                )
                device_changes.change(
                    session, device, DeviceHealth.good, actor=ACTOR, reason=reason, now=now
                )
                excused.append(device.identity)
    session.flush()
    return tuple(excused)
