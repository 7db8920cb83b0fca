"""Roles: duties that only one `gonogo background` process performs at a time.

Each role runs in a thread that holds the role's lease in the database.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable

from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import AWAY, BackgroundContext, first_line, log
from gonogo_service.kit.outbox import leases
from gonogo_service.kit.outbox.leases import LEASE_S, RENEW_S

IDLE_POLLS = 5
"""A role that found no work waits this many poll intervals, but never so long that its lease ends.

Changes wake it earlier; work that becomes due by time alone waits for the next pass."""


class Role(threading.Thread):
    """Calls `work` repeatedly while it holds the lease.

    `pause(seconds)` waits between two passes: `every_s` (the poll interval), and IDLE_POLLS times
    that after a pass without work, or until the process is woken. Only the
    process's stop event ends the thread. When broker or database are unavailable, or a pass has a
    bug, the error is logged and the pass is retried with backoff. `lost` is called whenever a pass
    failed or another process has the lease, because what was remembered between passes may be wrong
    then.
    """

    def __init__(
        self,
        context: BackgroundContext,
        name: str,
        work: Callable[[], object],
        *,
        every_s: float | None = None,
        pause: Callable[[float], object] | None = None,
        lost: Callable[[], None] = lambda: None,
        duties: Duties | None = None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._context, self._work, self._lost = context, work, lost
        self._interval_s = context.settings.poll_s if every_s is None else every_s
        self._idle_s = max(self._interval_s, min(IDLE_POLLS * self._interval_s, LEASE_S / 2))
        self._pause = pause or self._sleep
        self._duties = duties or Duties(context)
        self._woken = threading.Event()
        context.sleepers.append(self._woken)

    def run(self) -> None:
        """Work until the process stops."""
        delay = 0.0
        while not self._context.stop.wait(delay):
            try:
                self._woken.clear()
                if self._duties.hold(self.name):
                    did_something = self._work()
                    if did_something:
                        self._context.wake()
                    self._pause(self._interval_s if did_something else self._idle_s)
                    delay = 0.0
                else:
                    self._lost()
                    delay = self._context.settings.poll_s
            except AWAY as problem:
                delay = self._failed(delay)
                log.warning(
                    "database or broker unavailable; trying again",
                    role=self.name,
                    error=first_line(problem),
                )
            except Exception:
                delay = self._failed(delay)
                log.exception("a pass failed; trying again", role=self.name)

    def _sleep(self, seconds: float) -> None:
        if not self._context.stop.wait(self._interval_s) and seconds > self._interval_s:
            self._woken.wait(seconds - self._interval_s)

    def _failed(self, delay: float) -> float:
        self._lost()
        self._duties.forget()
        return min(max(2 * delay, 0.1), 5.0)


class Duties:
    """The leases of a process's roles, which are renewed together."""

    def __init__(self, context: BackgroundContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        self._asked_at: dict[str, float] = {}
        """Duty -> the monotonic time when its role last asked; a role that hangs loses it."""
        self._duties: frozenset[str] = frozenset()
        self._looked_at = -LEASE_S

    def hold(self, name: str) -> bool:
        """Return whether this process has a duty; look, and renew all, every few seconds."""
        with self._lock:
            tick, is_new = time.monotonic(), name not in self._asked_at
            self._asked_at[name] = tick
            if is_new or tick - self._looked_at >= RENEW_S:
                self._asked_at = {n: at for n, at in self._asked_at.items() if tick - at < LEASE_S}
                self._duties = frozenset(self._renewed())
                self._looked_at = tick
            return name in self._duties

    def forget(self) -> None:
        """Look again before the next pass."""
        with self._lock:
            self._looked_at = -LEASE_S

    def _renewed(self) -> set[str]:
        # a process that waits for others only reads: each write would make SQLite's other writers
        # wait
        me, names = self._context.holder, self._asked_at.keys()
        holders = self._context.reading(leases.holders)
        others = {n for n, other in holders.items() if other != me and not is_dead(other, me)}
        dead = {owner for owner in holders.values() if owner != me and is_dead(owner, me)}
        if not (free := names - others):
            return set()
        return self._context.session(lambda session: take(session, free, dead, me))


def take(session: Session, names: Collection[str], dead: Iterable[str], holder: str) -> set[str]:
    """Acquire or renew leases; return those that `holder` has now. The dead lose theirs."""
    for other in dead:
        leases.release(session, other)
    return leases.acquire_all(session, names, holder)


def is_dead(other: str, holder: str) -> bool:
    """Return whether `other` (host/pid/id) is a dead process on the host of `holder`."""
    host, pid, _ = other.split("/")
    if host != holder.split("/")[0]:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # it is another user's
        pass
    return False
