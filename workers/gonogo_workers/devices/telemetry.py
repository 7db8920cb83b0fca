"""The chip's temperature, clock, power and firmware, asked of tt-smi beside the work and at most
once a minute.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from gonogo_workers.devices import chips
from gonogo_workers.devices.chips import Chip

EVERY_S = 60.0
"""tt-smi takes a second or more: a chunk never waits for it."""


class Telemetry:
    """The latest numbers of one chip; a virtual device has none."""

    def __init__(self, tt_smi: str, chip: Chip | None, every_s: float = EVERY_S) -> None:
        self._tt_smi, self._chip, self._every_s = tt_smi, chip, every_s
        self._lock = threading.Lock()
        self._asked_at: float | None = None
        self._told: dict[str, Any] = {}

    def latest(self) -> dict[str, Any]:
        """{"temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a", "firmware", "at"}, as
        far as known; {} without any.

        Never waits. When the numbers are old, new ones are asked for on a thread, for the next
        call.
        """
        with self._lock:
            now = time.monotonic()
            if self._chip is not None and (
                self._asked_at is None or now - self._asked_at >= self._every_s
            ):
                self._asked_at = now
                threading.Thread(
                    target=self._ask, args=(self._chip,), name="telemetry", daemon=True
                ).start()
            return self._told

    def _ask(self, chip: Chip) -> None:
        found = chips.parse_telemetry(chips.snapshot(self._tt_smi), chip.index)
        if found:
            with self._lock:
                self._told = {**found, "at": time.time()}
