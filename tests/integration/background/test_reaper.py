"""The reaper: whom it believes dead, when, and what it does at which intervals.

The broker and the database are real; the test sets the clocks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from sqlalchemy import select, update

from background_thread import short
from gonogo_service.background import reaper
from gonogo_service.background.reaper import Reaper
from gonogo_service.devices import heartbeats, workers
from gonogo_service.devices.model import DeviceRow
from gonogo_service.jobs import attempts
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.dispatching import Sendable
from gonogo_service.jobs.model import AttemptRow, JobRow
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import presence
from gonogo_workers import queue
from job_flow import DEVICE, HOST, QUEUE, row
from stored_flow import Flow

TIMEOUT_S = 4.0
BEGIN, BEGIN_TICK = utcnow().replace(microsecond=0), 1000.0


def at(second: float) -> datetime:
    return BEGIN + timedelta(seconds=second)


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

    @contextmanager
    def flow(self) -> Iterator[Flow]:
        """A transaction beside the reaper's."""
        with session(self.context.engine) as current:
            yield Flow(current)

    def api_is_back(self) -> None:
        """Have a process of the API present."""
        with self.flow() as flow:
            leases.acquire(flow.session, f"{presence.API}1", "api", 3600.0)

    def api_is_away(self) -> None:
        """Have none present."""
        with self.flow() as flow:
            leases.release(flow.session, "api")

    def run(self, *seconds: float) -> None:
        """Run a pass at each of these times."""
        for self.second in seconds:
            self.reaper.run_once()

    def sent(self, second: float, *, start: bool = False) -> Sendable:
        """Store a job of one seed, and its attempt that was sent then; with `start`, it runs."""
        with self.flow() as flow:
            flow.submit(1, now=at(second))
            (item,) = flow.send(start=start, now=at(second))
            return item

    def beat(self, item: Sendable, second: float, worker: str | None = None) -> None:
        """Have an attempt heard of."""
        with self.flow() as flow:
            about = {"seed": 0, "stage": "running", "worker": worker}
            attempts.heartbeat(flow.session, item.attempt, **about, now=at(second))

    def states(self, *items: Sendable) -> list[str]:
        """Return the states of attempts."""
        with reading(self.context.engine) as current:
            return [str(current.get_one(AttemptRow, item.attempt).state) for item in items]

    def job(self, job_id: str) -> JobRow:
        with reading(self.context.engine) as current:
            return current.get_one(JobRow, job_id)


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
    item = watched.sent(-3600, start=True)
    if reported:  # of its two batches one is on its way
        with watched.flow() as flow:
            flow.store(item, row(0), now=at(-3600))
            flow.finish(item, batches=2, now=at(-3600))
    redis = watched.context.redis
    state, closed = ("reported", "done") if reported else ("running", "lost")
    watched.run(*range(0, 40, 4))
    assert watched.states(item) == [state]
    watched.api_is_back()
    watched.run(40, 43)
    assert watched.states(item) == [state]
    assert not redis.exists(queue.DISPATCH_NOTIFICATION_KEY)
    watched.run(44)
    assert watched.states(item) == [closed]
    assert redis.exists(queue.DISPATCH_NOTIFICATION_KEY)


def test_a_worker_is_silent_after_the_timeout_and_not_before(watched: Watched) -> None:
    watched.run(0)
    early, late = (watched.sent(6, start=True) for _ in range(2))
    watched.beat(late, 7, worker="w")
    watched.run(10)
    assert watched.states(early, late) == ["running", "running"]
    watched.run(11)
    assert watched.states(early, late) == ["lost", "running"]


def test_an_attempt_that_nobody_claims_is_never_lost(watched: Watched) -> None:
    items = [watched.sent(second) for second in (-3600, 0)]
    watched.run(0, 40, 80)
    assert watched.states(*items) == ["sent", "sent"]


def test_what_was_seen_before_the_database_was_away_proves_nothing(watched: Watched) -> None:
    item = watched.sent(-9, start=True)
    watched.run(0, 3)
    watched.reaper.reset()
    watched.run(4, 7)
    assert watched.states(item) == ["running"]
    watched.run(8)
    assert watched.states(item) == ["lost"]


def test_each_duty_has_its_own_interval(watched: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[float]] = {"sickness": [], "cleanup": []}

    def record(duty: str) -> Callable[..., None]:
        return lambda *_: seen[duty].append(watched.second)

    monkeypatch.setattr(reaper, "mark_suspects", record("sickness"))
    monkeypatch.setattr(Reaper, "_sweep", record("cleanup"))
    facts = {"device": DEVICE, "host": HOST, "queue": QUEUE, "name": "emulator:0"}
    facts |= {"arch": "wormhole", "board": "n150", "source": "emulator"}
    with watched.flow() as flow:
        heartbeats.heard(flow.session, facts, worker="w", attempt=None, now=at(-60))

    def online() -> bool:
        with reading(watched.context.engine) as current:
            return bool(current.scalar(select(DeviceRow.online)))

    watched.run(0, 3)
    assert online()
    watched.run(4)
    assert not online()
    with watched.flow() as flow:
        flow.session.execute(update(DeviceRow).values(online=True))
    watched.run(7)
    assert online()
    watched.run(59, 60, 119, 120, 3599, 3600, 3659)
    assert seen == {"sickness": [60, 120, 3599, 3659], "cleanup": [0, 3600]}


def test_a_job_says_what_it_waits_for_until_its_deadline(watched: Watched) -> None:
    with watched.flow() as flow:
        job_id = flow.submit(1, queue_deadline_s=30, now=at(0)).id
    watched.run(0)
    reason = f"no live worker serves the queue {QUEUE}"
    assert watched.job(job_id).waiting_reason == reason
    alive = {"device": DEVICE, "host": HOST, "attempt": None, "queues": [QUEUE]}
    with watched.flow() as flow:
        workers.heard(flow.session, "w", now=at(1), **alive)
    watched.run(1)
    assert watched.job(job_id).waiting_reason is None
    watched.run(30)
    assert watched.job(job_id).waiting_reason == reason
    watched.run(31)
    assert watched.job(job_id).state == "failed"


def test_a_cancel_that_workers_ignore_ends_the_job_after_two_timeouts(watched: Watched) -> None:
    item = watched.sent(0, start=True)
    with watched.flow() as flow:
        jobs.cancel(flow.session, item.job, now=at(0))
    for second in (0, 4, 8):
        watched.beat(item, second)
        watched.run(second)
    assert watched.job(item.job).state == "cancelling"
    watched.run(9)
    assert watched.job(item.job).state == "cancelled"
