"""The numbers of messages: times in microseconds that rise with every message of a host."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

SAVE_EVERY: Final = 5_000_000
"""The file is written once in this many microseconds of messages."""


class ServiceClock:
    """The service's time, on a host whose own clock may be wrong.

    It runs from the time since the machine started, so that setting the host's clock moves it in no
    direction. `synchronize` sets it.
    """

    def __init__(self) -> None:
        self._offset = time.time() - _since_start()

    def now(self) -> float:
        """Return the service's time, in seconds since 1970."""
        return _since_start() + self._offset

    def synchronize(self, skew_s: float) -> None:
        """Set the clock, on a host whose own clock is ahead of the service's by this."""
        self._offset = time.time() - skew_s - _since_start()

    @property
    def skew_s(self) -> float:
        """The seconds by which this host's clock is ahead of the service's."""
        return time.time() - self.now()


def _since_start() -> float:
    # unlike the monotonic clock, this one counts the time that the machine slept
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Numbers:
    """Strictly rising numbers, from any thread: the time, or one more than the last number.

    `path` keeps about the last one, so that a clock that was set back lowers no number after a
    restart either. Where it can't be written, the numbers rise with the clock alone.
    """

    def __init__(self, clock: Callable[[], float] = time.time, path: Path | None = None) -> None:
        self._clock, self._path = clock, path
        self._last = self._saved = 0
        self._lock = threading.Lock()
        if path is not None:
            with contextlib.suppress(OSError, ValueError):
                self._last = self._saved = int(path.read_text()) + SAVE_EVERY

    def next(self) -> int:
        """Return the next number."""
        with self._lock:
            self._last = max(self._last + 1, int(self._clock() * 1e6))
            if self._path is not None and self._last - self._saved >= SAVE_EVERY:
                self._save(self._path)
            return self._last

    def _save(self, path: Path) -> None:
        self._saved = self._last
        part = path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.write_text(str(self._last))
            part.replace(path)
