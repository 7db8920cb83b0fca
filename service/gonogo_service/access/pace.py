"""The pace of strangers: who sends many requests without a token waits before each further one.

A refusal costs a millisecond or two of the one thread that serves everybody. Senders that wait for
their refusals can't send more of them; the limit of connections bounds those that don't.
"""

from __future__ import annotations

import asyncio
import time

from gonogo_service.kit.networks import network_of

AT_ONCE = 200
"""Requests of an address without a wait: a page with its files, or a team behind one address."""
A_SECOND = 20.0
"""Requests of an address in the long run."""
LONGEST_S = 2.0
"""The longest wait: a delivery that is signed must get its answer within 10 s."""
FORGET_AT = 10_000
"""Addresses that are remembered before those that owe nothing are forgotten."""


class Pace:
    """Lets requests of each address through at a pace; nothing is held while one waits."""

    def __init__(self) -> None:
        self._free_at: dict[str, float] = {}
        """When an address that sends no more owes nothing."""

    async def wait(self, client: str) -> None:
        """Wait until it's the turn of an address's next request, LONGEST_S at most."""
        wait_s = self.hit(client, time.monotonic())
        if wait_s > 0:
            await asyncio.sleep(wait_s)

    def hit(self, client: str, now: float) -> float:
        """Count a request; return the seconds for which it has to wait."""
        if len(self._free_at) >= FORGET_AT:
            self._free_at = {name: at for name, at in self._free_at.items() if at > now}
        network = network_of(client)
        free_at = max(now, self._free_at.get(network, now)) + 1 / A_SECOND
        wait_s = free_at - now - AT_ONCE / A_SECOND
        if wait_s > LONGEST_S:
            free_at -= wait_s - LONGEST_S
            wait_s = LONGEST_S
        self._free_at[network] = free_at
        return wait_s
