"""The reaper: whom it believes dead, when, and what it does at which intervals.

The broker and the database are real; the test sets the clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select, update
from sqlalchemy.orm import Session

import unchecked
from background_thread import short
from gonogo_service.background import reaper
from gonogo_service.background.reaper import Reaper
from gonogo_service.devices import heartbeats, workers
from gonogo_service.devices.model import DeviceRow
from gonogo_service.jobs import attempts, chunks, dispatching
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import presence
from gonogo_workers import queue
from handed_out import hand_out
from job_flow import DEVICE, HOST, QUEUE, new_job, row
from stored_attempts import attempts_of

TIMEOUT_S = 4.0
BEGIN, BEGIN_TICK = utcnow().replace(microsecond=0), 1000.0


class Watched:
    """A reaper whose time is the test's, in seconds since its beginning."""

    def __init__(self, context: BackgroundContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self.context = context
        self.second = 0.0
        clock = SimpleNamespace(monotonic=lambda: BEGIN_TICK + self.second)
        monkeypatch.setattr(reaper, "time", clock)
        monkeypatch.setattr(reaper, "utcnow", lambda: at(self.second))
        self.reaper = Reaper(context)
        self.api_is_back()

    def api_is_back(self) -> None:
        """Have a process of the API present."""
        self.do(leases.acquire, f"{presence.API}1", "api", 3600.0)

    def api_is_away(self) -> None:
        """Have none present."""
        self.do(leases.release, "api")

    def run(self, *seconds: float) -> None:
        """Run a pass at each of these times."""
        for self.second in seconds:
            self.reaper.run_once()

    def do(self, work: Callable[..., Any], *words: Any, **options: Any) -> Any:
        """Call a function of storage in a transaction."""
        with session(self.context.engine) as current:
            return work(current, *words, **options)

    def sent(self, *published: float) -> list[str]:
        """Store a job of one seed for each time, at which its attempt is sent; return their ids."""
        job_ids = []
        for second in published:
            now = at(second)
            job = self.do(jobs.create, new_job(1), now=now)
            self.do(dispatching.dispatch, self.do(chunks.choose, QUEUE, 9), now=now)
            self.do(hand_out, now=now)
            job_ids.append(job.id)
        return job_ids

    def running(self, second: float) -> tuple[str, str]:
        """Store a job of one seed that runs since then; return its id and its attempt's."""
        (job,) = self.sent(second)
        attempt = self.do(attempts_of, job)[0]["id"]
        self.do(unchecked.started, attempt, {"worker": "w"}, now=at(second))
        return job, attempt

    def states(self, *job_ids: str) -> list[str]:
        """Return the states of the last attempts of jobs."""
        with reading(self.context.engine) as current:
            return [str(attempts_of(current, job_id)[-1]["state"]) for job_id in job_ids]


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


def device(watched: Watched) -> None:
    facts = {"device": DEVICE, "host": HOST, "queue": QUEUE, "name": "emulator:0"}
    facts |= {"arch": "wormhole", "board": "n150", "source": "emulator"}
    watched.do(heartbeats.heard, facts, worker="w", attempt=None, now=at(-60))


def update_device(current: Session, **changes: Any) -> None:
    current.execute(update(DeviceRow).values(**changes))


@pytest.fixture
def watched(
    migrated_sqlite_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    """A reaper of an empty service."""
    settings = short(migrated_sqlite_url, redis_url)
    settings = settings.model_copy(update={"heartbeat_timeout_s": TIMEOUT_S})
    context = open_background_context(settings, threading.Event())
    yield Watched(context, monkeypatch)
    context.close()


@pytest.mark.parametrize("reported", [False, True])
def test_silence_counts_only_while_an_api_was_there_to_be_told(
    watched: Watched, reported: bool
) -> None:
    watched.api_is_away()
    job, attempt = watched.running(-3600)
    if reported:  # of its two batches one is on its way
        batch = {"batch": 0, "rows": [row(0)]}
        watched.do(unchecked.store, attempt, batch, now=at(-3600))
        body = {"outcome": "done", "sent": [[0, 0]], "batches": 2}
        watched.do(unchecked.finished, attempt, body, now=at(-3600))
    redis = watched.context.redis
    state, closed = ("reported", "done") if reported else ("running", "lost")
    watched.run(*range(0, 40, 4))
    assert watched.states(job) == [state]
    watched.api_is_back()
    watched.run(40, 43)
    assert watched.states(job) == [state]
    assert not redis.exists(queue.DISPATCH_NOTIFICATION_KEY)
    watched.run(44)
    assert watched.states(job) == [closed]
    assert redis.exists(queue.DISPATCH_NOTIFICATION_KEY)


def test_a_worker_is_silent_after_the_timeout_and_not_before(watched: Watched) -> None:
    watched.run(0)
    (early, _), (late, attempt) = watched.running(6), watched.running(6)
    watched.do(attempts.heartbeat, attempt, seed=0, stage="running", now=at(7), worker="w")
    watched.run(10)
    assert watched.states(early, late) == ["running", "running"]
    watched.run(11)
    assert watched.states(early, late) == ["lost", "running"]


def test_an_attempt_that_nobody_claims_is_never_lost(watched: Watched) -> None:
    sent = watched.sent(-3600, 0)
    watched.run(0, 40, 80)
    assert watched.states(*sent) == ["sent", "sent"]


def test_what_was_seen_before_the_database_was_away_proves_nothing(watched: Watched) -> None:
    job, _ = watched.running(-9)
    watched.run(0, 3)
    watched.reaper.reset()
    watched.run(4, 7)
    assert watched.states(job) == ["running"]
    watched.run(8)
    assert watched.states(job) == ["lost"]


def test_each_duty_has_its_own_interval(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[float]] = {"sickness": [], "cleanup": []}

    def record(duty: str) -> Callable[..., None]:
        return lambda *_: seen[duty].append(watched.second)

    monkeypatch.setattr(reaper, "mark_suspects", record("sickness"))
    monkeypatch.setattr(Reaper, "_sweep", record("cleanup"))
    device(watched)

    def online() -> bool:
        return bool(watched.do(lambda current: current.scalar(select(DeviceRow.online))))

    watched.run(0, 3)
    assert online()
    watched.run(4)
    assert not online()
    watched.do(update_device, online=True)
    watched.run(7)
    assert online()
    watched.run(59, 60, 119, 120, 3599, 3600, 3659)
    assert seen == {"sickness": [60, 120, 3599, 3659], "cleanup": [0, 3600]}


def test_a_job_says_what_it_waits_for_until_its_deadline(watched: Watched) -> None:
    job = watched.do(jobs.create, new_job(1, queue_deadline_s=30), now=at(0))

    def reason() -> str | None:
        stored: JobRow = watched.do(jobs.get, job.id)
        return stored.waiting_reason

    watched.run(0)
    assert reason() == f"no live worker serves the queue {QUEUE}"
    alive = {"device": DEVICE, "host": HOST, "attempt": None}
    watched.do(workers.heard, "w", queues=[QUEUE], now=at(1), **alive)
    watched.run(1)
    assert reason() is None
    watched.run(30)
    assert reason() is not None
    watched.run(31)
    assert watched.do(jobs.get, job.id).state == "failed"


def test_a_cancel_that_workers_ignore_ends_the_job_after_two_timeouts(watched: Watched) -> None:
    job, attempt = watched.running(0)
    watched.do(jobs.cancel, job, now=at(0))
    for second in (0, 4, 8):
        watched.do(attempts.heartbeat, attempt, seed=0, stage="running", now=at(second))
        watched.run(second)
    assert watched.do(jobs.get, job).state == "cancelling"
    watched.run(9)
    assert watched.do(jobs.get, job).state == "cancelled"
