"""Readiness: whether the database, its schema and the broker answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog
from anyio import CapacityLimiter, to_thread
from redis import RedisError
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from gonogo_service.kit.notifier import DispatchNotifier
from gonogo_service.kit.problems import Problem, entry
from gonogo_service.operate import schema

KEPT_S = 1.0
"""Probes within this time get the last answer, if it was ready; any other is checked again."""
PATIENCE_S = 2.0
"""A check that runs for longer isn't ready: a frozen database never answers."""
_log = structlog.get_logger("gonogo.service")


@dataclass(frozen=True)
class Ready:
    """The answer of a process whose parts all answer."""

    database: str
    schema: str
    broker: str


class Readiness:
    """Runs the check in a thread, one at a time; probes that come meanwhile share it."""

    def __init__(self, check: Callable[[], Ready]) -> None:
        self._check = check
        self._running: asyncio.Task[Ready] | None = None
        self._ready: tuple[float, Ready] | None = None

    async def state(self) -> Ready:
        """Return what the check returns. Raises what it raises, or Problem 503 if it takes long."""
        if self._ready is not None and time.monotonic() - self._ready[0] < KEPT_S:
            return self._ready[1]
        running, loop = self._running, asyncio.get_running_loop()
        if running is None or running.done() or running.get_loop() is not loop:
            running = self._running = loop.create_task(self._run(), name="readiness")
        done, _ = await asyncio.wait({running}, timeout=PATIENCE_S)
        if not done:  # its thread goes on, and later probes wait for it
            raise Problem(
                503,
                f"Not ready: the database and the broker did not answer within {PATIENCE_S:g} s.",
                slug="not-ready",
                errors=[entry("check", "unanswered", "takes too long", f"{PATIENCE_S:g} s")],
            )
        return running.result()

    async def _run(self) -> Ready:
        self._ready = None
        # a limiter of its own: a probe must not wait for the threads of other requests
        ready = await to_thread.run_sync(self._check, limiter=CapacityLimiter(1))
        self._ready = time.monotonic(), ready
        return ready


def check(probe: Engine, notifier: DispatchNotifier) -> Ready:
    """Return the state of all parts. Raises Problem 503, which names those that aren't ready.

    `probe` is an engine of its own: a probe must not wait for other requests.
    """
    status = {"database": "ok", "schema": "unknown", "broker": "ok"}
    problems: dict[str, str] = {}
    try:
        # a read transaction on SQLite as well: a probe must not wait for the write lock
        state = schema.state(probe.execution_options(gonogo_read=True))
    except (SQLAlchemyError, OSError) as problem:
        _log.warning("not ready", database=str(problem).splitlines()[0])
        status["database"] = "unreachable"
        problems["database"] = "the database can't be reached"
    else:
        status["schema"] = state.value
        if state not in schema.READY:
            problems["schema"] = f"the database's schema is {state.value}: run `gonogo db upgrade`"
    try:
        notifier.ping()
    except (RedisError, OSError) as problem:
        _log.warning("not ready", broker=str(problem))
        status["broker"] = "unreachable"
        problems["broker"] = "the broker can't be reached"
    if problems:
        raise Problem(
            503,
            "Not ready: " + "; ".join(problems.values()) + ".",
            slug="not-ready",
            errors=[
                {"field": name, "value": status[name], "limit": "ok", "message": text}
                for name, text in problems.items()
            ],
        )
    return Ready(**status)
