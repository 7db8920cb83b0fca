"""Read models of the devices' pages: each device in words, and the history of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import activity, health_timeline, hosts
from gonogo_dashboards.devices.activity import DeviceDays
from gonogo_dashboards.devices.health_timeline import Timeline
from gonogo_dashboards.devices.hosts import HostLine, InvitationLine
from gonogo_dashboards.kit import axis_events, ranges, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.builds import entry_names
from gonogo_service.devices import history as device_history
from gonogo_service.devices import periods
from gonogo_service.devices import store as stored
from gonogo_service.devices.heartbeats import BUNDLE
from gonogo_service.devices.model import DeviceHealthRow, DeviceRow, PassedCanary, Telemetry
from gonogo_service.devices.periods import Load, Pulse, Work
from gonogo_service.hosts import store as stored_hosts
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.jobs.job import JobSummary
from gonogo_service.kit.database.encoding import encode, timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import DeviceHealth, DeviceState
from gonogo_service.tests import annotations as axis_changes

_TELEMETRY = ("temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a")
_FACTS = (("serial", "serial"), ("pci", "PCI address"), ("driver", "driver"), ("source", "source"))
WORK_RANGES = ("1d", "7d", "30d")
"""Time ranges of the list; its first is the default."""
RANGES = ("7d", "30d", "90d")
"""Time ranges of a device's page."""
SHORTEST, SHORTEST_HEALTH = timedelta(days=1), timedelta(hours=1)
"""The shortest time that a device's charts cover."""
DEFAULT_RANGE = "30d"
"""The period that a device's page covers."""
RECENT_JOBS = 12
MAX_DIGITS = 12
"""Hex digits of a digest on a page; the JSON version has all of them."""


@dataclass(frozen=True)
class CanaryLine:
    """A device's last canary that passed.

    `standing` compares its bits with those of other devices. `replay` says how its program replays
    them.
    """

    build: str
    arch: str
    standing: str
    differs: bool
    outputs: Mapping[str, str]
    replay: str
    at: str | None
    age: str


@dataclass(frozen=True)
class WorkLine:
    """The work of a device in the list's time range, and how often it turned sick."""

    busy: float
    seeds: int
    attempts: int
    turns: str
    """ "bad 2 times, suspect once"; "" for never."""


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
    lasting: str
    """How long its health has been so: "for 2 d"."""
    heard_at: str
    heard_words: str
    attempt: str | None
    job: JobLine | None
    canary: CanaryLine | None
    telemetry: tuple[str, ...]
    load: Load
    """The busy fractions of the last hour and of the last day."""
    work: WorkLine | None = None
    """In a list: what it did in its time range."""


@dataclass(frozen=True)
class DevicesView:
    """The list of devices, by host and name, the hosts, and their open invitations."""

    items: tuple[DeviceLine, ...]
    hosts: tuple[HostLine, ...]
    invitations: tuple[InvitationLine, ...]
    worker: str
    range: ranges.Range
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
    events: tuple[AxisEvent, ...]
    """The changes on its axes of time: their places are milliseconds."""
    day_events: tuple[AxisEvent, ...]
    at: str | None


def devices(
    session: Session, now: datetime, timeout_s: float, query: Mapping[str, str] | None = None
) -> DevicesView:
    """Return all devices; one without a heartbeat for `timeout_s` is offline.

    The query may name the time range of their work.
    """
    items = lines(session, periods.pulse(session, now=now), now, timeout_s)
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.devices({ranges.PARAMETER: value}),
        default=WORK_RANGES[0],
        allowed=WORK_RANGES,
    )
    since = period.since or now
    window = now - since
    done, turns = periods.work(session, since=since), device_history.turned_sick(session, since)
    worker = "gonogo worker --executor emulator"
    return DevicesView(
        tuple(
            replace(line, work=_work(line, done.get(line.device), turns.get(line.id, {}), window))
            for line in items
        ),
        hosts.lines(session, now),
        hosts.invited(session, now),
        worker,
        period,
        timestamp(now),
    )


def _work(
    line: DeviceLine, done: Work | None, turns: Mapping[str, int], window: timedelta
) -> WorkLine:
    """Return the work of a device; what it runs now is in the load of its last day only."""
    done = done or Work()
    busy_s = max(done.busy_s, line.load.day * timedelta(days=1).total_seconds())
    return WorkLine(
        min(1.0, busy_s / window.total_seconds()),
        done.seeds,
        done.attempts,
        ", ".join(
            f"{health} {'once' if number == 1 else f'{number:,} times'}"
            for health, number in sorted(turns.items())
        ),
    )


def lines(
    session: Session, pulse: Pulse, now: datetime, timeout_s: float
) -> tuple[DeviceLine, ...]:
    """Return the lines of all devices from a pulse that was read already."""
    records = stored.list_(session, now=now, timeout_s=timeout_s)
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
    history = tuple(_history(entry, now) for entry in stored.history(session, device_id))
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.device(device_id, {ranges.PARAMETER: value}),
        default=DEFAULT_RANGE,
        allowed=RANGES,
    )
    first = min(record.first_heard_at, now - SHORTEST)  # no axis begins long before the device
    since = max(period.since or now, first).replace(
        minute=0, second=0, microsecond=0
    )  # the same for an hour, so that charts and the places of keys don't move
    known = min(record.first_heard_at, now - SHORTEST_HEALTH)
    health_since = max(since, known.replace(minute=0, second=0, microsecond=0))
    changes, all_of_them = device_history.changes(session, device_id, since=health_since)
    silent = record.heard_at if line.state == DeviceState.offline else None
    began = max(since, record.first_heard_at)
    ran = device_history.recent_jobs(session, line.device, limit=RECENT_JOBS)
    entries = entry_names.latest(session, {ran_job.job.test_key for ran_job in ran})
    days = activity.days(periods.hours(session, line.device, since=since), since, now, began=began)
    dated = axis_changes.since(session, began, device_id)
    return DeviceView(
        device=line,
        facts=tuple(facts),
        timeline=health_timeline.timeline(
            changes, health_since, now, silent_since=silent, whole=all_of_them
        ),
        days=days,
        jobs=tuple(_ran(ran_job, now, entries) for ran_job in ran),
        climbs=tuple(_climb(entry) for entry in history if entry.steps),
        history=history,
        whole=len(history) < stored.HISTORY,
        range=period,
        change_url=urls.device_api(device_id),
        before=_before(line),
        events=axis_events.of_time(dated, now),
        day_events=axis_events.of_days(dated, [day.day for day in days.days]),
        at=timestamp(now),
    )


def _before(line: DeviceLine) -> dict[str, object]:
    """Return the fields that an undo restores; nobody can set a device to suspect or bad."""
    settable = line.health in (DeviceHealth.good, DeviceHealth.maintenance)
    health = {"health": line.health} if settable else {}
    return {"drained": line.drained, **health, "reason": "undone on the page"}


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
    record: DeviceRow, jobs: Mapping[str, JobSummary], pulse: Pulse, now: datetime
) -> DeviceLine:
    state, health = record.state, record.health
    job = jobs.get(record.job or "") if state is DeviceState.busy else None
    firmware = record.firmware.get(BUNDLE) or (record.telemetry and record.telemetry.firmware)
    return from_object(
        DeviceLine,
        record,
        url=urls.device(record.id),
        firmware=str(firmware or ""),
        state=state.value,
        state_words=words.DEVICE_STATES[state],
        health=health.value,
        health_words=words.DEVICE_HEALTHS[health],
        since=timestamp(record.health_at),
        heard_at=timestamp(record.heard_at),
        lasting=words.lasting(record.health_at, now),
        heard_words=_age(record.heard_at, now),
        job=None if job is None else job_line(job, now),
        canary=_canary(record.canary, now),
        telemetry=_telemetry(record.telemetry or Telemetry()),
        load=pulse.load(record.device),
        work=None,
    )


def _canary(canary: PassedCanary | None, now: datetime) -> CanaryLine | None:
    if canary is None:
        return None
    return CanaryLine(
        build=canary.build,
        arch=canary.arch,
        standing=words.STANDINGS.get(canary.golden or "", ""),
        differs=canary.golden == "differs",
        outputs=canary.outputs,
        replay=canary.replay,
        at=timestamp(canary.at),
        age=_age(canary.at, now) if canary.at else "",
    )


def _telemetry(readings: Telemetry) -> tuple[str, ...]:
    return tuple(
        f"{words.number(reading)} {words.quantity(name)[1]}"
        for name in _TELEMETRY
        if (reading := getattr(readings, name)) is not None
    )


def _history(entry: DeviceHealthRow, now: datetime) -> HistoryLine:
    evidence = dict(entry.evidence or {})
    steps = evidence.pop("steps", None)
    return from_object(
        HistoryLine,
        entry,
        at=timestamp(entry.at),
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
