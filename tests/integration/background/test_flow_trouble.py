"""`gonogo background` while something that it needs is away: the broker, the database, the disk,
the migration."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from typing import Any

import pytest
from celery.worker import state as celery_state
from sqlalchemy import Engine, text

from background_thread import broker, numbers, running, short, submit, until
from database_params import BOTH
from gonogo_service.devices import workers
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.engine import is_postgres, make_engine, reading, session
from gonogo_service.operate import schema
from gonogo_workers import queue
from job_flow import SimulatedWorker, enroll, row
from patience import WAIT_S, scaled
from running_service import until as eventually
from servers import PostgresServer, RedisServer
from stored_attempts import attempts_of


@pytest.fixture
def database_url(lite_database_url: str) -> str:
    """SQLite; both databases where what a test is about differs between them."""
    return lite_database_url


def test_background_survives_a_restart_of_redis(
    database_url: str, engine: Engine, private_redis: RedisServer
) -> None:
    enroll(engine)
    # on a busy machine nobody sends a heartbeat for seconds, and the reaper must not step in
    settings = short(database_url, private_redis.url).model_copy(
        update={"heartbeat_timeout_s": scaled(5)}
    )
    worker = SimulatedWorker(private_redis.url)
    with running(settings):
        with worker.alive():
            job_id = submit(engine, settings, 4, chunk_seconds=0.006)
            first = worker.take()
            worker.start(first)
            until(engine, job_id, lambda job: job.state == "running")
        private_redis.stop()
        # it starts empty: unstarted attempts and results on their way are gone
        private_redis.start()
        worker.close()
        worker = SimulatedWorker(private_redis.url)
        with worker.alive(first["attempt"]):
            worker.send(first, [row(seed) for seed, _ in first["work"]])
            worker.finish(first)
            until(engine, job_id, lambda job: job.done >= len(first["work"]))
            deadline, seen_attempts = time.monotonic() + WAIT_S, {first["attempt"]}
            while (
                until(engine, job_id, lambda job: True).state != "finished"
                and time.monotonic() < deadline
            ):
                with suppress(
                    TimeoutError
                    # a message that was published during the restart may be there twice: a
                    # worker runs it once
                ):
                    chunk = worker.take(0.5)
                    if chunk["attempt"] not in seen_attempts:
                        seen_attempts.add(chunk["attempt"])
                        worker.run(chunk)
        until(engine, job_id, lambda job: job.state == "finished")
    assert numbers(engine, job_id) == [0, 1, 2, 3]
    worker.close()


@BOTH
def test_messages_in_hand_while_redis_restarts_don_t_stall_the_consumer(
    database_url: str, engine: Engine, private_redis: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    """The messages can't be acknowledged. Each would hold one of the consumer's two places for
    ever; a consumer without a free place reads no more."""
    enroll(engine)
    settings = short(database_url, private_redis.url)
    worker = SimulatedWorker(private_redis.url)
    with running(settings):
        worker.beat()
        eventually(lambda: _heard(engine) and not celery_state.active_requests)
        with session(engine) as current:
            # On SQLite whatever a session does takes the lock of the whole database
            current.execute(
                text(
                    "LOCK TABLE workers IN ACCESS EXCLUSIVE MODE"
                    if is_postgres(current)
                    else "SELECT 1"
                )
            )
            worker.beat()
            worker.beat()
            # Redis knows of a message before Celery has it in hand
            eventually(lambda: len(celery_state.active_requests) == 2)
            private_redis.stop()
        # both are stored; Celery acknowledges one at once, the other one perhaps when Redis is back
        eventually(lambda: not celery_state.active_requests)
        eventually(lambda: "Couldn't ack" in caplog.text)
        private_redis.start()
        worker.close()
        worker = SimulatedWorker(private_redis.url)
        with broker(settings) as redis:
            worker.beat()
            eventually(
                lambda: redis.llen(queue.HEARTBEAT_QUEUE) == 0 and redis.hlen("unacked") == 0
            )
    worker.close()


def _heard(engine: Engine) -> bool:
    with reading(engine) as current:
        return bool(workers.list_(current).items)


def test_a_dead_process_s_messages_come_back_at_every_look(redis_url: str) -> None:
    app = queue.make_app(redis_url, visibility_timeout_s=60)
    with app.connection_for_read() as connection, closing(queue.redis_client(redis_url)) as client:
        channel = connection.default_channel
        channel._active_queues.append(queue.BACKGROUND_QUEUE)
        for number in range(1, 3):
            client.hset("unacked", "tag", f"{queue.BACKGROUND_QUEUE} text")
            client.zadd("unacked_index", {"tag": 1.0})
            connection.transport.cycle.maybe_restore_messages()
            assert client.llen(queue.BACKGROUND_QUEUE) == number
    app.close()


def test_results_wait_for_a_database_that_is_away(
    private_postgres: PostgresServer, redis_url: str
) -> None:
    engine = make_engine(private_postgres.url())
    schema.upgrade(engine)
    enroll(engine)
    settings = short(private_postgres.url(), redis_url)
    worker = SimulatedWorker(redis_url)
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
            assert len(attempts_of(current, job_id)) == 1  # nothing was lost, so nothing ran again
    assert job.counts == {"pass": 3}
    worker.close()
    engine.dispose()


def test_results_wait_while_the_disk_is_full(
    sqlite_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = make_engine(sqlite_url)
    schema.upgrade(engine)
    enroll(engine)
    settings = short(sqlite_url, redis_url)
    worker = SimulatedWorker(redis_url)
    full = threading.Event()
    patched_begin = engines._begin_sqlite

    def begin(connection: Any) -> None:
        # 1 stands for the present size, which SQLite never cuts
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if full.is_set() else 2**30}")
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
    worker.close()
    engine.dispose()


def test_background_waits_for_the_migration(empty_database_url: str, redis_url: str) -> None:
    engine = make_engine(empty_database_url)
    settings = short(empty_database_url, redis_url)
    worker = SimulatedWorker(redis_url)
    worker.beat()
    with running(settings), broker(settings) as redis:
        time.sleep(0.3)
        assert redis.llen(queue.HEARTBEAT_QUEUE) == 1  # untouched
        schema.upgrade(engine)
        enroll(engine)
        eventually(lambda: redis.llen(queue.HEARTBEAT_QUEUE) == 0)
        job_id = submit(engine, settings, 1)
        with worker.alive():
            worker.run(worker.take())
        until(engine, job_id, lambda job: job.state == "finished")
    worker.close()
    engine.dispose()
