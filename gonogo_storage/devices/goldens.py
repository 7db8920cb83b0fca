"""What canaries give, bit for bit: each device's latest, and the golden digest per build and
architecture. The rule is gonogo.devices.golden.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.devices import golden
from gonogo.devices.golden import Change, Finding, Golden, Sung
from gonogo_storage.access import audit
from gonogo_storage.db.states import CanaryOutcome, DeviceHealth
from gonogo_storage.devices import devices, periods
from gonogo_storage.tables import CanaryRow, DeviceRow, GoldenRow

COUNTED = (DeviceHealth.good.value, DeviceHealth.suspect.value)
"""Health of a device whose canary counts: one that is bad gave none, one in maintenance may have
been changed by a person."""
ACTOR = "background"


@dataclass(frozen=True)
class Told:
    """What a report led to: whether its device's health changed; devices suspected and why,
    excused, and asked to test themselves.
    """

    changed: bool
    suspected: Mapping[str, str] = field(default_factory=dict)
    excused: tuple[str, ...] = ()
    asked: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Key:
    executor: str
    build: str
    arch: str

    @property
    def subject(self) -> str:
        """As the audit names it."""
        return f"{self.executor}/{self.build}/{self.arch}"


def report(session: Session, body: Mapping[str, Any], *, now: datetime) -> Told:
    """A worker's word on its device (see `devices.report`); the digests of a canary that passed are
    compared with those of the others.

    Two first canaries at the same moment may raise IntegrityError: try again.
    """
    evidence = dict(body.get("evidence") or {})
    digests = {
        str(name): str(value) for name, value in sorted(dict(evidence.get("digests") or {}).items())
    }
    arch = session.scalar(
        select(DeviceRow.arch).where(DeviceRow.identity == str(body.get("device")))
    )
    sang = (
        arch is not None
        and body.get("health") == DeviceHealth.good
        and evidence.get("canary")
        and digests
    )
    if not sang:
        changed = devices.report(session, body, now=now)
        if arch is not None and body.get("health") == DeviceHealth.bad and evidence.get("canary"):
            periods.sang(session, str(body["device"]), CanaryOutcome.failed, now=now)
        return Told(changed)
    key = _Key(str(evidence.get("executor") or ""), str(evidence["canary"]), str(arch))
    held = session.get(
        GoldenRow, (key.executor, key.build, key.arch), with_for_update=True, populate_existing=True
    )  # before any device
    changed = devices.report(session, body, now=now)
    row = session.scalar(
        select(DeviceRow).where(DeviceRow.identity == str(body["device"])).with_for_update()
    )
    assert row is not None
    fresh = _keep(session, row, key, digests, devices.sung_at(body, now))
    if fresh is None or row.health not in COUNTED:
        return Told(changed)
    there = _there(session, key, row)
    finding = golden.judge(_golden(held), [sung for _, _, sung in there])
    assert finding.golden is not None
    if finding.change is not None:
        _settle(session, key, held, finding, now)
    periods.sang(session, row.identity, _outcome(finding.golden, digests), now=now)
    strays = fresh and finding.golden.digest != _digest(digests)
    if strays:
        words = _difference(finding.golden, digests)
        devices.note(
            session,
            row,
            "health",
            row.health,
            row.health,
            ACTOR,
            words,
            _evidence(key, finding.golden, digests),
            now=now,
        )
    alone = (
        finding.golden.second is not None
        and row.identity not in finding.excused
        and row.health == DeviceHealth.good
    )
    asked = _ask(there, row, finding.golden) if strays and alone else ()
    excused = _excuse(session, there, finding, now)
    return Told(changed, _accuse(session, key, there, finding, now), excused, asked)


def _digest(outputs: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in sorted(outputs.items()))


def _outcome(held: Golden, outputs: Mapping[str, str]) -> CanaryOutcome:
    if held.digest != _digest(outputs):
        return CanaryOutcome.differs
    return CanaryOutcome.first if held.second is None else CanaryOutcome.golden


def _keep(
    session: Session, device: DeviceRow, key: _Key, outputs: Mapping[str, str], at: datetime
) -> bool | None:
    """Store a canary: whether its digest is another one than before; None for one that is older
    than what is stored.
    """
    digest = _digest(outputs)
    row = session.get(CanaryRow, (device.id, key.executor, key.build, key.arch))
    if row is None:
        names = {"executor": key.executor, "build": key.build, "arch": key.arch}
        session.add(
            CanaryRow(device_id=device.id, **names, digest=digest, since=at, at=at, accused=False)
        )
        session.flush()
        return True
    if at < row.at:
        return None
    fresh = digest != row.digest
    if fresh:
        row.digest, row.since, row.accused = digest, at, False
    row.at = at
    session.flush()
    return fresh


def _there(session: Session, key: _Key, here: DeviceRow) -> list[tuple[DeviceRow, CanaryRow, Sung]]:
    """The canaries that count: of devices that are there and may work, the one that reports among
    them.
    """
    query = (
        select(DeviceRow, CanaryRow)
        .join(CanaryRow, CanaryRow.device_id == DeviceRow.id)
        .where(
            CanaryRow.executor == key.executor,
            CanaryRow.build == key.build,
            CanaryRow.arch == key.arch,
        )
        .where(DeviceRow.health.in_(COUNTED), DeviceRow.online | (DeviceRow.id == here.id))
        .order_by(DeviceRow.id)
    )
    return [
        (device, canary, Sung(device.identity, device.host, canary.digest, canary.since, canary.at))
        for device, canary in session.execute(query)
    ]


def _golden(row: GoldenRow | None) -> Golden | None:
    return None if row is None else Golden(row.digest, row.first_device, row.second_device)


def _settle(
    session: Session, key: _Key, row: GoldenRow | None, finding: Finding, now: datetime
) -> None:
    """Store what is golden now, and say so in the audit."""
    held = finding.golden
    assert held is not None
    before = None if row is None else row.digest
    confirmed_at = now if held.second is not None else None
    if row is None:
        names = {"executor": key.executor, "build": key.build, "arch": key.arch}
        row = GoldenRow(
            **names,
            digest=held.digest,
            first_device=held.first,
            second_device=held.second,
            learned_at=now,
        )
        session.add(row)
    elif finding.change is Change.replaced:
        row.learned_at = now
    row.digest, row.first_device, row.second_device, row.confirmed_at = (
        held.digest,
        held.first,
        held.second,
        confirmed_at,
    )
    session.flush()
    detail = {
        "digest": held.digest,
        "before": before,
        "devices": [each for each in (held.first, held.second) if each is not None],
    }
    audit.record(
        session, actor=ACTOR, action=f"golden.{finding.change}", subject=key.subject, detail=detail
    )


def _difference(held: Golden, outputs: Mapping[str, str]) -> str:
    right = dict(each.split("=", 1) for each in held.digest.split(" "))
    differ = sorted(name for name in {*right, *outputs} if right.get(name) != outputs.get(name))
    known = (
        f"of {held.first} and {held.second}"
        if held.second is not None
        else f"of {held.first}, which nobody has confirmed"
    )
    return f"the canary's numbers are explained, but the bits of {', '.join(differ)} are not the golden ones {known}"


def _evidence(key: _Key, held: Golden, outputs: Mapping[str, str]) -> dict[str, Any]:
    return {"canary": key.build, "arch": key.arch, "digests": dict(outputs), "golden": held.digest}


def _ask(
    there: list[tuple[DeviceRow, CanaryRow, Sung]], here: DeviceRow, held: Golden
) -> tuple[str, ...]:
    """Want a canary of the other devices of this host that gave the golden digest: has the build
    changed for all, or is it this device?
    """
    found = [
        device
        for device, canary, _ in there
        if device.id != here.id and device.host == here.host and canary.digest == held.digest
    ]
    for device in found:
        device.asked += 1
    return tuple(device.identity for device in found)


def _accuse(
    session: Session,
    key: _Key,
    there: list[tuple[DeviceRow, CanaryRow, Sung]],
    finding: Finding,
    now: datetime,
) -> dict[str, str]:
    """Make the accused suspect, once for each digest: who sets such a device back to good has
    decided.
    """
    assert finding.golden is not None
    rows = {device.identity: canary for device, canary, _ in there}
    done: dict[str, str] = {}
    for each in finding.accused:
        canary = rows[each.device]
        evidence = {
            "canary": key.build,
            "arch": key.arch,
            "digest": canary.digest,
            "golden": finding.golden.digest,
            "witness": each.witness,
        }
        if not canary.accused and devices.suspect(
            session, each.device, each.words, evidence, now=now
        ):
            canary.accused = True
            done[each.device] = each.words
    session.flush()
    return done


def _excuse(
    session: Session,
    there: list[tuple[DeviceRow, CanaryRow, Sung]],
    finding: Finding,
    now: datetime,
) -> tuple[str, ...]:
    """Lift a suspicion whose reason is gone: the digest became golden, or another device gives it
    too.
    """
    done = []
    for device, canary, _ in there:
        if canary.accused and device.identity in finding.excused:
            canary.accused = False
            if device.health == DeviceHealth.suspect:
                reason = (
                    "other devices give the same bits now: the build has changed, not the device"
                )
                devices.change(
                    session, device, DeviceHealth.good, actor=ACTOR, reason=reason, now=now
                )
                done.append(device.identity)
    session.flush()
    return tuple(done)
