"""The chip's temperature, clock, power and firmware, from tt-smi at most once a minute.

tt-smi runs on a separate thread, beside the work.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from gonogo_workers.devices import chips
from gonogo_workers.devices.chips import Chip

EVERY_S = 60.0
"""tt-smi takes a second or more, so a chunk never waits for it."""


class Telemetry:
    """The latest numbers of one chip; a virtual device has none."""

    def __init__(self, tt_smi: str, chip: Chip | None, every_s: float = EVERY_S) -> None:
        self._tt_smi, self._chip, self._every_s = tt_smi, chip, every_s
        self._lock = threading.Lock()
        self._requested_at: float | None = None
        self._values: dict[str, Any] = {}

    def latest(self) -> dict[str, Any]:
        """Return the latest numbers as far as known; {} without any.

        {"temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a", "firmware", "at"}. Never
        waits: when the numbers are old, a thread gets new ones for the next call.
        """
        with self._lock:
            now = time.monotonic()
            if self._chip is not None and (
                self._requested_at is None or now - self._requested_at >= self._every_s
            ):
                self._requested_at = now
                threading.Thread(
                    target=self._ask, args=(self._chip,), name="telemetry", daemon=True
                ).start()
            return self._values

    def _ask(self, chip: Chip) -> None:
        values = chips.parse_telemetry(chips.snapshot(self._tt_smi), chip.index)
        if values:
            with self._lock:
                self._values = {**values, "at": time.time()}
