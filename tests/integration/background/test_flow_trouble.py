"""`gonogo background` while something that it needs is away: the broker, the database, the disk,
the migration."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import Engine

from background_thread import host, numbers, running, short, submit, until
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.engine import make_engine, reading
from gonogo_service.operate import schema
from gonogo_workers.server.client import Refused
from gonogo_workers.server.sender import Sender
from job_flow import SimulatedWorker, row
from patience import scaled
from servers import PostgresServer, RedisServer
from stored_attempts import attempts_of


@pytest.fixture
def database_url(lite_database_url: str) -> str:
    """SQLite; both databases where what a test is about differs between them."""
    return lite_database_url


def test_a_restart_of_redis_costs_no_seed_and_no_try(
    database_url: str, engine: Engine, private_redis: RedisServer
) -> None:
    # on a busy machine nobody sends a heartbeat for seconds, and the reaper must not step in
    patience = {"heartbeat_timeout_s": scaled(5)}
    settings = short(database_url, private_redis.url).model_copy(update=patience)
    with host(engine, settings) as worker, running(settings), worker.alive():
        job_id = submit(engine, settings, 4, chunk_seconds=0.006)
        first = worker.take()
        private_redis.stop()
        private_redis.start()  # it starts empty: what woke nobody yet is gone
        worker.run(first)
        until(engine, job_id, lambda job: job.done >= len(first["work"]))
        while until(engine, job_id, lambda job: True).state != "finished":
            with suppress(TimeoutError, redis.ConnectionError, Refused):
                worker.run(worker.claim(worker.woken(0.5)))
        with reading(engine) as current:
            assert {tried["number"] for tried in attempts_of(current, job_id)} == {1}
    assert numbers(engine, job_id) == [0, 1, 2, 3]


def test_results_wait_for_a_database_that_is_away(
    private_postgres: PostgresServer, redis_url: str, tmp_path: Path
) -> None:
    engine = make_engine(private_postgres.url())
    schema.upgrade(engine)
    settings = short(private_postgres.url(), redis_url)
    with host(engine, settings) as worker, running(settings), worker.alive():
        job_id = submit(engine, settings, 3)
        chunk = worker.take()
        private_postgres.stop()
        sender = posted(worker, chunk, [[row(0), row(1)], [row(2)]], tmp_path)
        assert not sender.flush(0.5)
        private_postgres.start()
        job = until(engine, job_id, lambda job: job.state == "finished")
        sender.close(0)
        with reading(engine) as current:
            assert len(attempts_of(current, job_id)) == 1  # nothing was lost, so nothing ran again
    assert job.counts == {"pass": 3}
    engine.dispose()


def posted(
    worker: SimulatedWorker, chunk: dict[str, Any], batches: list[list[dict[str, Any]]], spool: Path
) -> Sender:
    """Hand the batches of an attempt and its end to a worker's sender."""
    sender, path = Sender(worker.server, spool), f"/attempts/{chunk['attempt']}"
    for number, rows in enumerate(batches):
        sender.post("PUT", f"{path}/results/{number}", {"rows": rows, "artifacts": []})
    done = {"outcome": "done", "sent": chunk["work"], "batches": len(batches)}
    sender.post("POST", f"{path}:finish", done)
    return sender


def test_results_wait_while_the_disk_is_full(
    sqlite_url: str, redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    engine = make_engine(sqlite_url)
    schema.upgrade(engine)
    settings = short(sqlite_url, redis_url)
    full = threading.Event()
    patched_begin = engines._begin_sqlite

    def begin(connection: Any) -> None:
        # 1 stands for the present size, which SQLite never cuts
        connection.exec_driver_sql(f"PRAGMA max_page_count = {1 if full.is_set() else 2**30}")
        patched_begin(connection)

    monkeypatch.setattr(engines, "_begin_sqlite", begin)
    with host(engine, settings) as worker, running(settings), worker.alive():
        job_id = submit(engine, settings, 200)
        chunk = worker.take()
        full.set()
        sender = posted(worker, chunk, [[row(seed) for seed in range(200)]], tmp_path)
        assert not sender.flush(0.5)
        assert until(engine, job_id, lambda job: True).done == 0
        full.clear()
        job = until(engine, job_id, lambda job: job.state == "finished")
        sender.close(0)
    assert job.counts == {"pass": 200}
    engine.dispose()


def test_background_waits_for_the_migration(empty_database_url: str, redis_url: str) -> None:
    engine = make_engine(empty_database_url)
    settings = short(empty_database_url, redis_url)
    with running(settings):
        time.sleep(0.3)
        schema.upgrade(engine)
        with host(engine, settings) as worker, worker.alive():
            job_id = submit(engine, settings, 1)
            worker.run(worker.take())
            until(engine, job_id, lambda job: job.state == "finished")
    engine.dispose()
