"""Devices as the list, the overview and a device's own page show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices.hosts import HostLine, host_line
from gonogo_dashboards.kit import ranges, words
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.devices import history, periods, store
from gonogo_service.devices.heartbeats import BUNDLE
from gonogo_service.devices.model import DeviceRow
from gonogo_service.devices.periods import Load, Pulse, Work
from gonogo_service.hosts import store as stored_hosts
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import DeviceState

RANGES = ("1d", "7d", "30d")
"""Time ranges of the list; its first is the default."""
_TELEMETRY = ("temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a")


@dataclass(frozen=True)
class DeviceLine:
    """A device, the job that it runs, and its load in the last hour and the last day."""

    device: DeviceRow
    job: JobLine | None
    load: Load


@dataclass(frozen=True)
class ListedDevice(DeviceLine):
    """A device with its work in the list's time range, and how often it turned sick."""

    busy: float
    """The fraction of the time, 0 to 1"""
    seeds: int = 0
    attempts: int = 0
    turned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class DevicesView:
    """The list of devices, by host and name, and the hosts by name, revoked ones as well."""

    items: tuple[ListedDevice, ...]
    hosts: tuple[HostLine, ...]
    range: ranges.Range
    at: str


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
    done = periods.work(session, since=since, now=now)
    turns = history.turned_sick(session, since)

    def listed(line: DeviceLine) -> ListedDevice:
        work = done.get(line.device.device, Work())
        turned = turns.get(line.device.id, {})
        return ListedDevice(**vars(line), **work._asdict(), turned=turned)

    return DevicesView(
        tuple(map(listed, lines(session, periods.pulse(session, now=now), now, timeout_s))),
        tuple(host_line(host, now) for host in stored_hosts.every(session)),
        period,
        timestamp(now),
    )


def lines(
    session: Session, pulse: Pulse, now: datetime, timeout_s: float
) -> tuple[DeviceLine, ...]:
    """Return the lines of all devices from a pulse that was read already."""
    stored = store.list_(session, now=now, timeout_s=timeout_s)
    jobs = stored_jobs.many(session, [row.job for row in stored if row.job])
    return tuple(line_of(row, jobs, pulse, now) for row in stored)


def line_of(row: DeviceRow, jobs: Mapping[str, JobRow], pulse: Pulse, now: datetime) -> DeviceLine:
    """Return the line of a device; `jobs` has its job, where it runs one."""
    job = jobs.get(row.job or "") if row.state is DeviceState.busy else None
    return DeviceLine(row, None if job is None else job_line(job, now), pulse.load(row.device))


def firmware(row: DeviceRow) -> str:
    """Return the version of a device's firmware bundle; "" where nobody knows."""
    measured = None if row.telemetry is None else row.telemetry.firmware
    return str(row.firmware.get(BUNDLE) or measured or "")


def readings(row: DeviceRow) -> list[str]:
    """Return a device's last readings with their units."""
    return [
        f"{words.number(reading)} {words.quantity(name)[1]}"
        for name in _TELEMETRY
        if (reading := getattr(row.telemetry, name, None)) is not None
    ]
