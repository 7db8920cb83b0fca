"""The resources of `gonogo background`: settings, engine, Redis, the stop event."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import structlog
from redis import Redis, RedisError
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from gonogo.settings import Settings
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.notifier import notify_dispatcher
from gonogo_service.kit.outbox import leases
from gonogo_workers.queue import redis_client

T = TypeVar("T")
Postpone = Callable[[Session, str, str], object]
"""Postpones what has this key, because of this error."""

DATABASE_AWAY = (OperationalError, InterfaceError, PoolTimeout)
BROKER_AWAY = (RedisError, OSError)
AWAY = (*DATABASE_AWAY, *BROKER_AWAY)

log = structlog.get_logger("gonogo.background")


@dataclass(frozen=True)
class BackgroundContext:
    """The shared resources of a background process; `open_background_context` creates one."""

    settings: Settings
    engine: Engine
    redis: Redis
    stop: threading.Event
    holder: str = field(default_factory=leases.new_holder)
    sleepers: list[threading.Event] = field(default_factory=list)
    """Set where there may be work: roles that found none wait for it."""

    def wake(self) -> None:
        """Let all roles of this process look for work."""
        for sleeper in self.sleepers:
            sleeper.set()

    def session(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one write transaction."""
        with engines.session(self.engine) as session:
            return work(session)

    def reading(self, work: Callable[[Session], T]) -> T:
        """Run `work` in one read transaction."""
        with engines.reading(self.engine) as session:
            return work(session)

    def handle_each(
        self,
        kind: str,
        keys: Iterable[str],
        handle: Callable[[str], object],
        postpone: Postpone | None = None,
        *,
        max_s: float = math.inf,
    ) -> int:
        """Handle what is due one by one; return for how many `handle` returned something true.

        One whose handling fails is logged as of its kind, postponed with the error's text, and
        stalls no other. Stops when the process does, and after `max_s` seconds. Raises the AWAY
        errors, which say nothing about what is handled.
        """
        began, count = time.monotonic(), 0
        for key in keys:
            if self.stop.is_set() or time.monotonic() - began > max_s:
                break
            try:
                count += bool(handle(key))
            except AWAY:
                raise
            except Exception as problem:
                log.exception("could not be handled; trying again later", kind=kind, id=key)
                if postpone is not None:
                    error = f"{type(problem).__name__}: {problem}"
                    with engines.session(self.engine) as session:
                        postpone(session, key, error)
        return count

    def notify(self) -> None:
        """Wake the dispatcher, wherever it runs; its poll makes up for a lost notification."""
        try:
            notify_dispatcher(self.redis)
        except BROKER_AWAY as problem:
            log.warning("dispatcher not notified", error=first_line(problem))

    def close(self) -> None:
        """Close every connection."""
        self.redis.close()
        self.engine.dispose()


def open_background_context(settings: Settings, stop: threading.Event) -> BackgroundContext:
    """Connect lazily to the database and the broker.

    Raises ValueError when a required setting is missing.
    """
    if settings.database_url is None or settings.broker_url is None or settings.secret_key is None:
        needed = ("database_url", "broker_url", "secret_key")
        missing = [f"GONOGO_{name.upper()}" for name in needed if getattr(settings, name) is None]
        raise ValueError(f"gonogo background needs {', '.join(missing)}")
    return BackgroundContext(
        settings=settings,
        engine=engines.make_engine(settings.database_url),
        redis=redis_client(settings.broker_url),
        stop=stop,
    )


def first_line(problem: BaseException) -> str:
    """Return the first line of an error's text; its type where it has none."""
    return (str(problem).splitlines() or [type(problem).__name__])[0]
