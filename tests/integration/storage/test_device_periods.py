"""The work of devices by minute and hour, as ingest counts it, and a month on a device's page; on
SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

import device_month
from database_params import BOTH_ENGINES
from gonogo_dashboards.devices import device_page, lines
from gonogo_service.devices import history, periods
from gonogo_service.devices.model import DeviceHealthRow, DevicePeriodRow, DeviceRow
from gonogo_service.jobs import attempts
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.kit.database.ids import new_id
from job_flow import row
from stored_flow import FAST, Flow

NOW = datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)
DEVICE = "lab-1/wormhole:0"


def began(flow: Flow, seeds: int, at: datetime) -> Sendable:
    """Start an attempt of a new job on the device."""
    flow.submit(seeds, now=at)
    (item,) = flow.send(start=False, now=at)
    flow.start(item, now=at, device=DEVICE, host="lab-1")
    return item


@BOTH_ENGINES
def test_seeds_count_once_when_they_are_stored_and_time_when_an_attempt_ends(flow: Flow) -> None:
    item = began(flow, 3, NOW - timedelta(seconds=60))  # across the hour
    for _ in range(2):  # a batch that is delivered twice
        flow.store(item, row(0), row(1), now=NOW - timedelta(seconds=20))
    pulse = periods.pulse(flow.session, now=NOW)
    assert [pulse.rates[name].seeds for name in ("now", "hour", "day")] == [2, 2, 2]
    assert pulse.rates["now"].window_s == 90
    assert pulse.load(DEVICE).hour == pytest.approx(40 / 3570)  # until it was last heard of
    flow.store(item, row(2), batch=1, now=NOW)
    for _ in range(2):
        flow.finish(item, batches=2, now=NOW)
    hours = periods.hours(flow.session, DEVICE, since=NOW - timedelta(days=1))
    counted = [(hour.start.hour, hour.busy_s, hour.seeds, hour.attempts) for hour in hours]
    assert counted == [(11, 30.0, 0, 0), (12, 30.0, 3, 1)]
    load = periods.pulse(flow.session, now=NOW).load(DEVICE)
    assert [load.hour, load.day] == pytest.approx([60 / 3570, 60 / (23 * 3600 + 30)])
    work = periods.work(flow.session, since=NOW - timedelta(days=1), now=NOW)
    assert work == {DEVICE: (3, 1, load.day)}


@BOTH_ENGINES
def test_a_lost_attempt_was_at_work_until_it_was_last_heard_of(flow: Flow) -> None:
    item, current = began(flow, 1, NOW - timedelta(minutes=10)), flow.session
    heard_at = NOW - timedelta(minutes=8)
    attempts.heartbeat(current, item.attempt, seed=0, stage="run", now=heard_at)
    before = NOW - timedelta(minutes=1)
    assert attempts.mark_lost(current, item.attempt, "silent", before=before, now=NOW) is not None
    (hour,) = periods.hours(current, DEVICE, since=NOW - timedelta(hours=2))
    assert (hour.busy_s, hour.attempts) == (120.0, 1)


@BOTH_ENGINES
def test_minutes_are_forgotten_after_hours_and_hours_after_a_year(current: Session) -> None:
    def periods_by_size() -> dict[int, int]:
        query = select(DevicePeriodRow.size_s, func.count()).group_by(DevicePeriodRow.size_s)
        return dict(current.execute(query).all())

    for back in (timedelta(0), timedelta(hours=4), timedelta(days=500)):
        periods.record_seeds(current, DEVICE, 1, now=NOW - back)
    assert periods_by_size() == {60: 3, 3600: 3}
    periods.forget(current, now=NOW)
    assert periods_by_size() == {60: 1, 3600: 2}


def test_a_week_of_a_device_on_its_page(current: Session) -> None:
    device_month.month(current, NOW, days=6, working=lambda hour: hour % 2 == 0)
    (line,) = lines.devices(current, NOW, 30).items
    view = device_page.device(current, line.device.id, NOW, 30)
    assert view is not None
    # the outage is noticed a minute after it began
    spans = [(span.state, round(span.seconds / 3600, 1)) for span in view.timeline.spans]
    assert spans[:3] == [("good", 24.0), ("offline", 3.0), ("good", 21.0)]
    assert [state for state, _ in spans[3:]] == ["bad", "good", "suspect", "good"]
    assert view.timeline.spans[3].reason == "it hung, and tt-smi -r did not help"
    recoveries = device_page.recoveries(view.history)
    assert [entry.after for entry in recoveries] == ["good", "bad"]
    steps = [(step["rung"], step["outcome"]) for step in device_page.steps(recoveries[1])]
    assert steps == [(step, "no answer") for step in ("as it is", "re-open", "reset_device")]
    # 72 hours with work, but for two in the outage; the gap is the outage and the idle hour before
    # it
    temperature = view.days.series[0]
    assert (temperature.metric, len(temperature.readings)) == ("temperature_c", 70)
    assert temperature.words == "44 to 55 °C in 70 hours with work; the longest gap is 5 h."
    assert sum(day.busy_s for day in view.days.days) == 70 * 1800
    assert sum(day.seeds for day in view.days.days) == 70 * 80
    assert view.days.canaries == "72 canaries: 71 bits known from one device only, 1 failed."
    assert (line.busy, line.seeds) == (line.load.day, 11 * 80)
    assert line.seeds == periods.pulse(current, now=NOW).rates["day"].seeds


@BOTH_ENGINES
def test_the_jobs_of_a_device_are_those_that_it_ran_last(flow: Flow) -> None:
    flow.submit(3, **FAST)
    ran = [flow.submit(1).id for _ in range(2)]
    items = flow.send(start=False, now=NOW)
    for item in items:
        flow.start(item, now=NOW, device=DEVICE if item.job in ran else "other")
    recent_jobs = history.recent_jobs(flow.session, DEVICE, limit=5)
    assert sorted(job.id for job in recent_jobs) == sorted(ran)


def test_changes_of_one_instant_keep_their_order(current: Session) -> None:
    device_month.heard(current, NOW - timedelta(days=2))
    device = current.scalars(select(DeviceRow.id)).one()
    states = ("good", "suspect", "bad", "good")
    about: dict[str, Any] = {"what": "health", "actor": "ada", "reason": "", "evidence": None}
    for before, after in pairwise(states):
        change = {"id": new_id(), "device_id": device, "before": before, "after": after}
        current.add(DeviceHealthRow(at=NOW, **change, **about))
        current.flush()
    changes, whole = history.changes(current, device, since=NOW - timedelta(days=1))
    assert whole
    assert [change.after for change in changes if change.at == NOW] == ["suspect", "bad", "good"]
