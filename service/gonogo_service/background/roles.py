"""Roles: duties that only one `gonogo background` process performs at a time.

Each role runs in a thread that holds the role's lease in the database.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import AWAY, BackgroundContext, first_line, log
from gonogo_service.kit.outbox import leases
from gonogo_service.kit.outbox.leases import LEASE_S, RENEW_S

IDLE_POLLS = 4
"""An idle role leaves out so many polls: what happens wakes it, and only time passes without."""


class Role(threading.Thread):
    """Calls `work` repeatedly while it holds the lease.

    `pause` waits between two passes. The default waits for `every_s` (the poll interval) and, where
    `work` found nothing to do, for IDLE_POLLS more of them, or until the process is woken. Only the
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
        pause: Callable[[], object] | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._context, self._work, self._lost = context, work, lost
        self._interval_s = context.settings.poll_s if every_s is None else every_s
        self._pause = pause
        self._renewed = -LEASE_S
        self._woken = threading.Event()
        context.sleepers.append(self._woken)

    def run(self) -> None:
        """Work until the process stops."""
        delay = 0.0
        while not self._context.stop.wait(delay):
            try:
                self._woken.clear()
                if self._holds_lease():
                    found = self._work()
                    if found:
                        self._context.wake()
                    self._rest(found)
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

    def _rest(self, found: object) -> None:
        if self._pause is not None:
            self._pause()
        elif not self._context.stop.wait(self._interval_s) and not found:
            self._woken.wait(IDLE_POLLS * self._interval_s)

    def _failed(self, delay: float) -> float:
        self._lost()
        self._renewed = -LEASE_S
        return min(max(2 * delay, 0.1), 5.0)

    def _holds_lease(self) -> bool:
        """Return whether this process has the lease; renew it every few seconds, not every pass."""
        tick = time.monotonic()
        since_renewal_s = tick - self._renewed
        if since_renewal_s < RENEW_S:
            return True
        # a process that waits for a lease only reads: each write would make SQLite's other
        # writers wait
        if since_renewal_s > LEASE_S and self._context.reading(
            lambda session: is_taken(session, self.name, self._context.holder)
        ):
            return False
        if not self._context.session(
            lambda session: take(session, self.name, self._context.holder)
        ):
            return False
        self._renewed = tick
        return True


def take(session: Session, name: str, holder: str) -> bool:
    """Acquire or renew a lease; return whether `holder` has it now.

    A lease whose holder was a process of this host that is now dead is taken over at once.
    """
    if leases.acquire(session, name, holder):
        return True
    other = leases.holders(session).get(name)
    if other is None or not is_dead(other, holder):
        return False
    leases.release(session, other)
    return leases.acquire(session, name, holder)


def is_taken(session: Session, name: str, holder: str) -> bool:
    """Return whether another process, which may be alive, has a lease."""
    other = leases.holders(session).get(name)
    return other is not None and other != holder and not is_dead(other, holder)


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
