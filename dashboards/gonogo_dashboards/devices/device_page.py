"""Read models of the devices' pages: each device in words, and the history of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import activity, health_timeline
from gonogo_dashboards.devices.activity import DeviceDays
from gonogo_dashboards.devices.health_timeline import Timeline
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_storage.db.encoding import encode, timestamp
from gonogo_storage.db.states import DeviceHealth, DeviceState
from gonogo_storage.devices import devices as stored
from gonogo_storage.devices import periods
from gonogo_storage.devices.periods import Load, Pulse
from gonogo_storage.jobs import device_history
from gonogo_storage.jobs import jobs as stored_jobs
from gonogo_storage.jobs.job import Job

_TELEMETRY = ("temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a")
_FACTS = (("serial", "serial"), ("pci", "PCI address"), ("driver", "driver"), ("source", "told by"))
BUNDLE = "fw_bundle_version"
"""tt-smi's name for the firmware as a whole."""
BACK = timedelta(days=30)
"""How far a device's page looks back."""
RECENT_JOBS = 12
MAX_DIGITS = 12
"""Hex digits of a digest on a page; all of them are in the JSON twin."""


@dataclass(frozen=True)
class CanaryLine:
    """A device's last canary that passed; `standing` compares its bits with those of other
    devices.
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
    """Which share of the last hour and of the last day it was at work."""


@dataclass(frozen=True)
class DevicesView:
    """The list of devices, by host and name."""

    items: tuple[DeviceLine, ...]
    worker: str
    at: str | None


@dataclass(frozen=True)
class HistoryLine:
    """One change; `steps` are the rungs of the recovery ladder, `details` the rest of the evidence,
    as names and values.
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
    """A job that ran here lately, with how many attempts this device made for it."""

    job: JobLine
    attempts: int
    last_at: str | None
    age: str


@dataclass(frozen=True)
class Climb:
    """One climb of the recovery ladder: what it began as, what each rung said, what it came to."""

    at: str
    age: str
    before: str | None
    after: str
    reason: str | None
    rungs: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class DeviceView:
    """A device's page: its facts, how it was in the last weeks, what it ran, and what happened to
    it, newest first.
    """

    device: DeviceLine
    facts: tuple[tuple[str, str], ...]
    timeline: Timeline
    days: DeviceDays
    jobs: tuple[RanLine, ...]
    climbs: tuple[Climb, ...]
    """Of those in the history."""
    history: tuple[HistoryLine, ...]
    whole: bool
    """Whether the history goes back to the device's first day."""
    at: str | None


def devices(session: Session, now: datetime, timeout_s: float) -> DevicesView:
    """All devices; one not heard of for `timeout_s` is offline."""
    found = lines(session, periods.pulse(session, now=now), now, timeout_s)
    return DevicesView(found, "gonogo worker --executor emulator", timestamp(now))


def lines(
    session: Session, pulse: Pulse, now: datetime, timeout_s: float
) -> tuple[DeviceLine, ...]:
    """The same, of a pulse that was taken already."""
    found = stored.list_(session, now=now, timeout_s=timeout_s)
    jobs = stored_jobs.many(session, [each["job"] for each in found if each["job"]])
    return tuple(_line(each, jobs, pulse, now) for each in found)


def device(session: Session, device_id: str, now: datetime, timeout_s: float) -> DeviceView | None:
    """One device; None when there is no such one."""
    found = stored.look(session, device_id, now=now, timeout_s=timeout_s)
    if found is None:
        return None
    jobs = stored_jobs.many(session, [found["job"]] if found["job"] else [])
    line = _line(found, jobs, periods.pulse(session, now=now), now)
    facts = [("host", line.host), ("architecture, board", f"{line.arch}, {line.board}")]
    facts += [(label, str(found[name])) for name, label in _FACTS if found[name]]
    for name, value in sorted(found["firmware"].items()):
        facts.append(
            ("firmware" if name == BUNDLE else f"firmware: {name.replace('_', ' ')}", str(value))
        )
    facts += [("queues", ", ".join(found["queues"])), ("worker", found["worker"] or "none")]
    facts += [("first heard of", _at(found["first_heard_at"]))]
    history = tuple(_history(each, now) for each in found["history"])
    since = (now - BACK).replace(
        minute=0, second=0, microsecond=0
    )  # an hour long the same: pictures and places of keys stay
    changes, all_of_them = device_history.changes(session, device_id, since=since)
    silent = (
        datetime.fromisoformat(found["heard_at"]) if line.state == DeviceState.offline else None
    )
    began = max(since, datetime.fromisoformat(found["first_heard_at"]))
    return DeviceView(
        device=line,
        facts=tuple(facts),
        timeline=health_timeline.timeline(
            changes, since, now, silent_since=silent, whole=all_of_them
        ),
        days=activity.days(
            periods.hours(session, line.device, since=since), since, now, began=began
        ),
        jobs=tuple(
            _ran(each, now)
            for each in device_history.recent_jobs(session, line.device, limit=RECENT_JOBS)
        ),
        climbs=tuple(_climb(each) for each in history if each.steps),
        history=history,
        whole=len(history) < stored.HISTORY,
        at=timestamp(now),
    )


def _ran(found: device_history.RanJob, now: datetime) -> RanLine:
    last_at = timestamp(found.last_at)
    return RanLine(job_line(found.job, now), found.attempts, last_at, words.since(last_at, now))


def _climb(entry: HistoryLine) -> Climb:
    rungs = tuple(
        (str(step.get("rung", "?")), str(step.get("outcome", ""))) for step in entry.steps
    )
    return Climb(entry.at, entry.age, entry.before, entry.after, entry.reason, rungs)


def _line(
    found: Mapping[str, Any], jobs: Mapping[str, Job], pulse: Pulse, now: datetime
) -> DeviceLine:
    state, health = DeviceState(found["state"]), DeviceHealth(found["health"])
    job = jobs.get(found["job"]) if state is DeviceState.busy else None
    firmware = found["firmware"].get(BUNDLE) or (found["telemetry"] or {}).get("firmware")
    return DeviceLine(
        id=found["id"],
        url=urls.device(found["id"]),
        **{
            name: found[name]
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
                "heard_at",
            )
        },
        firmware=str(firmware or ""),
        state=state.value,
        state_words=words.DEVICE_STATES[state],
        health=health.value,
        health_words=words.DEVICE_HEALTHS[health],
        since=found["health_at"],
        since_words=_age(found["health_at"], now),
        heard_words=_age(found["heard_at"], now),
        job=None if job is None else job_line(job, now),
        canary=_canary(found["canary"], now),
        telemetry=_telemetry(found["telemetry"] or {}),
        load=pulse.load(found["device"]),
    )


def _canary(sung: Mapping[str, Any] | None, now: datetime) -> CanaryLine | None:
    if not sung:
        return None
    standing = sung.get("golden")
    return CanaryLine(
        build=str(sung["build"]),
        arch=str(sung["arch"]),
        standing=words.STANDINGS.get(str(standing), ""),
        differs=standing == "differs",
        outputs=dict(sung["outputs"]),
        at=sung.get("at"),
        age=_age(sung["at"], now) if sung.get("at") else "",
    )


def _telemetry(told: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{words.number(told[name])} {words.quantity(name)[1]}"
        for name in _TELEMETRY
        if isinstance(told.get(name), int | float)
    )


def _history(entry: Mapping[str, Any], now: datetime) -> HistoryLine:
    evidence = dict(entry["evidence"] or {})
    steps = evidence.pop("steps", None)
    names = ("at", "what", "before", "after", "actor", "reason")
    return HistoryLine(
        **{name: entry[name] for name in names},
        age=_age(entry["at"], now),
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
    """A value of the evidence as text: digests shortened, everything else as JSON."""
    if isinstance(value, Mapping) and all(isinstance(each, str) for each in value.values()):
        return ", ".join(f"{name} {each[:MAX_DIGITS]}" for name, each in value.items())
    return value if isinstance(value, str) else encode(value)


def _age(moment: str, now: datetime) -> str:
    return words.ago((now - datetime.fromisoformat(moment)).total_seconds())


def _at(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%Y-%m-%d %H:%M:%S} UTC"
