"""How often a test errs at any tolerance: false alarms of right kernels and misses of wrong ones,
from the runs of a gauge.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gonogo.gauge.comparators import Comparator
from gonogo.gauge.rates import Rate
from gonogo.gauge.windows import Row

MOST_STEPS = 160
"""A picture has no room for more; the others are left out evenly."""


@dataclass(frozen=True)
class Step:
    """At this tolerance, and up to the next step: how many runs of right kernels fail, how many of
    wrong ones pass.
    """

    tolerance: float
    alarms: Rate
    misses: Rate


@dataclass(frozen=True)
class Onset:
    """A kernel, and the tolerance from which on it is judged otherwise; None: no tolerance does
    that, as it gives NaN.

    Of a right one: the least that all of its runs pass, so that it raises no alarm. Of a wrong one:
    the least that any of its runs passes, so that it is missed.
    """

    part: str
    right: bool
    runs: int
    tolerance: float | None


@dataclass(frozen=True)
class Curves:
    """Both curves over the tolerance of a comparator; `steps` ascend, and none is at 0.

    right, wrong: by how much each run deviates, ascending, of right kernels and of wrong ones;
    infinite where NaN or Inf was given.
    """

    right: tuple[float, ...]
    wrong: tuple[float, ...]
    onsets: tuple[Onset, ...]
    steps: tuple[Step, ...]

    @property
    def quiet_from(self) -> float | None:
        """The least tolerance at which every right kernel passes; None without any."""
        return _largest([each.tolerance for each in self.onsets if each.right])

    @property
    def blind_from(self) -> float | None:
        """The least tolerance at which some wrong kernel passes; None where none ever does."""
        return min(
            (
                each.tolerance
                for each in self.onsets
                if not each.right and each.tolerance is not None
            ),
            default=None,
        )

    def at(self, tolerance: float) -> tuple[Rate, Rate]:
        """Return (false alarms, misses) at a tolerance, of all runs, whichever steps were left out."""
        return _errors(self.right, self.wrong, tolerance)


def curves(
    comparator: Comparator, go: Sequence[Row], able: Sequence[Row], outputs: Sequence[str]
) -> Curves:
    """Of one tolerance for all these outputs, from the rows of right kernels and of wrong ones that
    can show.

    A run passes where the deviations of all the outputs that it has are no larger; NaN and Inf
    never pass.
    """
    go_by, able_by = _deviations(comparator, go, outputs), _deviations(comparator, able, outputs)
    right, wrong = (tuple(sorted(value for _, value in found)) for found in (go_by, able_by))
    places = sorted({value for value in (*right, *wrong) if 0 < value < math.inf})
    if len(places) > MOST_STEPS:
        places = [
            places[place * (len(places) - 1) // (MOST_STEPS - 1)] for place in range(MOST_STEPS)
        ]
    steps = tuple(Step(place, *_errors(right, wrong, place)) for place in places)
    return Curves(right, wrong, (*_onsets(True, go_by), *_onsets(False, able_by)), steps)


def _errors(right: Sequence[float], wrong: Sequence[float], tolerance: float) -> tuple[Rate, Rate]:
    """Return (right runs that fail, wrong ones that pass) of ascending deviations."""
    return Rate(len(right) - bisect_right(right, tolerance), len(right)), Rate(
        bisect_right(wrong, tolerance), len(wrong)
    )


def _deviations(
    comparator: Comparator, rows: Sequence[Row], outputs: Sequence[str]
) -> list[tuple[str, float]]:
    """Return (part, the largest deviation of the outputs that the run has)."""
    found = []
    for row in rows:
        values = [
            comparator.deviation(row["outputs"][name]) for name in outputs if name in row["outputs"]
        ]
        if values:
            found.append((row["part"], max(values)))
    return found


def _onsets(right: bool, found: Sequence[tuple[str, float]]) -> Iterator[Onset]:
    for part in dict.fromkeys(name for name, _ in found):
        values = [value for name, value in found if name == part]
        turn = max(values) if right else min(values)
        yield Onset(part, right, len(values), turn if math.isfinite(turn) else None)


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
