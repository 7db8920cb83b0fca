"""The chip's temperature, clock, power and firmware, read without disturbing a program on a chip.

The kernel driver's files can be read at any time. tt-smi opens every chip of the host, which may
hang a program that runs on one: it is asked only where the driver tells nothing, between two
chunks, while no chip of the host is in use.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Final

from gonogo_workers.devices import driver, locks, tt_smi
from gonogo_workers.devices.chip import Chip

EVERY_S: Final = 60.0
"""tt-smi takes a second or more, and the next chunk waits for it."""
SMI_DEADLINE_S: Final = 20.0
"""After this tt-smi is killed: telemetry is worth no longer wait."""


class Telemetry:
    """The latest numbers of one chip; a virtual device has none."""

    def __init__(
        self,
        program: str,
        chip: Chip | None,
        lock_folder: Path,
        *,
        kernel: driver.Driver = driver.HERE,
        every_s: float = EVERY_S,
    ) -> None:
        """program: tt-smi, by name or path; lock_folder: where the host's workers lock devices."""
        self._program, self._chip, self._lock_folder = program, chip, lock_folder
        self._kernel, self._every_s = kernel, every_s
        self._asked_at: float | None = None
        self._values: dict[str, Any] = {}

    def latest(self) -> dict[str, Any]:
        """Return the latest numbers as far as known; {} without any.

        {"temperature_c", "clock_mhz", "power_w", "voltage_v", "current_a", "firmware", "at"}, with
        the driver's numbers of now, or those of the last call of `between_chunks`.
        """
        if self._chip is not None and (values := self._kernel.telemetry(self._chip.index)):
            self._values = {**values, "at": time.time()}
        return self._values

    def between_chunks(self) -> None:
        """Ask tt-smi where that is needed, due and safe; the caller has locked the chip.

        Safe means: every other chip of the host can be locked, too, and the driver knows no process
        that has one open. A host whose chips are always busy has no telemetry without the driver's.
        """
        now = time.monotonic()
        if (
            self._chip is None
            or (self._asked_at is not None and now - self._asked_at < self._every_s)
            or self._kernel.telemetry(self._chip.index)
        ):
            return
        with locks.others(self._lock_folder, self._chip) as free:
            if not free or any(self._kernel.users(chip.index) for chip in self._kernel.chips()):
                return
            self._asked_at = now
            values = tt_smi.parse_telemetry(
                tt_smi.snapshot(self._program, SMI_DEADLINE_S), self._chip.index
            )
        if values:
            self._values = {**values, "at": time.time()}
