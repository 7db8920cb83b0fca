"""The step from the running totals of all blocks to the statistics of an output."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.fused import columns as down
from gonogo.kernels.layernorm.fused import rows
from gonogo.numerics.compare import NEEDED_RTOLS, Statistics, pcc_from_sums
from gonogo.numerics.directions import Scores, outside
from gonogo.numerics.expectation import Array, Mask, excess

ROW_DIRECTIONS = 3

ROWS = 64
"""Rows whose totals are merged into one: two tiles.

It is a compromise between memory to clear and an even load on the threads.
"""


@dataclass
class Totals:
    """Running totals of a block of rows of a matrix output.

    Merged in block order, they are those of all rows.
    """

    totals: Array
    bins: NDArray[np.int64]
    columns: Array  # (column directions, COLUMNS, N)

    @classmethod
    def empty(cls, n: int, column_directions: int) -> Totals:
        """Return the totals before the first row."""
        totals = np.zeros(rows.TOTALS)
        totals[rows.WORST_ROW] = -1.0
        return cls(
            totals, np.zeros(rows.BINS, np.int64), np.zeros((column_directions, down.COLUMNS, n))
        )

    def add(self, other: Totals) -> None:
        """Add the totals of the next block."""
        totals, added = self.totals, other.totals
        if added[rows.WORST_ROW] >= 0 and (
            totals[rows.WORST_ROW] < 0 or added[rows.BUDGET] > totals[rows.BUDGET]
        ):
            totals[[rows.BUDGET, rows.WORST_ROW, rows.WORST_COLUMN]] = added[
                [rows.BUDGET, rows.WORST_ROW, rows.WORST_COLUMN]
            ]
        maxima = list(rows.MAXIMA)
        totals[maxima] = np.maximum(totals[maxima], added[maxima])
        sums = [
            k
            for k in range(rows.TOTALS)
            if k not in rows.MAXIMA and k not in (rows.BUDGET, rows.WORST_ROW, rows.WORST_COLUMN)
        ]
        totals[sums] += added[sums]
        self.bins += other.bins
        self.columns += other.columns


def statistics(all_rows: Totals, count: int, declared: bool) -> Statistics:
    """Return the statistics that need no direction, with the keys of compare.statistics."""
    totals = all_rows.totals
    error, raw = totals[rows.SUM_ERROR], totals[rows.SUM_RAW]
    norm = np.sqrt(totals[rows.SUM_RAW_SQUARES])
    distance = np.sqrt(totals[rows.SUM_SQUARES])
    used = totals[rows.USED]
    result: Statistics = {
        "max_abs": totals[rows.MAX_ABS],
        "mean_abs": totals[rows.SUM_ABS] / count,
        "rms": np.sqrt(totals[rows.SUM_SQUARES] / count),
        "rel_frobenius": distance / norm if norm > 0 else (0.0 if distance == 0 else np.inf),
        "pcc_deficit": pcc_from_sums(
            count,
            totals[rows.SUM_SQUARES] - error**2 / count,
            totals[rows.SUM_RAW_CENTRED] - raw**2 / count,
            totals[rows.SUM_RAW_ERROR] - raw * error / count,
            totals[rows.MAX_RAW],
        ),
        "ulp_max": totals[rows.ULP_MAX],
        "ulp_p99": _percentile(all_rows.bins, count),
        "needed_atol": {
            f"{rtol:g}": float(totals[rows.NEEDED + k]) for k, rtol in enumerate(NEEDED_RTOLS)
        },
        "tolerance_ratio": totals[rows.TOLERANCE] if declared else None,
        "tolerance_ratio_quantised": totals[rows.TOLERANCE_QUANTIZED] if declared else None,
        "outliers": int(totals[rows.OUTLIERS]),
    }
    if used == 0:
        return result | dict.fromkeys(
            ("budget_ratio", "over_budget_fraction", "chi", "mismatch_fraction")
        )
    return result | {
        "budget_ratio": totals[rows.BUDGET],
        "over_budget_fraction": totals[rows.OVER] / used,
        "chi": np.sqrt(totals[rows.CHI] / used),
        "mismatch_fraction": totals[rows.MISMATCH] / used,
        "worst_index": [int(totals[rows.WORST_ROW]), int(totals[rows.WORST_COLUMN])],
    }


def _percentile(bins: NDArray[np.int64], count: int) -> float:
    place = int(np.searchsorted(np.cumsum(bins), max(1, -(-99 * count // 100))))
    if place < rows.EXACT_BINS:
        return float(place)
    bits = np.int64(place - rows.EXACT_BINS + ((1023 + 12) << 5)) << 47
    return float(np.int64(bits).view(np.float64))


def may_repeat(scores: Array, informative: Mask) -> bool:
    """Return whether two rows may have the same reference, because its squared norm is the same.

    Then the errors down a column are not independent.
    """
    norms = scores[informative, 3 * (ROW_DIRECTIONS - 1) + 2]
    return len(np.unique(norms)) < len(norms)


def row_scores(scores: Array, place: int, floor: Array | float, keep: Mask) -> Scores:
    """Return the z of one of the three directions from the (rows, 9) sums."""
    numerator, variance, norm = (
        scores[:, 3 * place],
        scores[:, 3 * place + 1],
        scores[:, 3 * place + 2],
    )
    return Scores.of(numerator, variance, keep & (norm > floor))


def column_scores(columns: Array, spreads: tuple[float, float, float, float]) -> Scores:
    """Return the z down the columns.

    spreads: how coherent each of the four spreads is (see expectation.coherence).
    """
    independent = columns[down.COLUMN_VARIANCE]
    golden = np.maximum(
        columns[down.COLUMN_EVEN] ** 2, (columns[down.COLUMN_EVEN] + columns[down.COLUMN_AWAY]) ** 2
    )
    trends = (
        columns[down.COLUMN_TREND : down.COLUMN_TREND + 3],
        columns[down.COLUMN_PATTERN : down.COLUMN_PATTERN + 3],
    )
    variance = (
        independent + excess(golden, independent) + sum((trend**2).sum(axis=0) for trend in trends)
    )
    spread = sum(
        (k * columns[down.COLUMN_SPREAD + place] for place, k in enumerate(spreads)),
        start=np.zeros_like(independent),
    )
    allowances = list(columns[down.COLUMN_ALLOWANCE : down.COLUMN_ALLOWANCE + rows.ALLOWANCES])
    return Scores.of(
        outside(columns[down.COLUMN_ERROR], allowances),
        variance + spread**2,
        columns[down.COLUMN_NORM] > 0,
    )
