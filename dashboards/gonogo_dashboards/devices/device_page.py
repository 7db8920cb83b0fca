"""The page of one device: its health, activity, jobs and history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import activity, health_timeline, hosts
from gonogo_dashboards.devices.activity import DeviceDays
from gonogo_dashboards.devices.health_timeline import Timeline
from gonogo_dashboards.devices.lines import DeviceLine, line_of
from gonogo_dashboards.kit import axis_events, evidence_view, ranges, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.devices import history as stored_history
from gonogo_service.devices import periods, store
from gonogo_service.devices.heartbeats import BUNDLE
from gonogo_service.devices.model import DeviceHealthRow, DeviceRow
from gonogo_service.hosts import store as stored_hosts
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import DeviceState
from gonogo_service.tests import axis_changes, entry_names

_FACTS = (("serial", "serial"), ("pci", "PCI address"), ("driver", "driver"), ("source", "source"))
RANGES = ("7d", "30d", "90d")
DEFAULT_RANGE = "30d"
SHORTEST, SHORTEST_HEALTH = timedelta(days=1), timedelta(hours=1)
"""The shortest time that a device's charts cover."""
RECENT_JOBS = 12
MAX_HOURS = 72
"""Hours in the table of a reading: three days. The chart and the JSON version have all."""
MAX_RECOVERIES = 20
"""Attempts to recover the device that the page lists."""
MAX_CHANGES = 60
"""Changes in the page's history; the JSON version has more."""


@dataclass(frozen=True)
class DeviceView(DeviceLine):
    """A device's page: its facts, its last weeks, its jobs, and its history, newest first."""

    facts: tuple[tuple[str, str], ...]
    timeline: Timeline
    days: DeviceDays
    jobs: tuple[JobLine, ...]
    """The jobs that ran on it last, newest first."""
    history: Sequence[DeviceHealthRow]
    whole: bool
    """True where the history goes back to the device's first day."""
    range: ranges.Range
    events: tuple[AxisEvent, ...]
    """The changes on its axes of time: their places are milliseconds."""
    day_events: tuple[AxisEvent, ...]
    at: str


def device(
    session: Session,
    device_id: str,
    now: datetime,
    timeout_s: float,
    query: Mapping[str, str] | None = None,
) -> DeviceView | None:
    """Return one device; None where there is no such device. The query may name a time range."""
    row = store.look(session, device_id, now=now, timeout_s=timeout_s)
    if row is None:
        return None
    jobs = stored_jobs.many(session, [row.job] if row.job else [])
    line = line_of(row, jobs, periods.pulse(session, now=now), now)
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.device(device_id, {ranges.PARAMETER: value}),
        default=DEFAULT_RANGE,
        allowed=RANGES,
    )
    # no axis begins long before the device, and each is the same for an hour, so that charts and
    # the places of keys don't move
    first = min(row.first_heard_at, now - SHORTEST)
    since = _hour(max(period.since or now, first))
    health_since = max(since, _hour(min(row.first_heard_at, now - SHORTEST_HEALTH)))
    began = max(since, row.first_heard_at)
    changes, whole = stored_history.changes(session, device_id, since=health_since)
    ran = stored_history.recent_jobs(session, row.device, limit=RECENT_JOBS)
    entries = entry_names.latest(session, {job.test_key for job in ran})
    days = activity.days(periods.hours(session, row.device, since=since), since, now, began=began)
    dated = axis_changes.since(session, began, device_id)
    past = store.history(session, device_id)
    return DeviceView(
        **vars(line),
        facts=tuple(_facts(session, row, now)),
        timeline=health_timeline.timeline(
            changes,
            health_since,
            now,
            silent_since=row.heard_at if row.state is DeviceState.offline else None,
            whole=whole,
        ),
        days=days,
        jobs=tuple(job_line(job, now, entries.get(job.test_key)) for job in ran),
        history=past,
        whole=len(past) < store.HISTORY,
        range=period,
        events=axis_events.of_time(dated, now),
        day_events=axis_events.of_days(dated, [day.day for day in days.days]),
        at=timestamp(now),
    )


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)


def _facts(session: Session, row: DeviceRow, now: datetime) -> list[tuple[str, str]]:
    firmware = sorted(row.firmware.items())
    names = {BUNDLE: "firmware"}
    return [
        ("host", row.host),
        ("architecture, board", f"{row.arch}, {row.board}"),
        *((label, str(fact)) for name, label in _FACTS if (fact := getattr(row, name))),
        *(
            (names.get(name, f"firmware: {name.replace('_', ' ')}"), str(version))
            for name, version in firmware
        ),
        ("queues", ", ".join(row.queues)),
        ("worker", row.worker or "none"),
        ("first heartbeat", words.moment(row.first_heard_at)),
        *hosts.facts(stored_hosts.get(session, row.host), now),
    ]


def steps(entry: DeviceHealthRow) -> list[Mapping[str, Any]]:
    """Return the steps that were tried to recover the device."""
    tried = (entry.evidence or {}).get("steps")
    return [step for step in tried if isinstance(step, Mapping)] if isinstance(tried, list) else []


def recoveries(history: Sequence[DeviceHealthRow]) -> list[DeviceHealthRow]:
    """Return the entries with steps to recover the device."""
    return [entry for entry in history if steps(entry)]


def evidence(entry: DeviceHealthRow) -> list[tuple[str, str]]:
    """Return the rest of an entry's evidence for reading: names and values."""
    return [
        (evidence_view.label(name), evidence_view.text(value))
        for name, value in (entry.evidence or {}).items()
        if name != "steps" and value not in (None, {}, [])
    ]
