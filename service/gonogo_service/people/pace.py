"""The pace of strangers: who sends many requests without a token waits, or is refused.

A refusal costs a millisecond of the one thread that serves everybody, and a request that waits
holds a connection, which behind a proxy is the proxy's. So few wait, and the others are refused
before anything is done for them.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from gonogo_service.kit.networks import network_of
from gonogo_service.kit.problems import Problem

AT_ONCE = 200
"""Requests of an address without a wait: a page with its files, or a team behind one address."""
A_SECOND = 20.0
"""Requests of an address in the long run."""
WAITING = 8
"""Requests of an address that wait: a browser asks for six things at once. The last one waits
.4 s, and a delivery that is signed must get its answer within 10 s."""
WAITING_SHARE = 8
"""Requests that wait may hold this part of all connections."""
FORGET_AT = 10_000
"""Addresses that are remembered before those that owe nothing are forgotten."""


class BeyondPace(Problem):
    """429 for a request beyond the pace."""

    def __init__(self) -> None:
        super().__init__(
            429,
            f"Too many requests without a token from this address (allowed: {A_SECOND:g} a second, "
            f"after the first {AT_ONCE}).",
            slug="pace",
            # its next requests must not hold a connection either
            headers={"Retry-After": "1", "Connection": "close"},
        )


class Pace:
    """Lets requests of each address through at a pace, and refuses those beyond it."""

    def __init__(self, connections: int, waiting: int = WAITING) -> None:
        # half a request more: the last one's wait must not depend on rounding
        self._longest_s = (waiting + 0.5) / A_SECOND
        self._most_waiting = max(1, connections // WAITING_SHARE)
        self._waiting = 0
        self._free_at: dict[str, float] = {}
        """When an address that sends no more owes nothing."""

    async def wait(self, client: str, gone: asyncio.Event | None = None) -> float:
        """Wait until it's the turn of an address's next request, or until it is gone.

        Returns the seconds. Raises BeyondPace, at once, where too many wait before it.
        """
        began = time.monotonic()
        wait_s = self.hit(client, began)
        if wait_s <= 0:
            return 0.0
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for((gone or asyncio.Event()).wait(), wait_s)
        finally:
            self._waiting -= 1
        return time.monotonic() - began

    def is_spent(self, client: str) -> bool:
        """Return whether an address's next request would wait or be refused."""
        now = time.monotonic()
        return self._turn(network_of(client), now) > now

    def hit(self, client: str, now: float) -> float:
        """Count a request; return the seconds for which it has to wait.

        Raises BeyondPace for a request beyond the pace, which isn't counted.
        """
        network = network_of(client)
        wait_s = self._turn(network, now) - now
        if wait_s > self._longest_s or (wait_s > 0 and self._waiting >= self._most_waiting):
            raise BeyondPace()
        if len(self._free_at) >= FORGET_AT:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}
        self._free_at[network] = max(now, self._free_at.get(network, now)) + 1 / A_SECOND
        return wait_s

    def _turn(self, network: str, now: float) -> float:
        """Return the time of an address's next request, which may be past."""
        return max(now, self._free_at.get(network, now)) + (1 - AT_ONCE) / A_SECOND
