"""The window of a comparator: from the least tolerance that lets right kernels pass to the largest
that rejects every wrong one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pstdev
from typing import Any

from gonogo.gauge.comparators import Comparator, above

Row = Mapping[str, Any]
Tolerances = Mapping[str, Mapping[str, float]]
"""Output -> tolerance."""

TAIL_SEEDS = 8
"""Fewer deviations say nothing of their tail."""
TAIL = 1e-3
"""How rare a right kernel's deviation the tail names at most; never rarer than 1 in 10 times the
runs."""


@dataclass(frozen=True)
class Tail:
    """What right kernels deviated by, and by how much a run in 1/probability may."""

    observed: float
    level: float | None
    probability: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Tail:
        """Return the largest error of many elements is Gumbel distributed: by its moments, scale =
        sqrt(6)/pi standard deviations, and level = mean + scale (-ln(-ln(1 - p)) - Euler's
        constant).
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

    lower: output -> the least tolerance, analytic and at least what was observed. An output of
    which nothing can be said is left out.
    within_reach: the room for the wrong parts that the lower edge rejects on every seed: all lower
    edges may be widened by this factor together before another part passes (infinite: no wrong
    run).
    single: the edges of one tolerance for all outputs. missed: wrong part -> seeds that pass at the
    lower edge.
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
        """Return whether it says something of any output."""
        return bool(self.lower)

    @property
    def works(self) -> bool:
        """Return whether one of its tolerances passes every right kernel and rejects every wrong one that
        can show.
        """
        return self.usable and self.room > 1

    def tolerances(self) -> dict[str, dict[str, float]]:
        """Return the advised ones: the lower edge, with as few digits as the window has room for."""
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

    def to_json(self) -> dict[str, Any]:
        """Plain numbers; null for infinite."""
        return {
            "comparator": self.comparator.name,
            "rtol": self.comparator.rtol,
            "works": self.works,
            "room": _finite(self.room),
            "room_within_reach": _finite(self.within_reach),
            "outputs": {
                name: {
                    "lower": low,
                    "upper": _finite(low * self.within_reach) if low else None,
                    "observed": _finite(self.tails[name].observed),
                    "tail": self.tails[name].level,
                    "tail_probability": self.tails[name].probability,
                }
                for name, low in self.lower.items()
            },
            "single": {"lower": _finite(self.single[0]), "upper": _finite(self.single[1])},
            "missed": dict(self.missed),
            "tolerance": self.tolerances() if self.usable else None,
        }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def window(
    comparator: Comparator, go: Sequence[Row], no_go: Sequence[Row], outputs: Iterable[str]
) -> Window:
    """From the rows of right kernels, and of wrong ones that can show, over these outputs."""
    lower: dict[str, float] = {}
    tails: dict[str, Tail] = {}
    for name in outputs:
        values = [
            comparator.deviation(row["outputs"][name]) for row in go if name in row["outputs"]
        ]
        known = [
            comparator.deviation(row["edges"][name])
            for row in go
            if row.get("edges") and name in row["edges"]
        ]
        edge = max((*values, *known), default=math.inf)
        if edge < comparator.largest:
            lower[name], tails[name] = edge, Tail.of(values)
    rooms = [(row["part"], _room(comparator, row, lower)) for row in no_go]
    missed: dict[str, int] = {}
    for part, room in rooms:
        if not room > 1:
            missed[part] = missed.get(part, 0) + 1
    largest = [max((_of(comparator, row, name) for name in lower), default=0.0) for row in no_go]
    single = (max(lower.values(), default=math.inf), min(largest, default=math.inf))
    room = min((room for _, room in rooms), default=math.inf)
    within_reach = min((room for part, room in rooms if part not in missed), default=math.inf)
    return Window(comparator, lower, tails, room, within_reach, single, missed)


def _of(comparator: Comparator, row: Row, name: str) -> float:
    return comparator.deviation(row["outputs"][name]) if name in row["outputs"] else 0.0


def _room(comparator: Comparator, row: Row, lower: Mapping[str, float]) -> float:
    """By what factor all lower edges may be widened until the row's largest excess passes."""
    found = 0.0
    for name, low in lower.items():
        deviation = _of(comparator, row, name)
        if deviation > 0:
            found = max(found, deviation / low if low > 0 else math.inf)
    return found


def rejects(comparators: Mapping[Comparator, Tolerances], row: Row) -> bool:
    """Return whether any of the tolerances is exceeded on any output of the row."""
    return any(
        comparator.exceeded(row["outputs"][name], tolerance)
        for comparator, tolerances in comparators.items()
        for name, tolerance in tolerances.items()
        if name in row["outputs"]
    )
