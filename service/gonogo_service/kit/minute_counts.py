"""Counts of a minute by key, in this process's memory: requests of a token, failures of an address.

They start no thread. A library's counter started a timer in a thread for each count, and two
threads that counted at once started one timer twice, which ended the request with a 500.
"""

from __future__ import annotations

import threading
import time

MINUTE_S = 60.0
MOST_KEYS = 10_000
"""Keys that are remembered; beyond them, those whose minute began first are forgotten.

Somebody with many networks of IPv6 must not fill the memory."""


class MinuteCounts:
    """Counts per key; a key's minute begins with its first count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, ...], tuple[float, int]] = {}
        """When the minute of a key began, and its count; those that began first are first."""

    def hit(self, most: int, *key: str, now: float | None = None) -> float:
        """Count once. Return 0, or beyond `most` the seconds until the key's minute ends.

        now: by the monotonic clock.
        """
        now = time.monotonic() if now is None else now
        with self._lock:
            began, count = self._counts.get(key, (now, 0))
            if now - began >= MINUTE_S:
                del self._counts[key]
                began, count = now, 0
            if count >= most:
                return MINUTE_S - (now - began)
            if key not in self._counts and len(self._counts) >= MOST_KEYS:
                del self._counts[next(iter(self._counts))]
            self._counts[key] = began, count + 1
        return 0.0
