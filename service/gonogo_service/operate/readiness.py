"""Readiness: a probe is answered at once, also while the process has more to do than it can."""

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

SOON_S = 0.02
"""A probe waits this long for its check. On an idle service that takes 2 to 4 ms."""
KEPT_S = 30.0
"""A longer check is answered by the last one, if that found everything ready and is younger."""
BUSY_S = 0.5
"""After a check that took longer than SOON_S, the next one begins this much later by itself, so
that a busy process has a fresh answer for its next probe."""
FRESH_S = 2 * BUSY_S
"""A busy process answers at once from a check that ended this recently."""
UNPROBED_S = 60.0
"""Checks begin by themselves only this long after a probe. Load balancers ask more often."""
PATIENCE_S = 2.0
"""A check that runs for longer isn't ready: a frozen database never answers, and a busy process
needs less than a second."""
_log = structlog.get_logger("gonogo.service")


@dataclass(frozen=True)
class Ready:
    """The answer of a process whose parts all answer."""

    database: str
    schema: str
    broker: str


class Readiness:
    """Runs the check of the probes in a thread, one at a time.

    A check crosses threads and waits for answers. Where other threads compute, it gets its turn
    late, and a probe that waits for it takes a busy service for a dead one. So each check of a busy
    process is followed by the next, and probes wait for none. What isn't ready is never kept, and
    ends what was kept before: the next probe waits for its check.
    """

    def __init__(self, check: Callable[[], Ready]) -> None:
        self._check = check
        self._running: asyncio.Task[Ready] | None = None
        self._started = 0.0
        self._ready: tuple[float, Ready] | None = None
        self._took = 0.0
        self._probed = 0.0
        self._next: asyncio.TimerHandle | None = None

    async def state(self) -> Ready:
        """Return what the check returns. Raises what it raises, or Problem 503 if it takes long."""
        self._probed = time.monotonic()
        running = self._begin()
        ends = self._started + PATIENCE_S
        if self._took > SOON_S and (state := self._last_ready(FRESH_S, ends)):
            return state
        done, _ = await asyncio.wait({running}, timeout=min(SOON_S, _until(ends)))
        if not done and (state := self._last_ready(KEPT_S, ends)):
            return state
        done, _ = await asyncio.wait({running}, timeout=_until(ends))
        if not done:
            raise _unanswered()
        return running.result()

    def _begin(self) -> asyncio.Task[Ready]:
        """Return the check that runs; where none does, begin one."""
        running = self._running
        if running is None or running.done() or running.get_loop() is not _loop():
            self._started = time.monotonic()
            running = self._running = _loop().create_task(self._run(), name="readiness")
            running.add_done_callback(_look)
        return running

    def _last_ready(self, seconds: float, ends: float) -> Ready | None:
        """Return the last good answer; None if it is older, or the running check is overdue."""
        if self._ready is None or time.monotonic() >= ends:
            return None
        at, state = self._ready
        return state if time.monotonic() - at <= seconds else None

    def _go_on(self) -> None:
        if time.monotonic() - self._probed <= UNPROBED_S:
            self._begin()

    async def _run(self) -> Ready:
        try:
            # a limiter of its own: a probe must not wait for the threads of other requests
            state = await to_thread.run_sync(self._check, limiter=CapacityLimiter(1))
        except Exception:
            self._ready = None
            raise
        now = time.monotonic()
        self._ready = now, state
        self._took = now - self._started
        if self._next is not None:
            self._next.cancel()
        if self._took > SOON_S:
            self._next = _loop().call_later(BUSY_S, self._go_on)
        return state


def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


def _until(moment: float) -> float:
    return max(0.0, moment - time.monotonic())


def _unanswered() -> Problem:
    """Return the 503 of a check that doesn't end; its thread goes on, and nobody waits for it."""
    return Problem(
        503,
        f"Not ready: the database and the broker did not answer within {PATIENCE_S:g} s.",
        slug="not-ready",
        errors=[entry("check", "unanswered", "takes too long", f"{PATIENCE_S:g} s")],
    )


def _look(task: asyncio.Task[Ready]) -> None:
    """Look at the exception, which is no news where no probe waits for it any more."""
    if not task.cancelled():
        task.exception()


def check(probe: Engine, notifier: DispatchNotifier) -> Ready:
    """Return the state of all parts. Raises Problem 503, which names those that aren't ready.

    `probe` is an engine of its own: a probe must not wait for other requests.
    """
    status = {"database": "ok", "schema": "unknown", "broker": "ok"}
    problems = []
    try:
        state = _schema(probe)
    except (SQLAlchemyError, OSError) as problem:
        _log.warning("not ready", database=str(problem).splitlines()[0])
        status["database"] = "unreachable"
        problems.append("the database can't be reached")
    else:
        status["schema"] = state.value
        if state not in schema.READY:
            problems.append(f"the database's schema is {state.value}: run `gonogo db upgrade`")
    try:
        notifier.ping()
    except (RedisError, OSError) as problem:
        _log.warning("not ready", broker=str(problem))
        status["broker"] = "unreachable"
        problems.append("the broker can't be reached")
    if problems:
        errors = [
            {"field": name, "value": value, "limit": "ok", "message": f"{name}: {value}"}
            for name, value in status.items()
            if value != "ok"
        ]
        raise Problem(
            503,
            "Not ready: " + "; ".join(problems) + ".",
            slug="not-ready",
            errors=[error for error in errors if error["value"] not in {"head", "ahead"}],
        )
    return Ready(**status)


def _schema(probe: Engine) -> schema.SchemaState:
    # a read transaction on SQLite as well: a probe must not wait for the write lock
    return schema.state(probe.execution_options(gonogo_read=True))
