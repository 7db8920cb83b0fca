"""Roles: what only one `gonogo background` at a time may do, each in a thread that holds the role's
lease in the database.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import AWAY, Core, log
from gonogo_storage.messages import leases

LEASE_S = 10.0
RENEW_S = 3.0


class Role(threading.Thread):
    """Calls `work` again and again while it holds the lease; `pause` waits between two passes (and
    may be woken early).

    Nothing ends the thread but the core's stop: broker or database away, or a bug in a pass, are
    logged and tried again with backoff. `lost` is called whenever a pass failed or the lease is
    another's: what was remembered between passes may be wrong then.
    """

    def __init__(
        self,
        core: Core,
        name: str,
        work: Callable[[], object],
        pause: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._core, self._work, self._pause, self._lost = core, work, pause, lost
        self._renewed = -LEASE_S

    def run(self) -> None:
        """Until the core stops."""
        delay = 0.0
        while not self._core.stop.wait(delay):
            try:
                if self._held():
                    self._work()
                    self._pause()
                    delay = 0.0
                else:
                    self._lost()
                    delay = self._core.settings.poll_s
            except AWAY as problem:
                delay = self._failed(delay)
                log.warning(
                    "away; trying again",
                    role=self.name,
                    error=(str(problem).splitlines() or [type(problem).__name__])[0],
                )
            except Exception:
                delay = self._failed(delay)
                log.exception("a pass failed; trying again", role=self.name)

    def _failed(self, delay: float) -> float:
        self._lost()
        self._renewed = -LEASE_S
        return min(max(2 * delay, 0.1), 5.0)

    def _held(self) -> bool:
        """Whether the lease is ours; renewed every few seconds, not with every pass."""
        tick = time.monotonic()
        if tick - self._renewed < RENEW_S:
            return True
        if not self._core.session(lambda session: take(session, self.name, self._core.holder)):
            return False
        self._renewed = tick
        return True


def take(session: Session, name: str, holder: str, seconds: float = LEASE_S) -> bool:
    """Acquire or renew a lease; one whose holder was a process of this host that is dead now is
    taken over at once.
    """
    if leases.acquire(session, name, holder, seconds):
        return True
    other = leases.holders(session).get(name)
    if other is None or not is_dead(other, holder):
        return False
    leases.release(session, other)
    return leases.acquire(session, name, holder, seconds)


def is_dead(other: str, holder: str) -> bool:
    """Whether `other` (host/pid/id) was a process of the host of `holder`, and is no more."""
    host, pid, _ = other.split("/")
    if host != holder.split("/")[0]:
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
