"""`gonogo background` in a thread of the test's process, and what a test of it does and looks
at."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import SecretStr
from redis import Redis
from sqlalchemy import Engine

from api import on_port
from gonogo.settings import Settings
from gonogo_service.background.process import create_background
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.engine import reading, session
from gonogo_service.results import seeds as results
from gonogo_workers import queue
from job_flow import KEY, SimulatedWorker, joined, new_job
from patience import WAIT_S, scaled
from stored_attempts import attempts_of

TIMEOUT_S = scaled(1.0)  # of heartbeats, in these tests


def short(database_url: str, broker_url: str) -> Settings:
    return Settings(
        database_url=database_url,
        broker_url=broker_url,
        secret_key=SecretStr(KEY),
        poll_s=0.2,
        heartbeat_s=0.2,
        heartbeat_timeout_s=TIMEOUT_S,
    )


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """`gonogo background` in a thread of this process; it must stop soon."""
    stop = threading.Event()
    thread = threading.Thread(target=create_background(settings, stop).run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(WAIT_S)
        assert not thread.is_alive()


@contextmanager
def served(settings: Settings) -> Iterator[str]:
    """The API of the same service, for hosts; its address."""
    assert settings.database_url is not None
    names = ("broker_url", "secret_key", "heartbeat_s", "heartbeat_timeout_s")
    with on_port(settings.database_url, **{name: getattr(settings, name) for name in names}) as (
        client,
        _,
    ):
        yield str(client.base_url).rstrip("/")


@contextmanager
def host(engine: Engine, settings: Settings) -> Iterator[SimulatedWorker]:
    """A simulated worker of a host that has joined, and the API that it talks to."""
    assert settings.broker_url is not None
    with served(settings) as url:
        worker = SimulatedWorker(url, settings.broker_url, joined(engine))
        yield worker
        worker.close()


def submit(engine: Engine, settings: Settings, seeds: int = 4, **changes: Any) -> str:
    """Submit as the API does: store, commit, notify the dispatcher."""
    with session(engine) as current:
        job = jobs.create(current, new_job(seeds, **changes))
    with broker(settings) as redis:
        redis.lpush(queue.DISPATCH_NOTIFICATION_KEY, "1")
    return job.id


def broker(settings: Settings) -> Redis:
    assert settings.broker_url is not None
    return Redis.from_url(settings.broker_url)


def numbers(engine: Engine, job_id: str) -> list[int]:
    with reading(engine) as current:
        return [item["seed"] for item in results.stream(current, job_id)]


def until(engine: Engine, job_id: str, true: Callable[[JobRow], object]) -> JobRow:
    """Look at the job until something is true of it."""
    deadline = time.monotonic() + WAIT_S
    while True:
        with reading(engine) as current:
            job = jobs.get(current, job_id)
            assert job is not None
            if true(job):
                return job
            tried = attempts_of(current, job_id)
        assert time.monotonic() < deadline, (job, tried)
        time.sleep(0.05)
