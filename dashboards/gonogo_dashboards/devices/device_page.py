"""Read models of the devices' pages: each device in words, and the history of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import activity, health_timeline, hosts
from gonogo_dashboards.devices.activity import DeviceDays
from gonogo_dashboards.devices.health_timeline import Timeline
from gonogo_dashboards.devices.hosts import HostLine
from gonogo_dashboards.kit import ranges, words
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_storage.access import hosts as stored_hosts
from gonogo_storage.catalogue import entry_names
from gonogo_storage.db.encoding import encode, timestamp
from gonogo_storage.db.states import DeviceState
from gonogo_storage.devices import devices as stored
from gonogo_storage.devices import periods
from gonogo_storage.devices.devices import Device, DeviceChange
from gonogo_storage.devices.periods import Load, Pulse
from gonogo_storage.jobs import device_history
from gonogo_storage.jobs import jobs as stored_jobs
from gonogo_storage.jobs.job import JobSummary

_TELEMETRY = ("temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a")
_FACTS = (("serial", "serial"), ("pci", "PCI address"), ("driver", "driver"), ("source", "source"))
BUNDLE = "fw_bundle_version"
"""tt-smi's name for the firmware as a whole."""
RANGES = ("7d", "30d", "90d")
DEFAULT_RANGE = "30d"
"""The period that a device's page covers."""
RECENT_JOBS = 12
MAX_DIGITS = 12
"""Hex digits of a digest on a page; the JSON version has all of them."""


@dataclass(frozen=True)
class CanaryLine:
    """A device's last canary that passed.

    `standing` compares its bits with those of other devices.
    """

    build: str
    arch: str
    standing: str
    differs: bool
    outputs: Mapping[str, str]
    at: str | None
    age: str


@dataclass(frozen=True)
class DeviceLine:
    """A device in the list."""

    id: str
    url: str
    device: str
    host: str
    name: str
    arch: str
    board: str
    serial: str | None
    firmware: str
    state: str
    state_words: str
    health: str
    health_words: str
    drained: bool
    reason: str | None
    since: str
    since_words: str
    heard_at: str
    heard_words: str
    attempt: str | None
    job: JobLine | None
    canary: CanaryLine | None
    telemetry: tuple[str, ...]
    load: Load
    """The busy fractions of the last hour and of the last day."""


@dataclass(frozen=True)
class DevicesView:
    """The list of devices, by host and name, and the hosts."""

    items: tuple[DeviceLine, ...]
    hosts: tuple[HostLine, ...]
    worker: str
    at: str | None


@dataclass(frozen=True)
class HistoryLine:
    """One change of a device.

    `steps` are the rungs of the recovery ladder; `details` is the rest of the evidence, as names
    and values.
    """

    at: str
    age: str
    what: str
    before: str | None
    after: str
    actor: str
    reason: str | None
    steps: tuple[Mapping[str, Any], ...]
    details: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class RanLine:
    """A recent job of this device, with its number of attempts here."""

    job: JobLine
    attempts: int
    last_at: str | None
    age: str


@dataclass(frozen=True)
class Climb:
    """One attempt to recover the device.

    It has the health before, the outcome of each rung, and the health after.
    """

    at: str
    age: str
    before: str | None
    after: str
    reason: str | None
    rungs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DeviceView:
    """A device's page: its facts, its last weeks, its jobs, and its history, newest first."""

    device: DeviceLine
    facts: tuple[tuple[str, str], ...]
    timeline: Timeline
    days: DeviceDays
    jobs: tuple[RanLine, ...]
    climbs: tuple[Climb, ...]
    """The recovery attempts in the history."""
    history: tuple[HistoryLine, ...]
    whole: bool
    """True where the history goes back to the device's first day."""
    range: ranges.Range
    change_url: str
    before: Mapping[str, object]
    """The fields that an undo restores."""
    at: str | None


def devices(session: Session, now: datetime, timeout_s: float) -> DevicesView:
    """Return all devices; one without a heartbeat for `timeout_s` is offline."""
    items = lines(session, periods.pulse(session, now=now), now, timeout_s)
    worker = "gonogo worker --executor emulator"
    return DevicesView(items, hosts.lines(session, now), worker, timestamp(now))


def lines(
    session: Session, pulse: Pulse, now: datetime, timeout_s: float
) -> tuple[DeviceLine, ...]:
    """Return the lines of all devices from a pulse that was read already."""
    records = stored.list_(session, now=now, timeout_s=timeout_s).items
    jobs = stored_jobs.many(session, [record.job for record in records if record.job])
    return tuple(_line(record, jobs, pulse, now) for record in records)


def device(
    session: Session,
    device_id: str,
    now: datetime,
    timeout_s: float,
    query: Mapping[str, str] | None = None,
) -> DeviceView | None:
    """Return one device; None where there is no such device. The query may name a time range."""
    record = stored.look(session, device_id, now=now, timeout_s=timeout_s)
    if record is None:
        return None
    jobs = stored_jobs.many(session, [record.job] if record.job else [])
    line = _line(record, jobs, periods.pulse(session, now=now), now)
    facts = [("host", line.host), ("architecture, board", f"{line.arch}, {line.board}")]
    facts += [
        (label, str(getattr(record, name))) for name, label in _FACTS if getattr(record, name)
    ]
    for name, value in sorted(record.firmware.items()):
        facts.append(
            ("firmware" if name == BUNDLE else f"firmware: {name.replace('_', ' ')}", str(value))
        )
    facts += [("queues", ", ".join(record.queues)), ("worker", record.worker or "none")]
    facts += [("first heartbeat", _at(record.first_heard_at))]
    facts += hosts.facts(stored_hosts.get(session, line.host), now)
    history = tuple(_history(entry, now) for entry in record.history)
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.device(device_id, {ranges.PARAMETER: value}),
        default=DEFAULT_RANGE,
        allowed=RANGES,
    )
    since = (period.since or now).replace(
        minute=0, second=0, microsecond=0
    )  # the same for an hour, so that charts and the places of keys don't move
    changes, all_of_them = device_history.changes(session, device_id, since=since)
    silent = record.heard_at if line.state == DeviceState.offline else None
    began = max(since, record.first_heard_at)
    ran = device_history.recent_jobs(session, line.device, limit=RECENT_JOBS)
    entries = entry_names.latest(session, {ran_job.job.test_key for ran_job in ran})
    return DeviceView(
        device=line,
        facts=tuple(facts),
        timeline=health_timeline.timeline(
            changes, since, now, silent_since=silent, whole=all_of_them
        ),
        days=activity.days(
            periods.hours(session, line.device, since=since), since, now, began=began
        ),
        jobs=tuple(_ran(ran_job, now, entries) for ran_job in ran),
        climbs=tuple(_climb(entry) for entry in history if entry.steps),
        history=history,
        whole=len(history) < stored.HISTORY,
        range=period,
        change_url=urls.device_api(device_id),
        before={"drained": line.drained, "reason": "undone on the page"},
        at=timestamp(now),
    )


def _ran(ran_job: device_history.RanJob, now: datetime, entries: Mapping[str, str]) -> RanLine:
    last_at = timestamp(ran_job.last_at)
    line = job_line(ran_job.job, now, entries.get(ran_job.job.test_key))
    return RanLine(line, ran_job.attempts, last_at, words.since(last_at, now))


def _climb(entry: HistoryLine) -> Climb:
    rungs = tuple(
        (str(step.get("rung", "?")), str(step.get("outcome", ""))) for step in entry.steps
    )
    return Climb(entry.at, entry.age, entry.before, entry.after, entry.reason, rungs)


def _line(
    record: Device, jobs: Mapping[str, JobSummary], pulse: Pulse, now: datetime
) -> DeviceLine:
    state, health = record.state, record.health
    job = jobs.get(record.job or "") if state is DeviceState.busy else None
    firmware = record.firmware.get(BUNDLE) or (record.telemetry or {}).get("firmware")
    return DeviceLine(
        id=record.id,
        url=urls.device(record.id),
        **{
            name: getattr(record, name)
            for name in (
                "device",
                "host",
                "name",
                "arch",
                "board",
                "serial",
                "attempt",
                "drained",
                "reason",
            )
        },
        firmware=str(firmware or ""),
        state=state.value,
        state_words=words.DEVICE_STATES[state],
        health=health.value,
        health_words=words.DEVICE_HEALTHS[health],
        since=timestamp(record.health_at),
        heard_at=timestamp(record.heard_at),
        since_words=_age(record.health_at, now),
        heard_words=_age(record.heard_at, now),
        job=None if job is None else job_line(job, now),
        canary=_canary(record.canary, now),
        telemetry=_telemetry(record.telemetry or {}),
        load=pulse.load(record.device),
    )


def _canary(result: Mapping[str, Any] | None, now: datetime) -> CanaryLine | None:
    if not result:
        return None
    standing = result.get("golden")
    return CanaryLine(
        build=str(result["build"]),
        arch=str(result["arch"]),
        standing=words.STANDINGS.get(str(standing), ""),
        differs=standing == "differs",
        outputs=dict(result["outputs"]),
        at=result.get("at"),
        age=_age(datetime.fromisoformat(result["at"]), now) if result.get("at") else "",
    )


def _telemetry(readings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{words.number(readings[name])} {words.quantity(name)[1]}"
        for name in _TELEMETRY
        if isinstance(readings.get(name), int | float)
    )


def _history(entry: DeviceChange, now: datetime) -> HistoryLine:
    evidence = dict(entry.evidence or {})
    steps = evidence.pop("steps", None)
    return HistoryLine(
        at=timestamp(entry.at),
        **{name: getattr(entry, name) for name in ("what", "before", "after", "actor", "reason")},
        age=_age(entry.at, now),
        steps=tuple(step for step in steps if isinstance(step, Mapping))
        if isinstance(steps, list)
        else (),
        details=tuple(
            (name.replace("_", " "), _plain(value))
            for name, value in evidence.items()
            if value not in (None, {}, [])
        ),
    )


def _plain(value: Any) -> str:
    """Return a value of the evidence as text: digests shortened, everything else as JSON."""
    if isinstance(value, Mapping) and all(isinstance(member, str) for member in value.values()):
        return ", ".join(f"{name} {member[:MAX_DIGITS]}" for name, member in value.items())
    return value if isinstance(value, str) else encode(value)


def _age(moment: datetime, now: datetime) -> str:
    return words.ago((now - moment).total_seconds())


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"
