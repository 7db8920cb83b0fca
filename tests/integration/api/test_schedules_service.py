"""Schedules: a due time is submitted once, missed ones once together; open runs; paused and broken
schedules."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api import Api, in_process
from background_thread import running, short
from database_params import BOTH
from emulator_worker import core_of
from gonogo_service.background import scheduler
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import DueOutcome
from gonogo_service.schedules.model import ScheduleRow
from gonogo_service.suites import runs
from records import pick
from running_service import until as eventually
from suite_runs import SUITE, finish

WHEN = {"cron": "30 2 * * *", "timezone": "Europe/Berlin"}
LINE = {"name": "every night", "suite": "nightly", **WHEN}
NIGHT = datetime(2026, 3, 28, 12, tzinfo=UTC)
"""When the tests create the schedule; the clocks of the next night skip 02:30: due at 01:00 UTC."""


def at(*moment: int) -> datetime:
    return datetime(2026, *moment, tzinfo=UTC)


class Clock:
    """A clock that tests set."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    night_clock = Clock(NIGHT)
    monkeypatch.setattr("gonogo_service.schedules.api.utcnow", night_clock)
    return night_clock


@pytest.fixture
def stored(api: Api) -> Api:
    """A service that has the suite."""
    assert api.client.post("/api/v1/suites", json=SUITE).status_code == 201
    return api


def tick(api: Api, clock: Clock) -> int:
    """Return the number of runs that one pass of the scheduler submits."""
    return scheduler.run_once(core_of(api.context), clock)


def make(api: Api, **changes: Any) -> str:
    answer = api.client.post("/api/v1/schedules", json={**LINE, **changes})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def outcomes(api: Api, schedule: str) -> list[tuple[str, str]]:
    return [(due["due_at"], due["outcome"]) for due in api.get(f"/schedules/{schedule}")["last"]]


def end(api: Api) -> None:
    """End every job of the open runs."""
    with api.context.session() as session:
        for run in runs.newest(session, 100, state="running"):
            for member in runs.members(session, run.id):
                if not member.state.final:
                    finish(session, member.id)


def test_a_schedule_runs_when_it_is_due_once_and_once_after_an_absence(
    stored: Api, clock: Clock
) -> None:
    schedule = make(stored, builds=["correct"], labels={"by": "cron"})
    shown = stored.get(f"/schedules/{schedule}")
    assert shown["upcoming"][:2] == ["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"]
    clock.now = at(3, 29, 0, 59, 59)
    assert tick(stored, clock) == 0
    clock.now += timedelta(seconds=2)
    assert [tick(stored, clock) for _ in range(3)] == [1, 0, 0]
    (run,) = stored.get("/runs", params={"schedule": schedule})["items"]
    expected = ("2026-03-29T01:00:00Z", {"by": "cron"}, "local")
    assert pick(run, "due_at", "labels", "owner") == expected
    clock.now = at(3, 28, 23)  # a clock that goes back submits nothing
    assert tick(stored, clock) == 0
    end(stored)
    clock.now = at(4, 12, 9)  # the service was off for two weeks
    assert [tick(stored, clock) for _ in range(2)] == [1, 0]
    assert outcomes(stored, schedule) == [
        ("2026-03-30T00:30:00Z", "submitted"),
        ("2026-03-29T01:00:00Z", "submitted"),
    ]
    assert stored.get(f"/schedules/{schedule}")["next_at"] == "2026-04-13T00:30:00Z"


def test_what_is_due_while_a_run_is_open_is_skipped_or_allowed(stored: Api, clock: Clock) -> None:
    careful, eager = make(stored), make(stored, overlap="allow")
    for day in (29, 30):
        clock.now = at(3, day, 2)
        tick(stored, clock)
    assert [outcome for _, outcome in outcomes(stored, careful)] == ["skipped", "submitted"]
    assert [outcome for _, outcome in outcomes(stored, eager)] == ["submitted", "submitted"]
    (skipped, first) = stored.get(f"/schedules/{careful}")["last"]
    assert skipped["reason"] == f"run {first['run']} was still open"
    # run-now ignores the open run
    assert stored.client.post(f"/api/v1/schedules/{careful}:run-now").status_code == 202
    assert stored.client.post("/api/v1/schedules/nonsense:run-now").status_code == 404
    end(stored)
    clock.now = at(3, 31, 2)
    tick(stored, clock)
    assert outcomes(stored, careful)[0] == ("2026-03-31T00:30:00Z", "submitted")


@BOTH
def test_several_schedulers_at_once_make_one_run(stored: Api, clock: Clock) -> None:
    schedule = make(stored)
    clock.now = at(3, 29, 2)
    due_outcomes: list[Any] = []
    barrier = threading.Barrier(3)

    def submit() -> None:
        barrier.wait()
        with stored.context.session() as session:
            due_outcomes.append(scheduler.submit_due(session, schedule, stored.settings, clock.now))

    with ThreadPoolExecutor(3) as pool:
        for _ in range(3):
            pool.submit(submit)
    assert sorted(due_outcomes, key=str) == [None, None, DueOutcome.submitted]
    assert pick(stored.rows(), "runs", "jobs", "schedule_dues") == (1, 3, 1)
    with stored.context.session() as session:  # a clock that was set back submits nothing again
        session.get_one(ScheduleRow, schedule).next_at = at(3, 29, 1)
        assert scheduler.submit_due(session, schedule, stored.settings, clock.now) is None
    assert stored.rows()["runs"] == 1


def test_paused_changed_broken_and_ended(stored: Api, clock: Clock) -> None:
    schedule = make(stored, paused=True)
    path = f"/api/v1/schedules/{schedule}"
    clock.now = at(4, 1, 9)
    assert tick(stored, clock) == 0
    resumed = stored.client.patch(path, json={"paused": False}).json()
    # due times missed while paused are not made up for
    assert pick(resumed, "next_at", "version") == ("2026-04-02T00:30:00Z", 2)
    noon = stored.client.patch(path, json={"cron": "0 12 * * *", "timezone": "UTC"}).json()
    assert noon["next_at"] == "2026-04-01T12:00:00Z"
    stored.client.delete("/api/v1/suites/nightly")
    clock.now = at(4, 1, 12)
    assert tick(stored, clock) == 0
    (due,) = stored.get(f"/schedules/{schedule}")["last"]
    assert due["outcome"] == "failed"
    assert "was archived" in due["reason"]
    page = stored.client.get("/schedules", headers={"Accept": "text/html"}).text
    assert "Thu 2026-04-02 12:00 UTC" in page
    (line,) = stored.client.get("/schedules.json").json()["items"]
    assert (line["last"][0]["outcome"], line["upcoming"][0]) == ("failed", "2026-04-02T12:00:00Z")
    assert stored.client.delete(path).json()["next_at"] is None
    assert stored.client.get(path).status_code == 404
    assert stored.get("/schedules")["items"] == []


def test_the_background_submits_what_is_due_and_concludes_runs(
    sqlite_url: str, redis_url: str
) -> None:
    with in_process(sqlite_url, broker_url=redis_url) as api:
        api.client.post("/api/v1/suites", json=SUITE)
        schedule = make(api, cron="0 0 1 1 *")
        with api.context.session() as session:
            session.get_one(ScheduleRow, schedule).next_at = utcnow() - timedelta(days=1)
        with running(short(sqlite_url, redis_url)):
            eventually(lambda: api.get("/runs")["items"])
            end(api)
            eventually(lambda: api.get("/runs?state=finished")["items"])
