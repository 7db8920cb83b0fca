"""Bad luck with real processes: whatever is killed, flushed or restarted in mid job, the job ends
with every seed stored exactly once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from gonogo.cli.kit.client import Client
from patience import scaled
from records import pick
from running_service import (
    Service,
    answers,
    every_seed_once,
    family,
    gone,
    submit,
    until,
)
from servers import PostgresServer, RedisServer, running

SEEDS = int(scaled(30))
TARGET = {"executor": "troublesome", "arch": "wormhole", "board": "n150"}
SLOW: dict[str, Any] = {"build": "slow", "target": TARGET}
"""A plug-in kernel that takes 0.2 s a seed: a job of 6 s and more, so that bad luck strikes in its
middle."""


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL that these tests alone stop and start."""
    yield from running(PostgresServer)


@pytest.fixture(scope="module")
def broker() -> Iterator[RedisServer]:
    """A Redis that these tests alone flush, stop and start."""
    yield from running(RedisServer)


@pytest.fixture(scope="module")
def service(
    tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer, broker: RedisServer
) -> Iterator[Service]:
    """Yield one service for all these tests: it must recover from each before the next one."""
    settings = {"EXECUTORS": "troublesome=troublesome:Troublesome", "CHUNK_SECONDS": "2"}
    variables = {f"GONOGO_{name}": value for name, value in settings.items()}
    folder = tmp_path_factory.mktemp("service")
    new_service = Service(folder, postgres.url(), broker.url, **variables)
    new_service.workers.clear()
    try:
        new_service.start_all_but_workers()
        yield new_service
    finally:
        new_service.close()


@pytest.fixture
def place(service: Service) -> Iterator[Service]:
    """The service, ready, with one worker of the slow plug-in: the last one of the test before."""
    service.wait_ready()
    if not service.workers:
        service.add_worker("troublesome")
    yield service
    *others, _ = service.workers
    for worker in others:
        worker.close()
        service.workers.remove(worker)


def middle_of(place: Service, client: Client, job: str) -> None:
    """Wait until some of the job's seeds are stored, but not all."""

    def some() -> bool:
        progress = client.job(job)
        assert progress["state"] in {"queued", "running"}, progress
        return int(progress["done"]) >= 3

    until(some, what=lambda: f"the first results: {client.job(job)}\n{place.logs()}")


def restart_redis(place: Service, _postgres: PostgresServer, server: RedisServer) -> None:
    server.stop()
    until(lambda: not answers(place.url), what="the API to miss the broker")
    server.start()


def restart_postgres(place: Service, postgres: PostgresServer, _redis: RedisServer) -> None:
    postgres.stop()
    until(lambda: not answers(place.url), what="the API to miss the database")
    postgres.start()


MISFORTUNES: list[Callable[..., None]] = [restart_redis, restart_postgres]
"""The faults that take too long for the half minute of test_chaos.py, which has the others."""


@pytest.mark.parametrize("misfortune", MISFORTUNES, ids=lambda function: function.__name__)
def test_every_seed_is_stored_exactly_once(
    misfortune: Callable[..., None], place: Service, postgres: PostgresServer, broker: RedisServer
) -> None:
    with place.client() as client:
        job = submit(client, SEEDS, **SLOW)
        middle_of(place, client, job)
        misfortune(place, postgres, broker)
        place.wait_ready()
        ended = client.wait(job)
        assert ended["state"] == "finished", f"{ended}\n{place.logs()}"
        items = every_seed_once(client, job, range(SEEDS))
        assert {item["verdict"] for item in items} == {"pass"}, place.logs()
        assert pick(ended, "verdict", "counts", "done") == ("pass", {"pass": SEEDS}, SEEDS)


def test_a_running_job_is_cancelled_within_five_seconds_and_leaves_no_process(
    place: Service,
) -> None:
    with place.client() as client:
        job = submit(client, 1, build="stubborn-hang", target=TARGET)
        until(lambda: client.job(job)["state"] == "running", what="the kernel to run")
        until(lambda: len(family(place.workers[0].pid)) > 2, what="the kernel's own child")
        kernels = family(place.workers[0].pid)[1:]
        before = time.monotonic()
        client.call("POST", f"/jobs/{job}:cancel")
        until(lambda: client.job(job)["state"] == "cancelled", what="the cancel")
        took = time.monotonic() - before
        assert took < scaled(5), f"{took:.1f} s"
        until(lambda: gone(kernels), what="the kernel's processes to be gone")
        # and the worker goes on
        assert client.wait(submit(client, 2, build="fine", target=TARGET))["verdict"] == "pass"


def test_a_worker_that_is_told_to_stop_hands_its_work_to_the_next(place: Service) -> None:
    with place.client() as client:
        job = submit(client, SEEDS, **SLOW)
        middle_of(place, client, job)
        first = place.workers[0]
        left = family(first.pid)
        second = place.add_worker("troublesome")
        first.stop()
        until(lambda: gone(left), what="the stopped worker's processes to end")
        assert client.wait(job)["verdict"] == "pass"
        every_seed_once(client, job, range(SEEDS))
        assert psutil.pid_exists(second.pid)
