"""Waiting for a server: something that is followed until it is over, by a command that outlives a
server which is away for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gonogo.errors import InfrastructureError

POLL_S = 1.0
PATIENCE_S = 60.0
"""For so long a server that is away while something is followed is waited for."""
SHARE = 5.0
"""A server that takes long for an answer is left alone for so many times as long."""

Found = dict[str, Any]


class Patience:
    """How long a server has been away."""

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def found(self) -> None:
        """It answers."""
        self._lost_at = None

    def lost(self) -> bool:
        """It doesn't: wait a moment; False when it has been away for too long."""
        now = time.monotonic()
        self._lost_at = self._lost_at or now
        if now - self._lost_at > self._seconds:
            return False
        time.sleep(POLL_S)
        return True


def until(
    ask: Callable[[], Found],
    over: Callable[[Found], bool],
    show: Callable[[Found], None] = lambda _: None,
) -> Found:
    """Ask the server until it is over; each answer is shown. Raises the InfrastructureError of a
    server that has been away for too long.
    """
    patience = Patience()
    while True:
        asked_at = time.monotonic()
        try:
            found = ask()
        except InfrastructureError:
            if not patience.lost():
                raise
            continue
        patience.found()
        show(found)
        if over(found):
            return found
        time.sleep(max(POLL_S, SHARE * (time.monotonic() - asked_at)))
