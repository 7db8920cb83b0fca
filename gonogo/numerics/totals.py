"""The running totals of a matrix output's rows, and the statistics that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import directions, distances
from gonogo.numerics.expectation import Array, Direction, Expectation, Mask, excess

DIRECTIONS = 3
"""The directions that compiled code measures at a time."""

# The places of the running totals of a block of rows.
TOTALS = 27
(
    SUM_ERROR,
    SUM_ABS,
    SUM_SQUARES,
    SUM_RAW,
    SUM_RAW_CENTRED,
    SUM_RAW_ERROR,
    SUM_RAW_SQUARES,
    CHI,
    MAX_ABS,
    MAX_RAW,
    ULP_MAX,
) = range(11)
NEEDED = 11  # six of them
(
    TOLERANCE,
    TOLERANCE_QUANTIZED,
    BUDGET,
    WORST_ROW,
    WORST_COLUMN,
    OVER,
    MISMATCH,
    OUTLIERS,
    USED,
    LEFT_OUT,
) = range(17, TOTALS)
WORST = [BUDGET, WORST_ROW, WORST_COLUMN]
MAXIMA = [MAX_ABS, MAX_RAW, ULP_MAX, *range(NEEDED, NEEDED + 6), TOLERANCE, TOLERANCE_QUANTIZED]
ADDED = [k for k in range(TOTALS) if k not in (*WORST, *MAXIMA)]

EXACT_BINS = distances.EXACT_ULPS
BINS = EXACT_BINS + 32 * 300
"""The bins of ulp distances: whole numbers up to 4096, then 32 bins an octave.

distances.percentile_99 explains them.
"""
BIN_SHIFT = 47
FIRST_OCTAVE = (1023 + 12) << 5


def bins_of(whole: Array) -> NDArray[np.int64]:
    """Return the bins of whole distances in ulps."""
    octave = EXACT_BINS + (whole.view(np.int64) >> BIN_SHIFT) - FIRST_OCTAVE
    return np.where(whole < EXACT_BINS, whole, np.minimum(octave, BINS - 1)).astype(np.int64)


@dataclass
class Column:
    """Running sums of a direction down the columns, each of shape (N,)."""

    numerator: Array
    norm: Array
    independent: Array  # variance of rows that no other row equals
    goldens: list[Array]
    trends: list[Array]
    allowances: list[Array]
    spread: Array
    floor: float = 0.0
    # amounts of rows that equal others, by the row's group
    alike: dict[int, Array] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        expected: Expectation,
        direction: Direction,
        error: Array,
        goldens: directions.Golden,
        groups: NDArray[np.int64],
    ) -> Column:
        """Return the sums of some rows.

        groups: a number for each row, equal where rows are equal, and -1 where a row is unique.
        """
        w = np.broadcast_to(direction.weights, error.shape)
        variance = expected.variance
        alone = groups < 0
        amounts = {
            int(group): np.abs(w[groups == group]) * np.sqrt(variance[groups == group])
            for group in np.unique(groups[~alone])
        }
        spread = np.zeros(w.shape[1])
        if expected.spread is not None:
            spread = _down(np.abs(w), expected.spread)
        return cls(
            numerator=_down(w, error),
            norm=_down(w, w),
            independent=_down(w**2, variance)
            if alone.all()
            else _down(w[alone] ** 2, variance[alone]),
            goldens=[_down(w, golden) for golden in goldens],
            trends=[_down(w, trend) for trend in expected.trend],
            allowances=[_down(w, allowance) for allowance in expected.allowance],
            spread=spread,
            floor=float(np.max(direction.floor)),
            alike={group: rows.sum(axis=0) for group, rows in amounts.items()},
        )

    def add(self, other: Column) -> None:
        """Add the sums of the next rows."""
        self.numerator, self.norm, self.independent, self.spread = (
            a + b
            for a, b in zip(
                (self.numerator, self.norm, self.independent, self.spread),
                (other.numerator, other.norm, other.independent, other.spread),
                strict=True,
            )
        )
        for sums, added in (
            (self.goldens, other.goldens),
            (self.trends, other.trends),
            (self.allowances, other.allowances),
        ):
            sums[:] = [a + b for a, b in zip(sums, added, strict=True)]
        for group, amounts in other.alike.items():
            self.alike[group] = self.alike[group] + amounts if group in self.alike else amounts

    def scores(self) -> directions.Scores:
        """Return the z of each column, as directions.along_columns does."""
        independent = self.independent + sum(
            (amounts**2 for amounts in self.alike.values()), start=np.zeros_like(self.independent)
        )
        variance = (
            independent
            + excess(np.max(np.array([golden**2 for golden in self.goldens]), axis=0), independent)
            + self.spread**2
        )
        for trend in self.trends:
            variance = variance + trend**2
        return directions.Scores.of(
            directions.outside(self.numerator, self.allowances), variance, self.norm > self.floor
        )


def _down(weights: Array, values: Array) -> Array:
    """Return the sums of weights times values (rows, N) down the columns, (N,)."""
    return np.asarray(np.einsum("ij,ij->j", weights, np.broadcast_to(values, weights.shape)))


@dataclass
class Totals:
    """Running totals of some rows of an output.

    Merged in the order of the rows, they are those of all rows.
    """

    sums: Array  # (TOTALS,)
    bins: NDArray[np.int64]  # ulp distances
    rows: dict[str, list[Array]] = field(default_factory=dict)
    """By direction: numerator, variance and whether it can be measured, (rows, 3) each."""
    columns: dict[str, Column] = field(default_factory=dict)

    @classmethod
    def empty(cls) -> Totals:
        """Return the totals before the first row."""
        sums = np.zeros(TOTALS)
        sums[WORST_ROW] = -1.0
        return cls(sums, np.zeros(BINS, np.int64))

    def add(self, other: Totals) -> None:
        """Add the totals of the next rows."""
        sums, added = self.sums, other.sums
        if added[WORST_ROW] >= 0 and (sums[WORST_ROW] < 0 or added[BUDGET] > sums[BUDGET]):
            sums[WORST] = added[WORST]
        sums[MAXIMA] = np.maximum(sums[MAXIMA], added[MAXIMA])
        sums[ADDED] += added[ADDED]
        self.bins += other.bins
        for name, scores in other.rows.items():
            self.rows.setdefault(name, []).extend(scores)
        for name, column in other.columns.items():
            if name in self.columns:
                self.columns[name].add(column)
            else:
                self.columns[name] = column

    def add_scores(
        self, name: str, scores: Array, place: int, floor: Array | float, used: Mask
    ) -> None:
        """Add the next rows' scores of a direction, the one at `place` of (rows, 9) scores.

        A squared norm at or below the floor can't be measured.
        """
        numerator, variance, norm = scores.reshape(-1, DIRECTIONS, 3)[:, place].T
        valid = used & (norm > floor)
        self.rows.setdefault(name, []).append(np.stack([numerator, variance, valid], axis=1))


def finished(totals: Totals, count: int, declared: bool, names: Sequence[str]) -> dict[str, Any]:
    """Return the statistics of `count` elements, with the keys of compare.statistics.

    declared: the output has a tolerance on its elements. names: the directions.
    """
    sums = totals.sums
    error, raw = sums[SUM_ERROR], sums[SUM_RAW]
    norm = np.sqrt(sums[SUM_RAW_SQUARES])
    distance = np.sqrt(sums[SUM_SQUARES])
    used = sums[USED]
    result: dict[str, Any] = {
        "max_abs": sums[MAX_ABS],
        "mean_abs": sums[SUM_ABS] / count,
        "rms": np.sqrt(sums[SUM_SQUARES] / count),
        "rel_frobenius": distance / norm if norm > 0 else (0.0 if distance == 0 else np.inf),
        "pcc_deficit": distances.pcc_from_sums(
            count,
            sums[SUM_SQUARES] - error**2 / count,
            sums[SUM_RAW_CENTRED] - raw**2 / count,
            sums[SUM_RAW_ERROR] - raw * error / count,
            sums[MAX_RAW],
        ),
        "ulp_max": sums[ULP_MAX],
        "ulp_p99": _percentile(totals.bins, count),
        "needed_atol": {
            f"{rtol:g}": float(sums[NEEDED + k]) for k, rtol in enumerate(distances.NEEDED_RTOLS)
        },
        "tolerance_ratio": sums[TOLERANCE] if declared else None,
        "tolerance_ratio_quantised": sums[TOLERANCE_QUANTIZED] if declared else None,
        "outliers": int(sums[OUTLIERS]),
        "rows_left_out": int(sums[LEFT_OUT]),
    }
    result |= dict.fromkeys(("budget_ratio", "over_budget_fraction", "chi", "mismatch_fraction"))
    if used > 0:
        result |= {
            "budget_ratio": sums[BUDGET],
            "over_budget_fraction": sums[OVER] / used,
            "chi": np.sqrt(sums[CHI] / used),
            "mismatch_fraction": sums[MISMATCH] / used,
            "worst_index": [int(sums[WORST_ROW]), int(sums[WORST_COLUMN])],
        }
    for name in names:
        result |= directions.scores_of(name, _scores(totals, name))
    return result


def _scores(totals: Totals, name: str) -> directions.Scores | None:
    if name in totals.columns:
        return totals.columns[name].scores()
    if name not in totals.rows:
        return None
    numerator, variance, valid = np.concatenate(totals.rows[name]).T
    return directions.Scores.of(numerator, variance, valid > 0)


def _percentile(bins: NDArray[np.int64], count: int) -> float:
    """Return compare.percentile_99 of counted distances."""
    place = int(np.searchsorted(np.cumsum(bins), max(1, -(-99 * count // 100))))
    if place < EXACT_BINS:
        return float(place)
    bits = np.int64(place - EXACT_BINS + FIRST_OCTAVE) << BIN_SHIFT
    return float(np.int64(bits).view(np.float64))
