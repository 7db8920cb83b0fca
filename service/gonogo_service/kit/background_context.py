"""What every part of `gonogo background` needs: settings, engine, Celery app, Redis, and the word
to stop.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from celery import Celery
from kombu.exceptions import OperationalError as BrokerError
from redis import Redis, RedisError
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from gonogo_settings import Settings
from gonogo_storage.db import engine as engines
from gonogo_storage.db.ids import new_id
from gonogo_workers.queue import DOORBELL_KEY, EPOCH_KEY, make_app, redis_client

T = TypeVar("T")

DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeout)
BROKER_AWAY = (RedisError, BrokerError, OSError)
AWAY = (*DATABASE_AWAY, *BROKER_AWAY)

# results that a killed ingest had in hand come back after this (and at once if no other ingest
# lives)
VISIBILITY_TIMEOUT_S = 60

log = structlog.get_logger("gonogo.background")


class Stopping(Exception):
    """The process is being stopped while something waits for the database."""


@dataclass(frozen=True)
class Core:
    """Made once per process by `open_core`."""

    settings: Settings
    engine: Engine
    app: Celery
    redis: Redis
    key: str
    stop: threading.Event
    holder: str = field(default_factory=lambda: f"{socket.gethostname()}/{os.getpid()}/{new_id()}")

    def session(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one write transaction."""
        with engines.session(self.engine) as session:
            return work(session)

    def reading(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one read transaction."""
        with engines.reading(self.engine) as session:
            return work(session)

    def patiently(self, work: Callable[[Session], T]) -> T:
        """`session`, again and again while the database is away. Raises Stopping when the process
        is told to stop meanwhile.
        """
        delay = 0.05
        while True:
            try:
                return self.session(work)
            except DATABASE_AWAY as problem:
                log.warning("the database is away; waiting for it", error=_first_line(problem))
                if self.stop.wait(delay):
                    raise Stopping from problem
                delay = min(2 * delay, 5.0)

    def epoch(self) -> str:
        """The name of the present life of Redis: made new whenever it is gone, as after a flush.
        Raises RedisError.
        """
        with self.redis.pipeline() as pipe:
            pipe.set(EPOCH_KEY, new_id(), nx=True)
            pipe.get(EPOCH_KEY)
            _, value = pipe.execute()
        return str(value.decode())

    def ring(self) -> None:
        """Wake the dispatcher, wherever it runs; its poll makes up for a ring that is lost."""
        try:
            with self.redis.pipeline() as pipe:
                pipe.lpush(DOORBELL_KEY, "1")
                pipe.ltrim(DOORBELL_KEY, 0, 0)
                pipe.execute()
        except BROKER_AWAY as problem:
            log.warning("doorbell not rung", error=_first_line(problem))

    def close(self) -> None:
        """Give back every connection."""
        self.app.close()
        self.redis.close()
        self.engine.dispose()


def open_core(settings: Settings, stop: threading.Event) -> Core:
    """Connect (lazily) to database and broker. Raises ValueError when a setting that this process
    can't do without is missing.
    """
    missing = [
        name
        for name in ("database_url", "broker_url", "worker_key")
        if getattr(settings, name) is None
    ]
    if (
        missing
        or settings.database_url is None
        or settings.broker_url is None
        or settings.worker_key is None
    ):
        raise ValueError(
            "gonogo background needs " + ", ".join(f"GONOGO_{name.upper()}" for name in missing)
        )
    return Core(
        settings=settings,
        engine=engines.make_engine(settings.database_url),
        app=make_app(settings.broker_url, visibility_timeout_s=VISIBILITY_TIMEOUT_S),
        redis=redis_client(settings.broker_url),
        key=settings.worker_key.get_secret_value(),
        stop=stop,
    )


def _first_line(problem: BaseException) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
