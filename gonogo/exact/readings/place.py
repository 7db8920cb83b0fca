"""Where wrong outputs lie: tiles, NaN, and rows that repeat others."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.exact.readings import tiles
from gonogo.exact.readings.lags import LAGS, sources
from gonogo.exact.readings.lags import named as lag_named
from gonogo.exact.readings.reading import Reading, named

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

MIN_WRONG = 16
"""Wrong elements below which a place may be chance: a faint fault flips few outputs."""


def tiles_in_words(wrong: Flags) -> tuple[str, tuple[int, ...]]:
    """Return the few tiles that hold every wrong element: (words, tiles).

    ("", ()) where they are more than four, or more than half of the row.
    """
    bad = np.flatnonzero(tiles.sums(wrong.astype(np.float64)).sum(axis=0))
    count = tiles.count(wrong.shape[1])
    if bad.size > min(4, count // 2) or wrong.sum() < MIN_WRONG:
        return "", ()
    few = tuple(int(tile) for tile in bad)
    return f"in {named(few, count)}", few


def not_finite(output: Floats, wrong: Flags) -> Reading | None:
    """Return the reading of outputs that are NaN or infinite; None where most wrong ones aren't."""
    bad = ~np.isfinite(output) & wrong
    if 2 * bad.sum() < wrong.sum():
        return None
    words, some = tiles_in_words(bad)
    reading = Reading("not finite", f"{int(bad.sum())} outputs are NaN or infinite", 1.0, some)
    return reading.beside(words)


def copied(output: Floats, rows: NDArray[np.intp]) -> Reading | None:
    """Return the reading of rows that are 0, or that repeat the output of another row."""
    if not output[rows].any():
        return Reading("stale row", "the outputs are 0: never written", 1.0)
    for lag in LAGS:
        other, exists = sources(rows, lag, len(output))
        if exists.all() and np.array_equal(output[rows], output[other]):
            return Reading("stale row", f"the outputs are those of {lag_named(lag)}", 1.0)
    return None
