"""From the running totals of all blocks to the statistics of an output."""

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
"""Rows whose totals are kept together: two tiles, a compromise between memory to clear and an even
load on the threads."""


@dataclass
class Totals:
    """What one block of rows (or, merged in block order, all of them) has added up for a matrix
    output.
    """

    totals: Array
    bins: NDArray[np.int64]
    columns: Array  # (column directions, COLUMNS, N)

    @classmethod
    def empty(cls, n: int, column_directions: int) -> Totals:
        """Before the first row."""
        totals = np.zeros(rows.TOTALS)
        totals[rows.WORST_ROW] = -1.0
        return cls(
            totals, np.zeros(rows.BINS, np.int64), np.zeros((column_directions, down.COLUMNS, n))
        )

    def add(self, other: Totals) -> None:
        """Take the next block in."""
        mine, theirs = self.totals, other.totals
        if theirs[rows.WORST_ROW] >= 0 and (
            mine[rows.WORST_ROW] < 0 or theirs[rows.BUDGET] > mine[rows.BUDGET]
        ):
            mine[[rows.BUDGET, rows.WORST_ROW, rows.WORST_COLUMN]] = theirs[
                [rows.BUDGET, rows.WORST_ROW, rows.WORST_COLUMN]
            ]
        maxima = list(rows.MAXIMA)
        mine[maxima] = np.maximum(mine[maxima], theirs[maxima])
        sums = [
            k
            for k in range(rows.TOTALS)
            if k not in rows.MAXIMA and k not in (rows.BUDGET, rows.WORST_ROW, rows.WORST_COLUMN)
        ]
        mine[sums] += theirs[sums]
        self.bins += other.bins
        self.columns += other.columns


def statistics(found: Totals, count: int, declared: bool) -> Statistics:
    """The statistics that need no direction; the keys and meanings of compare.statistics."""
    t = found.totals
    error, raw = t[rows.SUM_ERROR], t[rows.SUM_RAW]
    norm = np.sqrt(t[rows.SUM_RAW_SQUARES])
    distance = np.sqrt(t[rows.SUM_SQUARES])
    used = t[rows.USED]
    result: Statistics = {
        "max_abs": t[rows.MAX_ABS],
        "mean_abs": t[rows.SUM_ABS] / count,
        "rms": np.sqrt(t[rows.SUM_SQUARES] / count),
        "rel_frobenius": distance / norm if norm > 0 else (0.0 if distance == 0 else np.inf),
        "pcc_deficit": pcc_from_sums(
            count,
            t[rows.SUM_SQUARES] - error**2 / count,
            t[rows.SUM_RAW_CENTRED] - raw**2 / count,
            t[rows.SUM_RAW_ERROR] - raw * error / count,
            t[rows.MAX_RAW],
        ),
        "ulp_max": t[rows.ULP_MAX],
        "ulp_p99": _percentile(found.bins, count),
        "needed_atol": {
            f"{rtol:g}": float(t[rows.NEEDED + k]) for k, rtol in enumerate(NEEDED_RTOLS)
        },
        "tolerance_ratio": t[rows.TOLERANCE] if declared else None,
        "tolerance_ratio_quantised": t[rows.TOLERANCE_QUANTISED] if declared else None,
        "outliers": int(t[rows.OUTLIERS]),
    }
    if used == 0:
        return result | dict.fromkeys(
            ("budget_ratio", "over_budget_fraction", "chi", "mismatch_fraction")
        )
    return result | {
        "budget_ratio": t[rows.BUDGET],
        "over_budget_fraction": t[rows.OVER] / used,
        "chi": np.sqrt(t[rows.CHI] / used),
        "mismatch_fraction": t[rows.MISMATCH] / used,
        "worst_index": [int(t[rows.WORST_ROW]), int(t[rows.WORST_COLUMN])],
    }


def _percentile(bins: NDArray[np.int64], count: int) -> float:
    place = int(np.searchsorted(np.cumsum(bins), max(1, -(-99 * count // 100))))
    if place < rows.EXACT_BINS:
        return float(place)
    bits = np.int64(place - rows.EXACT_BINS + ((1023 + 12) << 5)) << 47
    return float(np.int64(bits).view(np.float64))


def may_repeat(scores: Array, informative: Mask) -> bool:
    """Whether two rows may have the same reference (its squared norm is the same): then the errors
    down a column are not independent.
    """
    norms = scores[informative, 3 * (ROW_DIRECTIONS - 1) + 2]
    return len(np.unique(norms)) < len(norms)


def row_scores(scores: Array, place: int, floor: Array | float, keep: Mask) -> Scores:
    """The z of one of the three directions from the (rows, 9) sums."""
    numerator, variance, norm = (
        scores[:, 3 * place],
        scores[:, 3 * place + 1],
        scores[:, 3 * place + 2],
    )
    return Scores.of(numerator, variance, keep & (norm > floor))


def column_scores(columns: Array, spreads: tuple[float, float, float, float]) -> Scores:
    """The z down the columns; `spreads`: how coherent each of the four spreads is (see
    expectation.coherence).
    """
    own = columns[down.COLUMN_VARIANCE]
    golden = np.maximum(
        columns[down.COLUMN_EVEN] ** 2, (columns[down.COLUMN_EVEN] + columns[down.COLUMN_AWAY]) ** 2
    )
    trends = (
        columns[down.COLUMN_TREND : down.COLUMN_TREND + 3],
        columns[down.COLUMN_PATTERN : down.COLUMN_PATTERN + 3],
    )
    variance = own + excess(golden, own) + sum((trend**2).sum(axis=0) for trend in trends)
    spread = sum(
        (k * columns[down.COLUMN_SPREAD + place] for place, k in enumerate(spreads)),
        start=np.zeros_like(own),
    )
    allowances = list(columns[down.COLUMN_ALLOWANCE : down.COLUMN_ALLOWANCE + rows.ALLOWANCES])
    return Scores.of(
        outside(columns[down.COLUMN_ERROR], allowances),
        variance + spread**2,
        columns[down.COLUMN_NORM] > 0,
    )
