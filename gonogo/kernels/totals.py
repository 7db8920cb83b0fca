"""Running totals of a matrix output's rows, and the statistics that follow from them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import compare, directions
from gonogo.numerics.expectation import Array, Direction, Expectation, excess


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
        amounts = np.abs(w) * np.sqrt(expected.variance)
        alone = groups < 0
        alike = {
            int(group): amounts[groups == group].sum(axis=0) for group in np.unique(groups[~alone])
        }
        return cls(
            numerator=(w * error).sum(axis=0),
            norm=(w**2).sum(axis=0),
            independent=(amounts[alone] ** 2).sum(axis=0),
            goldens=[(w * golden).sum(axis=0) for golden in goldens],
            trends=[(w * trend).sum(axis=0) for trend in expected.trend],
            allowances=[(w * allowance).sum(axis=0) for allowance in expected.allowance],
            spread=np.zeros(w.shape[1])
            if expected.spread is None
            else (np.abs(w) * expected.spread).sum(axis=0),
            alike=alike,
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

    def scores(self, floor: float) -> directions.Scores:
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
            directions.outside(self.numerator, self.allowances), variance, self.norm > floor
        )


@dataclass
class Totals:
    """Running totals of an output's rows, merged in the order of the rows."""

    sums: Array
    largest: Array
    distances: Counter[float]
    worst: tuple[float, int, int]
    rows: dict[str, list[Array]]  # z of the rows, by direction
    columns: dict[str, Column]
    floors: dict[str, float]

    def add(self, other: Totals) -> None:
        """Add the totals of the next rows."""
        self.sums = self.sums + other.sums
        self.largest = np.maximum(self.largest, other.largest)
        self.distances.update(other.distances)
        self.worst = max(self.worst, other.worst, key=lambda worst: worst[0])
        for name, z in other.rows.items():
            self.rows.setdefault(name, []).extend(z)
        for name, column in other.columns.items():
            if name in self.columns:
                self.columns[name].add(column)
            else:
                self.columns[name] = column
        self.floors |= other.floors


SUMS = (
    "abs",
    "square",
    "raw",
    "raw_square",
    "error",
    "centred",
    "cross",
    "left_out",
    "used",
    "over",
    "chi",
    "mismatch",
    "outliers",
)
LARGEST = (
    "abs",
    "raw",
    "ulp",
    "tolerance",
    "quantized",
    *(f"needed{rtol:g}" for rtol in compare.NEEDED_RTOLS),
)


def finished(
    totals: Totals, count: int, declared: bool, every: Sequence[Direction]
) -> dict[str, Any]:
    """Return the statistics of `count` elements, with the scores of every direction.

    declared: the output has a tolerance on its elements.
    """
    s = dict(zip(SUMS, totals.sums.tolist(), strict=True))
    m = dict(zip(LARGEST, totals.largest.tolist(), strict=True))
    norm, distance = s["raw_square"] ** 0.5, s["square"] ** 0.5
    bb, bd, dd = (
        s["centred"] - s["raw"] ** 2 / count,
        s["cross"] - s["raw"] * s["error"] / count,
        s["square"] - s["error"] ** 2 / count,
    )
    result: dict[str, Any] = {
        "max_abs": m["abs"],
        "mean_abs": s["abs"] / count,
        "rms": (s["square"] / count) ** 0.5,
        "rel_frobenius": distance / norm if norm else (0.0 if distance == 0 else np.inf),
        "pcc_deficit": compare.pcc_from_sums(count, dd, bb, bd, m["raw"]),
        "ulp_max": m["ulp"],
        "ulp_p99": _percentile(totals.distances, count),
        "needed_atol": {f"{rtol:g}": m[f"needed{rtol:g}"] for rtol in compare.NEEDED_RTOLS},
        "tolerance_ratio": m["tolerance"] if declared else None,
        "tolerance_ratio_quantised": m["quantized"] if declared else None,
        "outliers": int(s["outliers"]),
        "rows_left_out": int(s["left_out"]),
    }
    used = s["used"]
    for name in ("budget_ratio", "over_budget_fraction", "chi", "mismatch_fraction"):
        result[name] = None
    if used:
        result |= {
            "budget_ratio": totals.worst[0],
            "over_budget_fraction": s["over"] / used,
            "chi": (s["chi"] / used) ** 0.5,
        }
        result |= {
            "mismatch_fraction": s["mismatch"] / used,
            "worst_index": [totals.worst[1], totals.worst[2]],
        }
    for direction in every:
        result |= compare.scores_of(direction.name, _scores(totals, direction.name))
    return result


def blank(every: Sequence[Direction]) -> dict[str, Any]:
    """Return what compare.blank does, from the directions alone."""
    result: dict[str, Any] = dict.fromkeys(
        ("budget_ratio", "over_budget_fraction", "chi", "mismatch_fraction")
    )
    result |= {"outliers": 0, "rows_left_out": 0}
    for direction in every:
        result |= compare.scores_of(direction.name, None)
    return result


def _scores(totals: Totals, name: str) -> directions.Scores | None:
    if name in totals.columns:
        return totals.columns[name].scores(totals.floors[name])
    if name not in totals.rows:
        return None
    z = np.concatenate(totals.rows[name])
    scores = np.abs(z[~np.isnan(z)])
    if not scores.size:
        return directions.Scores(None, None, 0, z)
    return directions.Scores(
        float(np.sqrt(np.mean(scores**2))), float(scores.max()), scores.size, z
    )


def _percentile(distances: Mapping[float, int], count: int) -> float:
    """Return compare.percentile_99 of counted distances."""
    remaining = max(1, -(-99 * count // 100))
    for value in sorted(distances):
        remaining -= distances[value]
        if remaining <= 0:
            return float(value)
    return 0.0
