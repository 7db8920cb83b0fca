"""`gonogo background` with a real broker and both databases: from a stored job to its verdict, whatever breaks on the way."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from flows import KEY, QUEUE, SimulatedWorker, new_job, row
from pydantic import SecretStr
from redis import Redis
from servers import PostgresServer, RedisServer
from sqlalchemy import Engine, text

from service import background
from settings import Settings
from storage import engine as engines
from storage import jobs, leases, results, schema
from storage.engine import make_engine, reading, session
from storage.jobs import Job
from workers import queue

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 1.0  # of heartbeats, in these tests


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A migrated database."""
    made = make_engine(database_url)
    schema.upgrade(made)
    yield made
    made.dispose()


@pytest.fixture
def settings(database_url: str, redis_url: str, engine: Engine) -> Settings:
    """Settings of this test."""
    return short(database_url, redis_url)


def short(database_url: str, broker_url: str) -> Settings:
    """Settings with short times."""
    return Settings(
        database_url=database_url,
        broker_url=broker_url,
        worker_key=SecretStr(KEY),
        poll_s=0.1,
        heartbeat_s=0.2,
        heartbeat_timeout_s=TIMEOUT_S,
    )


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """`gonogo background` in a thread of this process; it must stop within a few seconds."""
    stop = threading.Event()
    thread = threading.Thread(target=background.run, args=(settings, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10.0)
        assert not thread.is_alive()


@pytest.fixture
def worker(settings: Settings) -> Iterator[SimulatedWorker]:
    """A simulated device worker on the same broker."""
    assert settings.broker_url is not None
    app = queue.make_app(settings.broker_url)
    yield SimulatedWorker(app)
    app.close()


def submit(engine: Engine, settings: Settings, seeds: int = 4, **changes: Any) -> str:
    """What the API does: store, commit, ring."""
    with session(engine) as current:
        job = jobs.create(current, new_job(seeds, **changes))
    with broker(settings) as redis:
        redis.lpush(queue.DOORBELL_KEY, "1")
    return job.id


def broker(settings: Settings) -> Redis:
    """A client of the broker."""
    assert settings.broker_url is not None
    return Redis.from_url(settings.broker_url)


def numbers(engine: Engine, job_id: str) -> list[int]:
    """The seeds that are stored."""
    with reading(engine) as current:
        return [item["seed"] for item in results.stream(current, job_id)]


def eventually(true: Callable[[], object], timeout_s: float = 20.0) -> None:
    """Look until it is true."""
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def until(engine: Engine, job_id: str, true: Callable[[Job], object], timeout_s: float = 20.0) -> Job:
    """Look at the job until something is true of it."""
    deadline = time.monotonic() + timeout_s
    while True:
        with reading(engine) as current:
            job = jobs.get(current, job_id)
            assert job is not None
            if true(job):
                return job
            tried = jobs.attempts_of(current, job_id)
        assert time.monotonic() < deadline, (job, tried)
        time.sleep(0.02)


def test_a_job_runs_from_the_doorbell_to_its_verdict(engine: Engine, settings: Settings, worker: SimulatedWorker) -> None:
    with running(settings), worker.alive():
        job_id = submit(engine, settings)
        chunk = worker.take()
        assert (chunk["job"], chunk["build"], chunk["work"]) == (job_id, "tt-train-2025", [[0, 0], [1, 0], [2, 0], [3, 0]])
        assert chunk["test"]["kernel"] == "layernorm_bw"
        assert (chunk["context"], chunk["artifacts"]["first"]) == ("isolated", True)
        worker.start(chunk)
        until(engine, job_id, lambda job: job.state == "running")
        worker.send(chunk, [row(0), row(1)])
        until(engine, job_id, lambda job: job.done == 2)
        worker.send(chunk, [row(2), row(3)], batch=1)
        worker.finish(chunk, batches=2)
        job = until(engine, job_id, lambda job: job.state == "finished")
    assert (job.verdict, job.counts, job.open_chunks) == ("pass", {"pass": 4}, 0)


def test_two_unstarted_chunks_per_live_worker_and_no_more(engine: Engine, settings: Settings, worker: SimulatedWorker) -> None:
    with running(settings), worker.alive(), broker(settings) as redis:
        job_id = submit(engine, settings, 6, chunk_seconds=1e-6)
        chunk = worker.take()
        for started in range(1, 7):
            eventually(lambda started=started: redis.llen(QUEUE) == min(1, 6 - started))  # one taken and not started, one waiting
            worker.run(chunk)
            eventually(lambda started=started: redis.llen(QUEUE) == min(2, 6 - started))
            if started < 6:
                chunk = worker.take()
        job = until(engine, job_id, lambda job: job.state == "finished")
    assert (job.chunks, job.counts) == (6, {"pass": 6})


def test_messages_with_a_wrong_signature_or_for_another_task_change_nothing(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings), worker.alive():
        job_id = submit(engine, settings, 1)
        chunk = worker.take()
        body = {"attempt": chunk["attempt"], "batch": 0, "rows": [row(0, verdict="fail")], "artifacts": []}
        queue.send(worker.app, "x" * 32, queue.BACKGROUND_QUEUE, queue.RESULTS, body)
        sealed = queue.seal(KEY, queue.HEARTBEAT, body)
        queue.publish(worker.app, queue.BACKGROUND_QUEUE, queue.RESULTS, *sealed)
        queue.send(worker.app, KEY, queue.BACKGROUND_QUEUE, queue.RESULTS, {"attempt": chunk["attempt"], "rows": [{"nonsense": 1}]})
        worker.run(chunk)
        job = until(engine, job_id, lambda job: job.state == "finished")
    assert job.counts == {"pass": 1}


def test_a_silent_attempt_is_given_up_and_exactly_the_rest_is_asked_for_again(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings), worker.alive():
        job_id = submit(engine, settings)
        lost = worker.take()
        worker.start(lost)
        worker.send(lost, [row(0), row(1)])
        began = time.monotonic()
        again = worker.take()
        assert time.monotonic() - began > TIMEOUT_S
        assert again["work"] == [[2, 0], [3, 0]]
        worker.run(again)
        until(engine, job_id, lambda job: job.state == "finished")
        assert numbers(engine, job_id) == [0, 1, 2, 3]


def test_an_attempt_that_sends_heartbeats_is_never_given_up(engine: Engine, settings: Settings, worker: SimulatedWorker) -> None:
    with running(settings):
        worker.beat()
        job_id = submit(engine, settings)
        chunk = worker.take()
        worker.start(chunk)
        with worker.alive(chunk["attempt"]):
            time.sleep(3 * TIMEOUT_S)
        with reading(engine) as current:
            (tried,) = jobs.attempts_of(current, job_id)
    assert tried["state"] == "running"


def test_a_message_that_died_in_a_workers_hand_is_sent_as_a_new_attempt(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings), worker.alive():
        job_id = submit(engine, settings)
        first = worker.take()  # and nothing more is heard of it
        second = worker.take()
        assert second["attempt"] != first["attempt"]
        assert second["work"] == first["work"]
        worker.run(second)
        until(engine, job_id, lambda job: job.state == "finished")


def test_after_a_flush_unstarted_attempts_are_sent_again(engine: Engine, settings: Settings, worker: SimulatedWorker) -> None:
    with running(settings), worker.alive(), broker(settings) as redis:
        job_id = submit(engine, settings, 2, chunk_seconds=1e-6)
        eventually(lambda: redis.llen(QUEUE) == 2)
        redis.flushdb()
        chunks = [worker.take(), worker.take()]
        for chunk in chunks:
            worker.run(chunk)
        job = until(engine, job_id, lambda job: job.state == "finished")
        with reading(engine) as current:
            assert len(jobs.attempts_of(current, job_id)) == 2
    assert job.counts == {"pass": 2}


def test_cancel_reaches_a_running_worker_at_once(engine: Engine, settings: Settings, worker: SimulatedWorker) -> None:
    with running(settings), worker.alive(), broker(settings) as redis:
        job_id = submit(engine, settings, 3, chunk_seconds=1e-6)
        chunk = worker.take()
        worker.start(chunk)
        until(engine, job_id, lambda job: job.state == "running")
        with session(engine) as current:
            jobs.cancel(current, job_id)
        redis.lpush(queue.DOORBELL_KEY, "1")
        eventually(lambda: redis.exists(queue.cancel_key(chunk["attempt"])))
        redis.flushdb()
        eventually(lambda: redis.exists(queue.cancel_key(chunk["attempt"])))  # a flush doesn't save it
        worker.send(chunk, [row(0)])
        worker.finish(chunk, sent=[[0, 0]], outcome="cancelled", batches=1)
        job = until(engine, job_id, lambda job: job.state == "cancelled")
    assert job.counts == {"pass": 1}


def test_a_job_without_a_worker_says_so_and_fails_at_its_deadline(engine: Engine, settings: Settings) -> None:
    with running(settings):
        job_id = submit(engine, settings, queue_deadline_s=0.8)
        until(engine, job_id, lambda job: job.waiting_reason)
        job = until(engine, job_id, lambda job: job.state == "failed")
    assert job.error is not None
    assert QUEUE in job.error


def test_two_copies_share_the_work_and_store_every_seed_once(engine: Engine, settings: Settings, worker: SimulatedWorker) -> None:
    patient = settings.model_copy(update={"heartbeat_timeout_s": 30.0})  # a machine under load must not make the reaper step in
    with ExitStack() as copies:
        for _ in range(2):
            copies.enter_context(running(patient))
        copies.enter_context(worker.alive())
        job_id = submit(engine, settings, 40, chunk_seconds=0.04)
        count = until(engine, job_id, lambda job: True).chunks
        assert count > 2
        for _ in range(count):
            chunk = worker.take()
            worker.start(chunk)
            for number, (seed, repeat) in enumerate(chunk["work"]):
                worker.send(chunk, [row(seed, repeat)], batch=number)
                worker.send(chunk, [row(seed, repeat)], batch=number)  # redelivered, perhaps to the other copy at the same moment
            worker.finish(chunk, batches=len(chunk["work"]))
        job = until(engine, job_id, lambda job: job.state == "finished")
        with reading(engine) as current:
            held = leases.holders(current)
            assert len({name for name in held if name.startswith("presence/")}) == 2
            assert {"dispatcher", "reaper", "delivery"} <= set(held)
            assert len(jobs.attempts_of(current, job_id)) == count
    assert (job.done, job.counts) == (40, {"pass": 40})
    assert numbers(engine, job_id) == list(range(40))
    with reading(engine) as current:
        assert leases.holders(current) == {}  # a successor needn't wait


def test_background_survives_a_restart_of_redis(database_url: str, engine: Engine, private_redis: RedisServer) -> None:
    settings = short(database_url, private_redis.url)
    app = queue.make_app(private_redis.url)
    worker = SimulatedWorker(app)
    with running(settings):
        worker.beat()
        job_id = submit(engine, settings, 4, chunk_seconds=0.006)
        first = worker.take()
        worker.start(first)
        until(engine, job_id, lambda job: job.state == "running")
        private_redis.stop()
        private_redis.start()  # with nothing in it: unstarted attempts and results on their way are gone
        app.close()
        app = queue.make_app(private_redis.url)
        worker = SimulatedWorker(app)
        with worker.alive(first["attempt"]):
            worker.send(first, [row(seed) for seed, _ in first["work"]])
            worker.finish(first)
            until(engine, job_id, lambda job: job.done >= len(first["work"]))
            while until(engine, job_id, lambda job: True).open_chunks:
                worker.run(worker.take())
                time.sleep(0.1)
        until(engine, job_id, lambda job: job.state == "finished")
    assert numbers(engine, job_id) == [0, 1, 2, 3]
    app.close()


def test_results_wait_for_a_database_that_is_away(private_postgres: PostgresServer, redis_url: str) -> None:
    engine = make_engine(private_postgres.url())
    schema.upgrade(engine)
    settings = short(private_postgres.url(), redis_url)
    app = queue.make_app(redis_url)
    worker = SimulatedWorker(app)
    with running(settings), worker.alive():
        job_id = submit(engine, settings, 3)
        chunk = worker.take()
        worker.start(chunk)
        until(engine, job_id, lambda job: job.state == "running")
        private_postgres.stop()
        worker.send(chunk, [row(0), row(1)])
        worker.send(chunk, [row(2)], batch=1)
        worker.finish(chunk, batches=2)
        time.sleep(0.5)
        private_postgres.start()
        job = until(engine, job_id, lambda job: job.state == "finished")
        with reading(engine) as current:
            assert len(jobs.attempts_of(current, job_id)) == 1  # nothing was lost, so nothing ran again
    assert job.counts == {"pass": 3}
    app.close()
    engine.dispose()


def test_results_wait_while_the_disk_is_full(sqlite_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine(sqlite_url)
    schema.upgrade(engine)
    settings = short(sqlite_url, redis_url)
    app = queue.make_app(redis_url)
    worker = SimulatedWorker(app)
    with session(engine) as current:
        pages = current.scalar(text("PRAGMA page_count"))
    full = threading.Event()
    patched_begin = engines._begin_sqlite

    def begin(connection: Any) -> None:
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages + 30 if full.is_set() else 2**30}")
        patched_begin(connection)

    monkeypatch.setattr(engines, "_begin_sqlite", begin)
    with running(settings), worker.alive():
        job_id = submit(engine, settings, 200)
        chunk = worker.take()
        worker.start(chunk)
        until(engine, job_id, lambda job: job.state == "running")
        full.set()
        worker.send(chunk, [row(seed) for seed in range(200)])
        worker.finish(chunk, batches=1)
        time.sleep(0.5)
        assert until(engine, job_id, lambda job: True).done == 0
        full.clear()
        job = until(engine, job_id, lambda job: job.state == "finished")
    assert job.counts == {"pass": 200}
    app.close()
    engine.dispose()


def test_messages_that_a_killed_ingest_had_in_hand_come_back_at_its_successors_start(
    engine: Engine, settings: Settings, worker: SimulatedWorker
) -> None:
    with running(settings):
        worker.beat()
        job_id = submit(engine, settings, 1)
        chunk = worker.take()
        worker.start(chunk)
        until(engine, job_id, lambda job: job.state == "running")
    worker.send(chunk, [row(0)])
    worker.finish(chunk, batches=1)
    dying = (
        "import os, sys; from workers import queue; app = queue.make_app(sys.argv[1]); c = app.connection_for_read(); "
        "q = c.SimpleQueue('background'); q.get(timeout=5); q.get(timeout=5); os._exit(9)"
    )
    assert subprocess.run([sys.executable, "-c", dying, str(settings.broker_url)], check=False, cwd=ROOT).returncode == 9
    with broker(settings) as redis:
        assert (redis.llen(queue.BACKGROUND_QUEUE), redis.hlen("unacked")) == (0, 2)
    with running(settings), worker.alive(chunk["attempt"]):
        job = until(engine, job_id, lambda job: job.state == "finished")
        with reading(engine) as current:
            assert len(jobs.attempts_of(current, job_id)) == 1
    assert job.counts == {"pass": 1}


def test_missing_settings_are_named() -> None:
    with pytest.raises(ValueError, match="GONOGO_BROKER_URL, GONOGO_WORKER_KEY"):
        background.run(Settings(database_url="sqlite:///x"), threading.Event())


def test_background_waits_for_the_migration(database_url: str, redis_url: str) -> None:
    engine = make_engine(database_url)
    settings = short(database_url, redis_url)
    app = queue.make_app(redis_url)
    worker = SimulatedWorker(app)
    worker.beat()
    with running(settings), broker(settings) as redis:
        time.sleep(0.3)
        assert redis.llen(queue.HEARTBEAT_QUEUE) == 1  # untouched
        schema.upgrade(engine)
        eventually(lambda: redis.llen(queue.HEARTBEAT_QUEUE) == 0)
        job_id = submit(engine, settings, 1)
        with worker.alive():
            worker.run(worker.take())
        until(engine, job_id, lambda job: job.state == "finished")
    app.close()
    engine.dispose()
