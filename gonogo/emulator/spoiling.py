"""Faults that no graph has.

Outputs are spoiled afterwards, registers are left as they were, processes hang or die.
"""

from __future__ import annotations

import os
import resource
import signal
import threading
import zlib
from typing import Literal, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from gonogo.arithmetic.matrix_unit import TILE

Number = TypeVar("Number", np.float32, np.float64)
Spoiling = Literal["", "outliers", "nan-tile"]

ELEMENTS_PER_OUTLIER = 2**17
MIN_OUTLIERS = 4


class Accumulator:
    """The 32 lanes of the accumulator, as the last kernel of this process left them.

    It belongs to the whole process on purpose: `stale-register` depends on what ran before, as on a
    device.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lanes = np.zeros(TILE, dtype=np.float32)

    def lanes(self) -> NDArray[np.float32]:
        """Return a copy of the lanes."""
        with self._lock:
            return self._lanes.copy()

    def leave(self, output: NDArray[np.float32]) -> None:
        """Store the rest that a kernel leaves: the start of the last row of `output` (rows, N)."""
        lanes = np.zeros(TILE, dtype=np.float32)
        last = output[-1, :TILE]
        lanes[: last.size] = np.where(np.isfinite(last), last, np.float32(0.0))
        with self._lock:
            self._lanes = lanes


REGISTER = Accumulator()


def spoiled(first: NDArray[Number], x: NDArray[np.float32], spoiling: Spoiling) -> NDArray[Number]:
    """Return the first output (rows, N) with isolated values doubled, or a tile of NaN.

    Their places depend on the input x alone, so a seed repeats.
    """
    if not spoiling:
        return first
    result = first.copy()
    if spoiling == "outliers":
        count = min(first.size, max(MIN_OUTLIERS, first.size // ELEMENTS_PER_OUTLIER))
        places = np.random.default_rng(zlib.crc32(np.ascontiguousarray(x[0]).tobytes())).integers(
            first.size, size=count
        )
        result.reshape(-1)[np.unique(places)] *= 2
    else:
        row, column = ((length - 1) // TILE // 2 * TILE for length in first.shape)
        result[row : row + TILE, column : column + TILE] = np.nan
    return result


def hang_or_crash(fate: str) -> NoReturn:
    """Hang until killed, or crash this process. Only the builds `hang` and `crash` lead here."""
    if fate == "crash":
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    while True:  # a crash may take a moment to arrive too
        threading.Event().wait(1.0)
