"""Workers' messages about their devices: heartbeats, reports on health, telemetry, silence."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.devices import periods
from gonogo_service.devices.changes import change, has_room, locked, note
from gonogo_service.devices.model import DeviceHealthRow, DeviceRow, PassedCanary, Telemetry
from gonogo_service.devices.store import TIMEOUT_S
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import floor, is_id, new_id
from gonogo_service.kit.database.records import if_readable
from gonogo_service.kit.database.states import DeviceHealth, DeviceState

MAX_DEVICES = 256
"""The devices that one host may announce: a host with a valid token must not fill the database."""
MAX_QUEUES = 16
"""The queues of a device: one for each executor that serves it."""
BUNDLE = "fw_bundle_version"
"""tt-smi's name for the firmware as a whole."""
MAX_VERSION = 200
MAX_REPLAY = 500
"""Characters of what a canary says about its program."""
FIRMWARE_EVERY = timedelta(minutes=10)
"""A change of the firmware so soon after another one is not recorded: flashing takes longer."""
HELD_BACK = timedelta(minutes=5)
"""A worker's device that is bad for so long here, and good there, recovered too often before."""
_FACTS = ("host", "name", "arch", "board", "serial", "pci", "driver", "source")


def kind_of(session: Session, device: str) -> tuple[str, str] | None:
    """Return the architecture and the board of a device; None for one that nobody announced."""
    kind = select(DeviceRow.arch, DeviceRow.board).where(DeviceRow.device == device)
    row = session.execute(kind).one_or_none()
    return None if row is None else (row.arch, row.board)


def excess(session: Session, host: str, devices: Collection[str]) -> str | None:
    """Return, in words, what is too much of a host's heartbeat; None for most of them."""
    known = select(DeviceRow.device).where(DeviceRow.device.in_(devices))
    new = set(devices) - set(session.scalars(known))
    of_host = select(func.count()).where(DeviceRow.host == host)
    count = len(new) + (session.scalar(of_host) or 0) if new else 0
    return (
        f"{host} would have {count} devices; allowed: {MAX_DEVICES}"
        if count > MAX_DEVICES
        else None
    )


def heard(
    session: Session,
    facts: Mapping[str, Any],
    *,
    worker: str,
    attempt: str | None,
    queues: Sequence[str] = (),
    now: datetime,
) -> None:
    """Record a heartbeat's facts: {"device", "host", "name", "arch", "board", "queue", ...}.

    queues: all queues of the device in this heartbeat, if it has several; the queues of its other
    workers stay. The first heartbeat of a device creates its row with the health that the worker
    reports. Later `report` changes the health, and so does a heartbeat that ends a recovery, which
    `changes.change` had held back.
    """
    row, actor = locked(session, facts["device"]), f"worker:{worker}"
    values: dict[str, Any] = {name: storable(facts.get(name)) for name in _FACTS}
    values |= {
        "firmware": dict(facts.get("firmware") or {}),
        "queues": sorted({facts["queue"], *queues})[:MAX_QUEUES],
        "worker": worker,
        "attempt": attempt if is_id(attempt or "") else None,
    }
    if row is None:
        health = DeviceHealth.bad if facts.get("health") == DeviceHealth.bad else DeviceHealth.good
        row = DeviceRow(
            id=new_id(),
            device=str(facts["device"]),
            **values,
            online=True,
            health=health,
            reason=storable(facts.get("reason")),
            drained=False,
            test_requests=0,
            version=1,
            **dict.fromkeys(("first_heard_at", "heard_at", "changed_at", "health_at"), now),
        )
        session.add(row)
        session.flush()
        note(session, row, "health", None, health, actor, "announced", now=now)
        return
    if row.worker != worker:  # another worker may serve the device, too
        served = values["queues"]
        others = [name for name in row.queues if name not in served]
        values["queues"] = sorted([*served, *others[: MAX_QUEUES - len(served)]])
    _note_firmware(session, row, values["firmware"], actor, now)
    for name, value in values.items():
        if getattr(row, name) != value:
            setattr(row, name, value)
    row.heard_at = max(now, row.heard_at)
    if not row.online:
        row.online = True
        if has_room(session, row, "state", now=now):
            note(session, row, "state", DeviceState.offline, "online", actor, None, now=now)
    was_held_back = facts.get("health") == DeviceHealth.good and now - row.health_at > HELD_BACK
    # another worker of the device may never have run its canary
    passed_at = None if row.canary is None else row.canary.at
    has_passed = passed_at is None or passed_at > row.health_at
    if row.health is DeviceHealth.bad and was_held_back and has_passed:
        change(session, row, DeviceHealth.good, actor, "its worker found it good", now=now)
    session.flush()


def _note_firmware(
    session: Session, row: DeviceRow, firmware: Mapping[str, Any], actor: str, now: datetime
) -> None:
    """Record in the device's history that it has other firmware."""
    before, after = version_of(row.firmware), version_of(firmware)
    if not before or not after or before == after:
        return
    history = DeviceHealthRow
    lately = select(history.id).where(
        history.device_id == row.id,
        history.what == "firmware",
        history.id >= floor(now - FIRMWARE_EVERY),
    )
    if session.scalar(lately.limit(1)) is None:
        note(session, row, "firmware", before, after, actor, None, now=now)


def version_of(firmware: Mapping[str, Any]) -> str:
    """Return the version of a chip's firmware: of the bundle, else of each part; "" for none."""
    parts = ", ".join(f"{name} {value}" for name, value in sorted(firmware.items()))
    return str(storable(firmware.get(BUNDLE) or parts))[:MAX_VERSION]


def report(session: Session, body: Mapping[str, Any], *, now: datetime) -> bool:
    """Record a worker's report on its device's health; return whether the health changed.

    The report is {"device", "health", "reason", "evidence", "worker"}. A routine canary that passes
    adds no row to the history unless the device was bad. Two reports are recorded without changing
    the health: any report in maintenance, which only a person ends, and a passed canary of a
    suspect device, because a suspicion rests on more than one canary.
    """
    row = locked(session, str(body.get("device")))
    if row is None:
        return False
    after = DeviceHealth(str(body["health"]))
    passed = after is DeviceHealth.good
    evidence = dict(body.get("evidence") or {})
    if passed and evidence.get("digests"):
        row.canary = PassedCanary(
            build=str(evidence.get("canary") or ""),
            arch=row.arch,
            outputs=evidence["digests"],
            executor=str(evidence.get("executor") or ""),
            replay=str(storable(evidence.get("replay") or ""))[:MAX_REPLAY],
            at=now,
        )
    if body.get("routine") and passed and row.health is not DeviceHealth.bad:
        return False
    unchanged = row.health is DeviceHealth.maintenance or (
        row.health is DeviceHealth.suspect and passed
    )
    return change(
        session,
        row,
        row.health if unchanged else after,
        f"worker:{body.get('worker')}",
        str(storable(body.get("reason")) or ""),
        {**evidence, "reported": after.value},
        now=now,
    )


def measured(
    session: Session,
    device: str | None,
    telemetry: Mapping[str, Any],
    *,
    now: datetime | None = None,
) -> None:
    """Store the latest temperature, clock, power and firmware of a device.

    The numbers are also added to the sums of their hour.
    """
    row = None if device is None else locked(session, device)
    if row is not None:
        row.telemetry = if_readable(Telemetry, telemetry)
        periods.record_telemetry(session, row.device, telemetry, now=now or utcnow())


def went_offline(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> int:
    """Mark devices without a recent heartbeat as offline; return how many."""
    silent = DeviceRow.heard_at < now - timedelta(seconds=timeout_s)
    query = select(DeviceRow).where(DeviceRow.online, silent).order_by(DeviceRow.id)
    rows = session.scalars(query.with_for_update()).all()
    for row in rows:
        row.online = False
        if has_room(session, row, "state", now=now):
            reason, gone = f"no heartbeat for {timeout_s:g} s", DeviceState.offline
            note(session, row, "state", "online", gone, "background", reason, now=now)
    return len(rows)


def silent(session: Session, *, now: datetime, timeout_s: float = TIMEOUT_S) -> bool:
    """Return whether `went_offline` would mark a device."""
    late = DeviceRow.heard_at < now - timedelta(seconds=timeout_s)
    return session.scalar(select(DeviceRow.id).where(DeviceRow.online, late).limit(1)) is not None
