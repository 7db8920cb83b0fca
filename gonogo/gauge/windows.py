"""The window of a comparator: the tolerances between right kernels and mutants.

It begins at the smallest tolerance that passes right kernels, and ends at the largest that rejects
every mutant.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from gonogo.gauge.comparators import Comparator, above
from gonogo.gauge.summary import SingleEdges, WindowEdges, WindowSummary

Row = Mapping[str, Any]
Tolerances = Mapping[str, Mapping[str, float]]
"""Output -> tolerance."""

TAIL_SEEDS = 8
"""Fewer deviations say nothing about their tail."""
TAIL = 1e-3
"""The rarest deviation of a right kernel that the tail predicts; never rarer than 1 in 10 times
the runs."""


@dataclass(frozen=True)
class Tail:
    """The largest observed deviation of right kernels, and a predicted one.

    A run deviates by more than `level` with `probability`.
    """

    observed: float
    level: float | None
    probability: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Tail:
        """Return the tail of these deviations.

        The largest error of many elements is Gumbel distributed: by its moments, scale = sqrt(6)/pi
        standard deviations, and level = mean + scale (-ln(-ln(1 - p)) - Euler's constant).
        """
        largest = max(values, default=math.inf)
        if len(values) < TAIL_SEEDS or not math.isfinite(largest):
            return cls(largest, None, None)
        probability = max(TAIL, 1 / (10 * len(values)))
        scale = pstdev(values) * math.sqrt(6) / math.pi
        return cls(
            largest,
            max(
                largest,
                fmean(values) + scale * (-math.log(-math.log1p(-probability)) - 0.5772156649),
            ),
            probability,
        )


@dataclass(frozen=True)
class Window:
    """One comparator's window.

    `room` is the factor between its edges: above 1 there is a tolerance that works, up to 1 none.

    lower: output -> the smallest tolerance, analytic and at least the observed one; outputs without
    any deviation are left out. within_reach: the room for the mutants that the lower edge rejects
    on every seed: all lower edges may be widened by this factor together before another part passes
    (infinite: no run of a mutant). single: the edges of one tolerance for all outputs. missed:
    mutant -> seeds that pass at the lower edge.
    """

    comparator: Comparator
    lower: Mapping[str, float]
    tails: Mapping[str, Tail]
    room: float
    within_reach: float
    single: tuple[float, float]
    missed: Mapping[str, int]

    @property
    def usable(self) -> bool:
        """Return whether it has an edge for any output."""
        return bool(self.lower)

    @property
    def works(self) -> bool:
        """Return whether one of its tolerances separates right kernels from mutants.

        It must pass every right kernel and reject every mutant that can show.
        """
        return self.usable and self.room > 1

    def tolerances(self) -> dict[str, dict[str, float]]:
        """Return the advised tolerances: the lower edge, with as few digits as possible."""
        digits = next(
            (
                d
                for d in (2, 3, 4)
                if all(above(low, d) < low * self.within_reach for low in self.lower.values())
            ),
            3,
        )
        return {
            name: self.comparator.tolerance(above(low, digits)) for name, low in self.lower.items()
        }

    @property
    def summary(self) -> WindowSummary:
        """Return it in plain values; infinite numbers are None."""
        return WindowSummary(
            comparator=self.comparator.name,
            rtol=self.comparator.rtol,
            works=self.works,
            room=_finite(self.room),
            room_within_reach=_finite(self.within_reach),
            outputs={
                name: WindowEdges(
                    lower=low,
                    upper=_finite(low * self.within_reach) if low else None,
                    observed=_finite(self.tails[name].observed),
                    tail=self.tails[name].level,
                    tail_probability=self.tails[name].probability,
                )
                for name, low in self.lower.items()
            },
            single=SingleEdges(_finite(self.single[0]), _finite(self.single[1])),
            missed=dict(self.missed),
            tolerance=self.tolerances() if self.usable else None,
        )


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def window(
    comparator: Comparator,
    right_rows: Sequence[Row],
    mutant_rows: Sequence[Row],
    outputs: Iterable[str],
) -> Window:
    """Return the window of right kernels, and of mutants that can show, over these outputs."""
    lower: dict[str, float] = {}
    tails: dict[str, Tail] = {}
    for name in outputs:
        values = [
            comparator.deviation(row["outputs"][name])
            for row in right_rows
            if name in row["outputs"]
        ]
        known = [
            comparator.deviation(row["edges"][name])
            for row in right_rows
            if row.get("edges") and name in row["edges"]
        ]
        edge = max((*values, *known), default=math.inf)
        if edge < comparator.largest:
            lower[name], tails[name] = edge, Tail.of(values)
    rooms = [(row["part"], _room(comparator, row, lower)) for row in mutant_rows]
    missed: dict[str, int] = {}
    for part, room in rooms:
        if not room > 1:
            missed[part] = missed.get(part, 0) + 1
    largest = [
        max((_of(comparator, row, name) for name in lower), default=0.0) for row in mutant_rows
    ]
    single = (max(lower.values(), default=math.inf), min(largest, default=math.inf))
    room = min((room for _, room in rooms), default=math.inf)
    within_reach = min((room for part, room in rooms if part not in missed), default=math.inf)
    return Window(comparator, lower, tails, room, within_reach, single, missed)


def _of(comparator: Comparator, row: Row, name: str) -> float:
    return comparator.deviation(row["outputs"][name]) if name in row["outputs"] else 0.0


def _room(comparator: Comparator, row: Row, lower: Mapping[str, float]) -> float:
    """Return the factor by which all lower edges may be widened until the row passes."""
    room = 0.0
    for name, low in lower.items():
        deviation = _of(comparator, row, name)
        if deviation > 0:
            room = max(room, deviation / low if low > 0 else math.inf)
    return room


def rejects(comparators: Mapping[Comparator, Tolerances], row: Row) -> bool:
    """Return whether any of the tolerances is exceeded on any output of the row."""
    return any(
        comparator.exceeded(row["outputs"][name], tolerance)
        for comparator, tolerances in comparators.items()
        for name, tolerance in tolerances.items()
        if name in row["outputs"]
    )
