"""The reaper believes a worker's silence only where the queue of its messages is read."""

from __future__ import annotations

import threading
from datetime import timedelta
from types import SimpleNamespace

import pytest

from background_thread import short
from gonogo_service.background import reaper
from gonogo_service.background.reaper import Reaper
from gonogo_service.kit.background_context import open_background_context
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.engine import session
from gonogo_storage.jobs import attempts, chunks, jobs
from gonogo_storage.ops import schema
from gonogo_workers.queue import BACKGROUND_QUEUE, HEARTBEAT_QUEUE
from job_flow import QUEUE, new_job, row
from stored_attempts import attempts_of


@pytest.mark.parametrize(
    ("backlog", "reported"), [(HEARTBEAT_QUEUE, False), (BACKGROUND_QUEUE, True)]
)
def test_a_backlog_makes_no_worker_look_dead(
    migrated_sqlite_url: str,
    redis_url: str,
    monkeypatch: pytest.MonkeyPatch,
    backlog: str,
    reported: bool,
) -> None:
    context = open_background_context(short(migrated_sqlite_url, redis_url), threading.Event())
    schema.upgrade(context.engine)
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(reaper, "time", SimpleNamespace(monotonic=lambda: clock.now))
    long_ago = utcnow() - timedelta(hours=1)
    with session(context.engine) as current:
        job = jobs.create(current, new_job(2), now=long_ago)
        chunks.dispatch(current, chunks.choose(current, QUEUE, 9), now=long_ago)
        (item,) = attempts.unpublished(current, "epoch")
        attempts.published(current, [item.attempt], "epoch", now=long_ago)
        attempts.started(current, item.attempt, {"worker": "w"}, now=long_ago)
        if reported:  # of its two batches one is in the queue
            attempts.store(current, item.attempt, {"batch": 0, "rows": [row(0)]}, now=long_ago)
            body = {"outcome": "done", "sent": item.work, "batches": 2}
            attempts.finished(current, item.attempt, body, now=long_ago)
    watched = Reaper(context)

    def state_after(seconds: int) -> str:
        for _ in range(seconds):
            watched.run_once()
            clock.now += 1
        with session(context.engine) as current:
            return str(attempts_of(current, job.id)[0]["state"])

    context.redis.rpush(backlog, "a message that nobody has read yet")
    state, closed = ("reported", "done") if reported else ("running", "lost")
    assert state_after(20) == state
    context.redis.delete(backlog)
    assert state_after(1) == state
    assert state_after(5) == closed
    context.close()
