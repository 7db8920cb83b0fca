"""The work of devices by minute and hour, as ingest counts it, and a month on a device's page; on
SQLite and on PostgreSQL."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import Engine, func, select

import device_month
import stored_jobs
import unchecked
from gonogo_dashboards.devices import device_page, lines
from gonogo_service.devices import history, periods
from gonogo_service.devices.model import DeviceHealthRow, DevicePeriodRow, DeviceRow
from gonogo_service.jobs import attempts, chunks, dispatching
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.engine import make_engine, reading, session
from gonogo_service.kit.database.ids import new_id
from job_flow import new_job, row

NOW = datetime(2026, 1, 31, 12, 0, 30, tzinfo=UTC)
DEVICE = "lab-1/wormhole:0"


def began(engine: Engine, seeds: int, at: datetime) -> str:
    """Start an attempt of a new job on the device; return its id."""
    with session(engine) as current:
        job = jobs.create(current, new_job(seeds))
        (attempt,) = dispatching.dispatch(current, chunks.choose(current, job.queue, 1), now=at)
        unchecked.started(
            current, attempt, {"worker": "w", "device": DEVICE, "host": "lab-1"}, now=at
        )
    return attempt


def test_seeds_count_once_when_they_are_stored_and_time_when_an_attempt_ends(
    engine: Engine,
) -> None:
    start = NOW.replace(minute=59, hour=11)  # 90 s before NOW, across the hour
    attempt = began(engine, 3, start)
    with session(engine) as current:
        for _ in range(2):  # a batch that is delivered twice
            unchecked.store(
                current,
                attempt,
                {"batch": 0, "rows": [row(0), row(1)]},
                now=NOW - timedelta(seconds=20),
            )
        pulse = periods.pulse(current, now=NOW)
        assert (pulse.rates["now"].seeds, pulse.rates["hour"].seeds, pulse.rates["day"].seeds) == (
            2,
            2,
            2,
        )
        assert pulse.rates["now"].window_s == 90
        assert pulse.load(DEVICE).hour == pytest.approx(60 / 3570)  # it still runs
        unchecked.store(current, attempt, {"batch": 1, "rows": [row(2)]}, now=NOW)
        sent = [[0, 0], [1, 0], [2, 0]]
        for _ in range(2):
            unchecked.finished(
                current, attempt, {"outcome": "done", "sent": sent, "batches": 2}, now=NOW
            )
        hours = periods.hours(current, DEVICE, since=NOW - timedelta(days=1))
    assert [(hour.start.hour, hour.busy_s, hour.seeds, hour.attempts) for hour in hours] == [
        (11, 30.0, 0, 0),
        (12, 30.0, 3, 1),
    ]
    with reading(engine) as current:
        load = periods.pulse(current, now=NOW).load(DEVICE)
    assert [load.hour, load.day] == pytest.approx([60 / 3570, 60 / (23 * 3600 + 30)])


def test_a_lost_attempt_was_at_work_until_it_was_last_heard_of(engine: Engine) -> None:
    attempt = began(engine, 1, NOW - timedelta(minutes=10))
    with session(engine) as current:
        attempts.heartbeat(current, attempt, seed=0, stage="run", now=NOW - timedelta(minutes=8))
        before = NOW - timedelta(minutes=1)
        assert attempts.mark_lost(current, attempt, "silent", before=before, now=NOW) is not None
        (hour,) = periods.hours(current, DEVICE, since=NOW - timedelta(hours=2))
    assert (hour.busy_s, hour.attempts) == (120.0, 1)


def test_minutes_are_forgotten_after_hours_and_hours_after_a_year(engine: Engine) -> None:
    def periods_by_size(current: object) -> dict[int, int]:
        query = select(DevicePeriodRow.size_s, func.count()).group_by(DevicePeriodRow.size_s)
        return dict(current.execute(query).all())  # type: ignore[attr-defined]

    with session(engine) as current:
        for back in (timedelta(0), timedelta(hours=4), timedelta(days=500)):
            periods.record_seeds(current, DEVICE, 1, now=NOW - back)
        assert periods_by_size(current) == {60: 3, 3600: 3}
        periods.forget(current, now=NOW)
        assert periods_by_size(current) == {60: 1, 3600: 2}


def test_a_week_of_a_device_on_its_page(migrated_sqlite_url: str) -> None:
    engine = make_engine(migrated_sqlite_url)
    with session(engine) as current:
        device_month.month(current, NOW, days=6, working=lambda hour: hour % 2 == 0)
    with reading(engine) as current:
        (line,) = lines.devices(current, NOW, 30).items
        view = device_page.device(current, line.device.id, NOW, 30)
    assert view is not None
    # the outage is noticed a minute after it began
    spans = [(span.state, round(span.seconds / 3600, 1)) for span in view.timeline.spans]
    assert spans[:3] == [("good", 24.0), ("offline", 3.0), ("good", 21.0)]
    assert [span.state for span in view.timeline.spans[3:]] == ["bad", "good", "suspect", "good"]
    assert view.timeline.spans[3].reason == "it hung, and tt-smi -r did not help"
    recoveries = device_page.recoveries(view.history)
    assert [entry.after for entry in recoveries] == ["good", "bad"]
    assert [(step["rung"], step["outcome"]) for step in device_page.steps(recoveries[1])] == [
        ("as it is", "no answer"),
        ("re-open", "no answer"),
        ("reset_device", "no answer"),
    ]
    # 72 hours with work, but for two in the outage; the gap is the outage and the idle hour before
    # it
    temperature = view.days.series[0]
    assert (temperature.metric, len(temperature.readings)) == ("temperature_c", 70)
    assert temperature.words == "44 to 55 °C in 70 hours with work; the longest gap is 5 h."
    assert sum(day.busy_s for day in view.days.days) == 70 * 1800
    assert sum(day.seeds for day in view.days.days) == 70 * 80
    assert view.days.canaries == "72 canaries: 71 bits known from one device only, 1 failed."
    assert line.load.day == pytest.approx(12 * 1800 / (23 * 3600 + 30), rel=0.1)
    engine.dispose()


def test_the_jobs_of_a_device_are_those_that_it_ran_last(engine: Engine) -> None:
    with session(engine) as current:
        ran = [stored_jobs.submit(current, seeds=1) for _ in range(3)]
        sent = dispatching.dispatch(current, chunks.choose(current, ran[0].queue, 3), now=NOW)
        for place, attempt in enumerate(sent[:2]):
            unchecked.started(
                current,
                attempt,
                {"worker": "w", "device": DEVICE},
                now=NOW + timedelta(seconds=place),
            )
        other_job_ids = {
            unchecked.started(current, attempt, {"worker": "w", "device": "other"}, now=NOW)
            for attempt in sent[2:]
        }
        recent_jobs = history.recent_jobs(current, DEVICE, limit=5)
    assert len(recent_jobs) == 2
    assert {job.id for job in recent_jobs} == {job.id for job in ran} - other_job_ids


def test_changes_of_one_instant_keep_their_order(migrated_sqlite_url: str) -> None:
    engine = make_engine(migrated_sqlite_url)
    with session(engine) as current:
        device_month.heard(current, NOW - timedelta(days=2))
        (device,) = current.scalars(select(DeviceRow.id))
        for number, (before, after) in enumerate(
            (("good", "suspect"), ("suspect", "bad"), ("bad", "good"))
        ):
            current.add(
                DeviceHealthRow(
                    id=new_id(),
                    device_id=device,
                    at=NOW,
                    what="health",
                    before=before,
                    after=after,
                    actor="ada",
                    reason=str(number),
                    evidence=None,
                )
            )
            current.flush()
        changes, whole = history.changes(current, device, since=NOW - timedelta(days=1))
    assert whole
    assert [change.after for change in changes if change.at == NOW] == ["suspect", "bad", "good"]
    engine.dispose()
