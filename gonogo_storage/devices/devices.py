"""Devices: their state, health and orders, and the history of changes.

Workers' heartbeats announce them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeVar

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from gonogo_storage.access import audit
from gonogo_storage.db.encoding import storable, timestamp, utcnow
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.paging import Page
from gonogo_storage.db.records import from_object
from gonogo_storage.db.states import DeviceHealth, DeviceState, JobKind
from gonogo_storage.devices import periods
from gonogo_storage.messages import outbox
from gonogo_storage.tables import (
    AttemptRow,
    CanaryRow,
    DeviceHealthRow,
    DeviceRow,
    GoldenRow,
    JobRow,
)

TIMEOUT_S = 30.0
NO_WORK = (DeviceHealth.bad.value, DeviceHealth.maintenance.value)
HISTORY = 200
"""Maximum number of changes that `look` returns."""
_FACTS = ("host", "name", "arch", "board", "serial", "pci", "driver", "source")


@dataclass(frozen=True)
class Device:
    """A device; `device` is its name among all hosts, as results store it."""

    id: str
    device: str
    host: str
    name: str
    arch: str
    board: str
    serial: str | None
    pci: str | None
    firmware: dict[str, Any]
    driver: str | None
    source: str
    queues: list[str]
    worker: str | None
    attempt: str | None
    job: str | None
    state: DeviceState
    health: DeviceHealth
    reason: str | None
    drained: bool
    version: int
    telemetry: dict[str, Any] | None
    canary: dict[str, Any] | None
    """The last one that passed: build, arch, digests of the outputs, time; `golden` is `golden`,
    `first` (unconfirmed) or `differs`"""
    first_heard_at: datetime
    heard_at: datetime
    changed_at: datetime
    health_at: datetime


@dataclass(frozen=True)
class DeviceChange:
    """An entry of a device's history: of its health, its state, or a drain."""

    at: datetime
    what: Literal["health", "state", "drain"]
    before: str | None
    after: str
    actor: str
    reason: str | None
    evidence: dict[str, Any] | None


@dataclass(frozen=True)
class DeviceWithHistory(Device):
    """A device with its history, newest first."""

    history: list[DeviceChange]


AnyDevice = TypeVar("AnyDevice", bound=Device)


def heard(
    session: Session, facts: Mapping[str, Any], *, worker: str, attempt: str | None, now: datetime
) -> None:
    """Record a heartbeat's facts: {"device", "host", "name", "arch", "board", "queue", ...}.

    The first heartbeat of a device creates its row, with the health that the worker reports. Later
    only `report` changes the health.
    """
    row = _locked(session, facts["device"])
    values = {name: storable(facts.get(name)) for name in _FACTS}
    firmware = dict(facts.get("firmware") or {})
    if row is None:
        health = DeviceHealth.bad if facts.get("health") == DeviceHealth.bad else DeviceHealth.good
        row = DeviceRow(
            id=new_id(),
            identity=str(facts["device"]),
            **values,
            firmware=firmware,
            queues=[facts["queue"]],
            worker=worker,
            attempt_id=attempt if is_id(attempt or "") else None,
            online=True,
            health=health,
            reason=storable(facts.get("reason")),
            drained=False,
            test_requests=0,
            version=1,
            first_heard_at=now,
            heard_at=now,
            changed_at=now,
            health_at=now,
        )
        session.add(row)
        session.flush()
        note(session, row, "health", None, health, f"worker:{worker}", "announced", now=now)
        return
    changed = {
        name: value
        for name, value in (*values.items(), ("firmware", firmware), ("worker", worker))
        if getattr(row, name) != value
    }
    for name, value in changed.items():
        setattr(row, name, value)
    if facts["queue"] not in row.queues:
        row.queues = sorted({*row.queues, facts["queue"]})
    row.attempt_id = attempt if is_id(attempt or "") else None
    row.heard_at = max(now, row.heard_at)
    if not row.online:
        row.online = True
        note(
            session, row, "state", DeviceState.offline, "online", f"worker:{worker}", None, now=now
        )
    session.flush()


def report(session: Session, body: Mapping[str, Any], *, now: datetime) -> bool:
    """Record a worker's report on its device's health; return whether the health changed.

    The report is {"device", "health", "reason", "evidence", "worker"}. A routine canary that passes
    adds no row to the history unless the device was bad. Two reports are recorded without changing
    the health: any report in maintenance, which only a person ends, and a passed canary of a
    suspect device, because a suspicion rests on more than one canary.
    """
    row = _locked(session, str(body.get("device")))
    if row is None:
        return False
    after = DeviceHealth(str(body["health"]))
    evidence = dict(body.get("evidence") or {})
    digests = evidence.get("digests")
    if after is DeviceHealth.good and digests:
        row.digests = {
            "executor": evidence.get("executor") or "",
            "build": evidence.get("canary"),
            "arch": row.arch,
            "outputs": digests,
            "at": timestamp(canary_time(body, now)),
        }
    if body.get("routine") and after is DeviceHealth.good and row.health != DeviceHealth.bad:
        return False
    unchanged = row.health == DeviceHealth.maintenance or (
        row.health == DeviceHealth.suspect and after is DeviceHealth.good
    )
    return change(
        session,
        row,
        DeviceHealth(row.health) if unchanged else after,
        actor=f"worker:{body.get('worker')}",
        reason=str(storable(body.get("reason")) or ""),
        evidence={**evidence, "told": after.value},
        now=now,
    )


def canary_time(body: Mapping[str, Any], now: datetime) -> datetime:
    """Return when a report's canary passed, by the clock of the worker's host.

    It is `now` if the report has no valid time.
    """
    try:
        return datetime.fromtimestamp(float(body["at"]), UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return now


def measured(
    session: Session,
    identity: str | None,
    telemetry: Mapping[str, Any],
    *,
    now: datetime | None = None,
) -> None:
    """Store the latest temperature, clock, power and firmware of a device.

    The numbers are also added to the sums of their hour.
    """
    row = None if identity is None else _locked(session, identity)
    if row is not None:
        row.telemetry = dict(telemetry)
        periods.record_telemetry(session, row.identity, telemetry, now=now or utcnow())


def suspect(
    session: Session, identity: str, reason: str, evidence: Mapping[str, Any], *, now: datetime
) -> bool:
    """Mark a good device as suspect and request a canary; return whether it changed.

    The background calls it when the device, not the tests, seems to be at fault.
    """
    row = _locked(session, identity)
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
    now: datetime,
) -> bool:
    """Set the health; return whether it changed.

    The change goes into the device's history, the audit log, and a message to subscribers.
    """
    before = DeviceHealth(row.health)
    note(session, row, "health", before, after, actor, reason, evidence, now=now)
    if before is after:
        return False
    row.health, row.reason, row.changed_at, row.health_at = after.value, reason, now, now
    row.version += 1
    session.flush()
    detail = {
        "device": row.identity,
        "before": before.value,
        "after": after.value,
        "reason": reason,
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
    return True


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
            change(session, row, after, actor=actor, reason=reason, now=now)
    if fields.get("test"):
        row.test_requests += 1
    if fields.get("drained") is not None:
        drain(session, row, bool(fields["drained"]), actor=actor, reason=reason, now=now)
    session.flush()
    return look(session, device_id, now=now)


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
    now: datetime | None = None,
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
        now=now or utcnow(),
    )


def drain_host(
    session: Session,
    host: str,
    drained: bool,
    *,
    actor: str,
    reason: str,
    now: datetime | None = None,
) -> list[str] | None:
    """Drain or undrain every device of a host.

    Returns the ids of the devices that changed; None if the host has no device.
    """
    return _drain_all(
        session, DeviceRow.host == host, drained, actor=actor, reason=reason, now=now or utcnow()
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


def orders(session: Session) -> dict[str, dict[str, Any]]:
    """Return the orders for each device's worker, by the device's identity.

    An order is {"order": "work" | "drain" | "maintenance", "asked": number of requested canaries}.
    """
    rows = session.execute(
        select(DeviceRow.identity, DeviceRow.health, DeviceRow.drained, DeviceRow.test_requests)
    )
    return {
        row.identity: {
            "order": "maintenance"
            if row.health == DeviceHealth.maintenance
            else "drain"
            if row.drained
            else "work",
            "asked": row.test_requests,
        }
        for row in rows
    }


def without_work(session: Session) -> set[tuple[str, str]]:
    """Return (worker, queue) of devices that get no work; their worker may not know it yet."""
    query = select(DeviceRow.worker, DeviceRow.queues).where(
        DeviceRow.drained | DeviceRow.health.in_(NO_WORK)
    )
    return {
        (worker, queue) for worker, queues in session.execute(query) if worker for queue in queues
    }


def went_offline(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> int:
    """Mark devices without a recent heartbeat as offline; return how many."""
    silent = DeviceRow.heard_at < now - timedelta(seconds=timeout_s)
    rows = list(
        session.scalars(
            select(DeviceRow)
            .where(DeviceRow.online, silent)
            .order_by(DeviceRow.id)
            .with_for_update()
        )
    )
    for row in rows:
        row.online = False
        note(
            session,
            row,
            "state",
            "online",
            DeviceState.offline,
            "background",
            f"no heartbeat for {timeout_s:g} s",
            now=now,
        )
    return len(rows)


def silent(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether `went_offline` would mark a device."""
    query = (
        select(DeviceRow.id)
        .where(DeviceRow.online, DeviceRow.heard_at < now - timedelta(seconds=timeout_s))
        .limit(1)
    )
    return session.scalar(query) is not None


def list_(
    session: Session, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> Page[Device]:
    """Return all devices, ordered by host and name."""
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    rows = list(session.scalars(select(DeviceRow).order_by(DeviceRow.host, DeviceRow.name)))
    jobs, standing = _jobs(session, rows), _standing(session)
    return Page(tuple(_device(Device, row, limit, jobs, standing) for row in rows), None)


def look(
    session: Session, device_id: str, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> DeviceWithHistory | None:
    """Return a device with its history, newest first; None if it doesn't exist."""
    row = session.get(DeviceRow, device_id) if is_id(device_id) else None
    if row is None:
        return None
    query = (
        select(DeviceHealthRow)
        .where(DeviceHealthRow.device_id == device_id)
        .order_by(DeviceHealthRow.id.desc())
        .limit(HISTORY)
    )
    return _device(
        DeviceWithHistory,
        row,
        (now or utcnow()) - timedelta(seconds=timeout_s),
        _jobs(session, [row]),
        _standing(session, device_id),
        history=[from_object(DeviceChange, entry) for entry in session.scalars(query)],
    )


def _jobs(session: Session, rows: Sequence[DeviceRow]) -> dict[str, str]:
    """Return {attempt: job} of the attempts that run on these devices, without gauges."""
    attempt_ids = [row.attempt_id for row in rows if row.attempt_id]
    query = select(AttemptRow.id, AttemptRow.job_id).join(JobRow, JobRow.id == AttemptRow.job_id)
    if not attempt_ids:
        return {}
    query = query.where(AttemptRow.id.in_(attempt_ids), JobRow.kind == JobKind.seeds)
    return {row.id: row.job_id for row in session.execute(query)}


def _standing(session: Session, device_id: str | None = None) -> dict[tuple[str, ...], str]:
    """Return the status of each device's latest canary by (device id, executor, build, arch).

    It is "golden", "first" (not confirmed yet) or "differs".
    """
    key_columns = ("executor", "build", "arch")
    same_key = and_(*(getattr(GoldenRow, name) == getattr(CanaryRow, name) for name in key_columns))
    query = select(CanaryRow, GoldenRow).join(GoldenRow, same_key)
    if device_id is not None:
        query = query.where(CanaryRow.device_id == device_id)
    return {
        (canary.device_id, canary.executor, canary.build, canary.arch): (
            "differs"
            if canary.digest != golden.digest
            else "golden"
            if golden.second_device is not None
            else "first"
        )
        for canary, golden in session.execute(query)
    }


def _locked(session: Session, identity: str) -> DeviceRow | None:
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
    """Add a row to the device's history; `what` is "health", "state" (online) or "drain"."""
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


def _device(
    shape: type[AnyDevice],
    row: DeviceRow,
    limit: datetime,
    jobs: Mapping[str, str],
    standing: Mapping[tuple[str, ...], str],
    **others: Any,
) -> AnyDevice:
    """Return a device; one that was not heard since `limit` is offline."""
    canary = row.digests and {
        **row.digests,
        "golden": standing.get(
            (
                row.id,
                str(row.digests.get("executor", "")),
                str(row.digests.get("build")),
                str(row.digests.get("arch")),
            )
        ),
    }
    state = DeviceState.busy if row.attempt_id else DeviceState.idle
    return from_object(
        shape,
        row,
        device=row.identity,
        attempt=row.attempt_id,
        job=jobs.get(row.attempt_id or ""),
        state=DeviceState.offline if row.heard_at < limit else state,
        health=DeviceHealth(row.health),
        canary=canary,
        health_at=row.health_at or row.changed_at,
        **others,
    )
