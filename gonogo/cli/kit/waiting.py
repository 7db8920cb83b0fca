"""Waiting for a server: poll until something has ended, through short outages of the server."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from gonogo.errors import InfrastructureError

POLL_S = 1.0
PATIENCE_S = 60.0
"""A server that is away is waited for this long."""
SHARE = 5.0
"""The pause after a slow answer is this many times its duration."""

Record = dict[str, Any]


class Patience:
    """How long a server has been away."""

    def __init__(self, seconds: float = PATIENCE_S) -> None:
        self._seconds = seconds
        self._lost_at: float | None = None

    def reset(self) -> None:
        """Start over: the server answers again."""
        self._lost_at = None

    def lost(self) -> bool:
        """Wait a moment; return False when the server has been away for too long."""
        now = time.monotonic()
        self._lost_at = self._lost_at or now
        if now - self._lost_at > self._seconds:
            return False
        time.sleep(POLL_S)
        return True


def until(
    ask: Callable[[], Record],
    over: Callable[[Record], bool],
    show: Callable[[Record], None] = lambda _: None,
) -> Record:
    """Ask the server until the record has ended, and show each answer.

    Raises InfrastructureError when the server has been away for too long.
    """
    patience = Patience()
    while True:
        started = time.monotonic()
        try:
            record = ask()
        except InfrastructureError:
            if not patience.lost():
                raise
            continue
        patience.reset()
        show(record)
        if over(record):
            return record
        time.sleep(max(POLL_S, SHARE * (time.monotonic() - started)))
