"""The totals of LayerNorm's rows, as the statistics of an output need them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gonogo.kernels.layernorm.fused import columns as down
from gonogo.numerics.expectation import Array, Mask
from gonogo.numerics.totals import DIRECTIONS, Column

ROWS = 64
"""Rows whose totals are merged into one: two tiles.

It is a compromise between memory to clear and an even load on the threads.
"""


def may_repeat(scores: Array, informative: Mask) -> bool:
    """Return whether two rows may have the same reference, because its squared norm is the same.

    Then the errors down a column are not independent.
    """
    norms = scores[informative, 3 * (DIRECTIONS - 1) + 2]
    return len(np.unique(norms)) < len(norms)


def column(sums: Array, coherent: Sequence[float]) -> Column:
    """Return a direction's sums down the columns from the compiled ones (COLUMNS, N).

    coherent: how coherent each of the four spreads is (see expectation.coherence).
    """
    even, away = sums[down.COLUMN_EVEN], sums[down.COLUMN_AWAY]
    return Column(
        numerator=sums[down.COLUMN_ERROR],
        norm=sums[down.COLUMN_NORM],
        independent=sums[down.COLUMN_VARIANCE],
        goldens=[even, even + away],
        trends=[
            *sums[down.COLUMN_TREND : down.COLUMN_TREND + 3],
            *sums[down.COLUMN_PATTERN : down.COLUMN_PATTERN + 3],
        ],
        allowances=list(sums[down.COLUMN_ALLOWANCE : down.COLUMN_ALLOWANCE + down.ALLOWANCES]),
        spread=np.asarray(coherent) @ sums[down.COLUMN_SPREAD : down.COLUMN_SPREAD + 4],
    )
