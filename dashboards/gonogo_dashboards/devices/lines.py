"""Devices in words, as the list, the overview and a device's own page show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import hosts
from gonogo_dashboards.devices.hosts import HostLine
from gonogo_dashboards.kit import ranges, words
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.devices import history, periods, store
from gonogo_service.devices.heartbeats import BUNDLE
from gonogo_service.devices.model import DeviceRow, PassedCanary, Telemetry
from gonogo_service.devices.periods import Load, Pulse, Work
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import CanaryOutcome, DeviceState

RANGES = ("1d", "7d", "30d")
"""Time ranges of the list; its first is the default."""
_TELEMETRY = ("temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a")


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
    """The list of devices, by host and name, and the hosts."""

    items: tuple[DeviceLine, ...]
    hosts: tuple[HostLine, ...]
    worker: str
    range: ranges.Range
    at: str | None


def devices(
    session: Session, now: datetime, timeout_s: float, query: Mapping[str, str] | None = None
) -> DevicesView:
    """Return all devices; one without a heartbeat for `timeout_s` is offline.

    The query may name the time range of their work.
    """
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.devices({ranges.PARAMETER: value}),
        default=RANGES[0],
        allowed=RANGES,
    )
    since = period.since or now
    done, turns = periods.work(session, since=since), history.turned_sick(session, since)
    items = tuple(
        replace(line, work=_work(line, done.get(line.device), turns.get(line.id, {}), now - since))
        for line in lines(session, periods.pulse(session, now=now), now, timeout_s)
    )
    return DevicesView(
        items,
        hosts.lines(session, now),
        "gonogo worker --executor emulator",
        period,
        timestamp(now),
    )


def _work(
    line: DeviceLine, done: Work | None, turns: Mapping[str, int], window: timedelta
) -> WorkLine:
    """Return the work of a device; what it runs now is in the load of its last day only."""
    done = done or Work()
    busy_s = max(done.busy_s, line.load.day * timedelta(days=1).total_seconds())
    often = (
        f"{health} {'once' if number == 1 else f'{number:,} times'}"
        for health, number in sorted(turns.items())
    )
    share = min(1.0, busy_s / window.total_seconds())
    return WorkLine(share, done.seeds, done.attempts, ", ".join(often))


def lines(
    session: Session, pulse: Pulse, now: datetime, timeout_s: float
) -> tuple[DeviceLine, ...]:
    """Return the lines of all devices from a pulse that was read already."""
    rows = store.list_(session, now=now, timeout_s=timeout_s)
    jobs = stored_jobs.many(session, [row.job for row in rows if row.job])
    return tuple(line_of(row, jobs, pulse, now) for row in rows)


def line_of(row: DeviceRow, jobs: Mapping[str, JobRow], pulse: Pulse, now: datetime) -> DeviceLine:
    """Return the line of a device; `jobs` has its job, where it runs one."""
    job = jobs.get(row.job or "") if row.state is DeviceState.busy else None
    readings = row.telemetry or Telemetry()
    return from_object(
        DeviceLine,
        row,
        url=urls.device(row.id),
        firmware=str(row.firmware.get(BUNDLE) or readings.firmware or ""),
        state=row.state.value,
        state_words=row.state.sentence,
        health=row.health.value,
        health_words=row.health.sentence,
        since=timestamp(row.health_at),
        lasting=words.lasting(row.health_at, now),
        heard_at=timestamp(row.heard_at),
        heard_words=words.since(row.heard_at, now),
        job=None if job is None else job_line(job, now),
        canary=None if row.canary is None else _canary(row.canary, now),
        telemetry=tuple(
            f"{words.number(reading)} {words.quantity(name)[1]}"
            for name in _TELEMETRY
            if (reading := getattr(readings, name)) is not None
        ),
        load=pulse.load(row.device),
        work=None,
    )


def _canary(canary: PassedCanary, now: datetime) -> CanaryLine:
    return from_object(
        CanaryLine,
        canary,
        standing=CanaryOutcome(canary.golden).sentence if canary.golden else "",
        differs=canary.golden == "differs",
        at=timestamp(canary.at),
        age=words.since(canary.at, now),
    )
