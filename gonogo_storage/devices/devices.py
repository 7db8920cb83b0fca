"""Devices: announced by their workers' heartbeats; state times health, and a row for every
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, select
from sqlalchemy.orm import Session

from gonogo_storage.access import audit
from gonogo_storage.db.encoding import storable, timestamp, utcnow
from gonogo_storage.db.ids import is_id, new_id
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
"""Changes of one device that a look at it shows."""
_FACTS = ("host", "name", "arch", "board", "serial", "pci", "driver", "source")


def heard(
    session: Session, facts: Mapping[str, Any], *, worker: str, attempt: str | None, now: datetime
) -> None:
    """A worker's heartbeat names this device: {"device", "host", "name", "arch", "board", "queue",
    "health", ...}.

    The first word of a device makes its row; its health is then what the worker says. Later the
    health changes by `report` only.
    """
    row = _locked(session, facts["device"])
    told = {name: storable(facts.get(name)) for name in _FACTS}
    firmware = dict(facts.get("firmware") or {})
    if row is None:
        health = DeviceHealth.bad if facts.get("health") == DeviceHealth.bad else DeviceHealth.good
        row = DeviceRow(
            id=new_id(),
            identity=str(facts["device"]),
            **told,
            firmware=firmware,
            queues=[facts["queue"]],
            worker=worker,
            attempt_id=attempt if is_id(attempt or "") else None,
            online=True,
            health=health,
            reason=storable(facts.get("reason")),
            drained=False,
            asked=0,
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
        for name, value in (*told.items(), ("firmware", firmware), ("worker", worker))
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
    """A worker's word on its device's health: {"device", "health", "reason", "evidence", "worker"}.
    Returns whether it changed.

    A canary that passed as usual ("routine") makes no row of the history unless the device was
    thought bad. In maintenance only a person's word counts; a suspicion rests on more than one
    canary, and one that passes doesn't lift it: both are noted.
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
            "at": timestamp(sung_at(body, now)),
        }
    if body.get("routine") and after is DeviceHealth.good and row.health != DeviceHealth.bad:
        return False
    keeps = row.health == DeviceHealth.maintenance or (
        row.health == DeviceHealth.suspect and after is DeviceHealth.good
    )
    return change(
        session,
        row,
        DeviceHealth(row.health) if keeps else after,
        actor=f"worker:{body.get('worker')}",
        reason=str(storable(body.get("reason")) or ""),
        evidence={**evidence, "told": after.value},
        now=now,
    )


def sung_at(body: Mapping[str, Any], now: datetime) -> datetime:
    """When a report says that its canary passed, by the clock of the worker's host; `now` where it
    says nothing that is a time.
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
    """The latest temperature, clock, power and firmware of a device; the numbers go into the hour
    that they are of, too.
    """
    row = None if identity is None else _locked(session, identity)
    if row is not None:
        row.telemetry = dict(telemetry)
        periods.measured(session, row.identity, telemetry, now=now or utcnow())


def suspect(
    session: Session, identity: str, reason: str, evidence: Mapping[str, Any], *, now: datetime
) -> bool:
    """Background found that the device, not the tests, is to blame. Only a good device becomes
    suspect; it is asked to test itself.
    """
    row = _locked(session, identity)
    if row is None or row.health != DeviceHealth.good:
        return False
    row.asked += 1
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
    """Set the health and note it: in the device's history, in the audit, and for whoever
    subscribed. Returns whether it is another one.
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
    letter = {
        "device": row.id,
        "version": row.version,
        "before": before.value,
        "after": after.value,
    }
    outbox.add(
        session,
        "device.health_changed",
        f"device.health_changed:{row.id}:{row.version}",
        letter,
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
) -> dict[str, Any] | None:
    """What a person sets: any of health ("good", "maintenance"), drained, test (ask for a canary),
    with a reason. None: no such device.

    Back to good wants a test: a worker that still thinks the device bad runs the canary before it
    takes work again.
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
            row.asked += 1
        if row.health != after:
            change(session, row, after, actor=actor, reason=reason, now=now)
    if fields.get("test"):
        row.asked += 1
    if fields.get("drained") is not None:
        drain(session, row, bool(fields["drained"]), actor=actor, reason=reason, now=now)
    session.flush()
    return look(session, device_id, now=now)


def drain(
    session: Session, row: DeviceRow, drained: bool, *, actor: str, reason: str, now: datetime
) -> bool:
    """Take the device out of work after its current seed, or give it back; noted if it is a
    change.
    """
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
    """The same for every device that this worker was the last to serve; None when there is none."""
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
    """The same for every device of a host: the ids of those that changed; None when no device of
    that host is known.
    """
    return _drain_all(
        session, DeviceRow.host == host, drained, actor=actor, reason=reason, now=now or utcnow()
    )


def _drain_all(
    session: Session,
    those: ColumnElement[bool],
    drained: bool,
    *,
    actor: str,
    reason: str,
    now: datetime,
) -> list[str] | None:
    rows = list(
        session.scalars(select(DeviceRow).where(those).order_by(DeviceRow.id).with_for_update())
    )
    if not rows:
        return None
    return [
        row.id for row in rows if drain(session, row, drained, actor=actor, reason=reason, now=now)
    ]


def orders(session: Session) -> dict[str, dict[str, Any]]:
    """What each device's worker must be told, by identity: {"order": "work" | "drain" |
    "maintenance", "asked": n}.
    """
    rows = session.execute(
        select(DeviceRow.identity, DeviceRow.health, DeviceRow.drained, DeviceRow.asked)
    )
    return {
        row.identity: {
            "order": "maintenance"
            if row.health == DeviceHealth.maintenance
            else "drain"
            if row.drained
            else "work",
            "asked": row.asked,
        }
        for row in rows
    }


def without_work(session: Session) -> set[tuple[str, str]]:
    """(worker, queue) of the devices that take no work, whatever their worker believes until it
    hears of it.
    """
    query = select(DeviceRow.worker, DeviceRow.queues).where(
        DeviceRow.drained | DeviceRow.health.in_(NO_WORK)
    )
    return {
        (worker, queue) for worker, queues in session.execute(query) if worker for queue in queues
    }


def went_offline(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> int:
    """Note every device that has fallen silent; how many."""
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
    """Whether `went_offline` would find one."""
    query = (
        select(DeviceRow.id)
        .where(DeviceRow.online, DeviceRow.heard_at < now - timedelta(seconds=timeout_s))
        .limit(1)
    )
    return session.scalar(query) is not None


def list_(
    session: Session, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> list[dict[str, Any]]:
    """Every device ever heard of, by host and name."""
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    rows = list(session.scalars(select(DeviceRow).order_by(DeviceRow.host, DeviceRow.name)))
    jobs, standing = _jobs(session, rows), _standing(session)
    return [_device(row, limit, jobs, standing) for row in rows]


def look(
    session: Session, device_id: str, *, now: datetime | None = None, timeout_s: float = TIMEOUT_S
) -> dict[str, Any] | None:
    """One device with its history, newest first; None when there is none."""
    row = session.get(DeviceRow, device_id) if is_id(device_id) else None
    if row is None:
        return None
    query = (
        select(DeviceHealthRow)
        .where(DeviceHealthRow.device_id == device_id)
        .order_by(DeviceHealthRow.id.desc())
        .limit(HISTORY)
    )
    history = [
        {
            "at": timestamp(each.at),
            "what": each.what,
            "before": each.before,
            "after": each.after,
            "actor": each.actor,
            "reason": each.reason,
            "evidence": each.evidence,
        }
        for each in session.scalars(query)
    ]
    limit = (now or utcnow()) - timedelta(seconds=timeout_s)
    return {
        **_device(row, limit, _jobs(session, [row]), _standing(session, device_id)),
        "history": history,
    }


def _jobs(session: Session, rows: Sequence[DeviceRow]) -> dict[str, str]:
    """The job of each attempt that these devices run; a gauge is none."""
    wanted = [row.attempt_id for row in rows if row.attempt_id]
    query = select(AttemptRow.id, AttemptRow.job_id).join(JobRow, JobRow.id == AttemptRow.job_id)
    found = (
        session.execute(query.where(AttemptRow.id.in_(wanted), JobRow.kind == JobKind.seeds))
        if wanted
        else ()
    )
    return {row.id: row.job_id for row in found}


def _standing(session: Session, device_id: str | None = None) -> dict[tuple[str, ...], str]:
    """How each device's latest canary stands, by (device's id, executor, build, arch): "golden",
    "first" (not confirmed yet), "differs".
    """
    mine = ("executor", "build", "arch")
    query = select(CanaryRow, GoldenRow).join(
        GoldenRow, and_(*(getattr(GoldenRow, name) == getattr(CanaryRow, name) for name in mine))
    )
    if device_id is not None:
        query = query.where(CanaryRow.device_id == device_id)
    return {
        (canary.device_id, canary.executor, canary.build, canary.arch): (
            "differs"
            if canary.digest != held.digest
            else "golden"
            if held.second_device is not None
            else "first"
        )
        for canary, held in session.execute(query)
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
    """Add a row to the device's history; `what` is "health", "state" (being there) or "drain"."""
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
    row: DeviceRow,
    limit: datetime,
    jobs: Mapping[str, str],
    standing: Mapping[tuple[str, ...], str],
) -> dict[str, Any]:
    sung = row.digests and {
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
    state = (
        DeviceState.offline
        if row.heard_at < limit
        else DeviceState.busy
        if row.attempt_id
        else DeviceState.idle
    )
    return {
        "id": row.id,
        "device": row.identity,
        "host": row.host,
        "name": row.name,
        "arch": row.arch,
        "board": row.board,
        "serial": row.serial,
        "pci": row.pci,
        "firmware": row.firmware,
        "driver": row.driver,
        "source": row.source,
        "queues": row.queues,
        "worker": row.worker,
        "attempt": row.attempt_id,
        "job": jobs.get(row.attempt_id or ""),
        "state": state.value,
        "health": row.health,
        "reason": row.reason,
        "drained": row.drained,
        "version": row.version,
        "telemetry": row.telemetry,
        "canary": sung,
        "first_heard_at": timestamp(row.first_heard_at),
        "heard_at": timestamp(row.heard_at),
        "changed_at": timestamp(row.changed_at),
        "health_at": timestamp(row.health_at or row.changed_at),
    }
