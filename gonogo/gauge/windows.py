"""The window of a comparator: the tolerances between right kernels and mutants.

It begins at the smallest tolerance that passes right kernels, and ends at the largest that rejects
every mutant.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gonogo.gauge.comparators import Comparator, above
from gonogo.gauge.summary import SingleEdges, WindowEdges, WindowSummary

MOST_DIGITS = 17
"""The digits that tell any two floating-point numbers apart."""
Row = Mapping[str, Any]
Tolerances = Mapping[str, Mapping[str, float]]
"""Output -> tolerance."""


def window(
    comparator: Comparator,
    right_rows: Sequence[Row],
    mutant_rows: Sequence[Row],
    outputs: Iterable[str],
) -> WindowSummary:
    """Return the window of right kernels, and of mutants that can show, over these outputs.

    The lower edge of an output is the largest of what the right kernels needed, and of what their
    arithmetics may need (gonogo.judging.edges); an output without any bound has none. The room is
    the factor by which all lower edges may be widened together before a mutant passes. The upper
    edges are for the mutants that the lower edge rejects on every seed.
    """
    lower: dict[str, float] = {}
    observed: dict[str, float] = {}
    for name in outputs:
        values = [_of(comparator, row, name) for row in right_rows if name in row["outputs"]]
        known = [
            comparator.deviation(row["edges"][name])
            for row in right_rows
            if name in (row.get("edges") or {})
        ]
        edge = max((*values, *known), default=math.inf)
        if edge < comparator.largest:
            lower[name], observed[name] = edge, max(values)
    rooms = [(row["part"], _room(comparator, row, lower)) for row in mutant_rows]
    missed = Counter(part for part, room in rooms if not room > 1)
    largest = [
        max((_of(comparator, row, name) for name in lower), default=0.0) for row in mutant_rows
    ]
    room = min((room for _, room in rooms), default=math.inf)
    within_reach = min((room for part, room in rooms if part not in missed), default=math.inf)
    return WindowSummary(
        comparator=comparator.name,
        rtol=comparator.rtol,
        works=bool(lower) and room > 1,
        room=finite(room),
        room_within_reach=finite(within_reach),
        outputs={
            name: WindowEdges(low, finite(low * within_reach) if low else None, observed[name])
            for name, low in lower.items()
        },
        single=SingleEdges(
            finite(max(lower.values(), default=math.inf)), finite(min(largest, default=math.inf))
        ),
        missed=dict(missed),
        tolerance=_tolerances(comparator, lower, within_reach) if lower else None,
    )


def _tolerances(
    comparator: Comparator, lower: Mapping[str, float], within_reach: float
) -> dict[str, dict[str, float]]:
    """Return the lower edge as tolerances with as few digits as possible."""
    digits = next(
        (
            count
            for count in range(2, MOST_DIGITS)
            if all(above(low, count) < low * within_reach for low in lower.values() if low)
        ),
        MOST_DIGITS,
    )
    return {name: comparator.tolerance(above(low, digits)) for name, low in lower.items()}


def finite(value: float | None) -> float | None:
    """Return a number; None where it is none, or infinite."""
    return value if value is not None and math.isfinite(value) else None


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
