"""Error curves of a test over the tolerance, from the runs of a gauge.

They count false alarms of right kernels and missed mutants.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gonogo.gauge.comparators import Comparator
from gonogo.gauge.summary import MeasuredRate
from gonogo.gauge.windows import Row

MAX_STEPS = 160
"""A picture has no room for more; the others are left out evenly."""


@dataclass(frozen=True)
class CurveStep:
    """Failing runs of right kernels and passing runs of mutants, from this tolerance on.

    They hold up to the next step.
    """

    tolerance: float
    alarms: MeasuredRate
    misses: MeasuredRate
    note: str = ""
    """The name of the tolerance, where it has one."""


@dataclass(frozen=True)
class Onset:
    """A kernel, and the tolerance at which its verdict changes; None if there is none (NaN).

    For a right kernel it is the smallest that all of its runs pass, so that it raises no alarm. For
    a mutant it is the smallest that any of its runs passes, so that it is missed.
    """

    part: str
    right: bool
    runs: int
    tolerance: float | None


@dataclass(frozen=True)
class Curves:
    """Both curves over the tolerance of a comparator; `steps` ascend, and none is at 0.

    right, wrong: the deviation of each run of right kernels and of mutants, ascending; infinite for
    NaN or Inf.
    """

    right: tuple[float, ...]
    wrong: tuple[float, ...]
    onsets: tuple[Onset, ...]
    steps: tuple[CurveStep, ...]

    @property
    def quiet_from(self) -> float | None:
        """The smallest tolerance at which every right kernel passes; None if there is none."""
        return _largest([onset.tolerance for onset in self.onsets if onset.right])

    @property
    def blind_from(self) -> float | None:
        """The smallest tolerance at which some mutant passes; None if none ever does."""
        return min(
            (
                onset.tolerance
                for onset in self.onsets
                if not onset.right and onset.tolerance is not None
            ),
            default=None,
        )

    def at(self, tolerance: float) -> CurveStep:
        """Return false alarms and misses at a tolerance, of all runs, also between the steps."""
        return _step(self.right, self.wrong, tolerance)


def curves(
    comparator: Comparator, go: Sequence[Row], able: Sequence[Row], outputs: Sequence[str]
) -> Curves:
    """Return the curves of one tolerance for all these outputs.

    go: rows of right kernels; able: rows of mutants that can show. A run passes if the deviations
    of all the outputs that it has are no larger; NaN and Inf never pass.
    """
    right_runs = _deviations(comparator, go, outputs)
    mutant_runs = _deviations(comparator, able, outputs)
    right, wrong = (tuple(sorted(value for _, value in runs)) for runs in (right_runs, mutant_runs))
    places = sorted({value for value in (*right, *wrong) if 0 < value < math.inf})
    if len(places) > MAX_STEPS:
        places = [
            places[place * (len(places) - 1) // (MAX_STEPS - 1)] for place in range(MAX_STEPS)
        ]
    steps = tuple(_step(right, wrong, place) for place in places)
    return Curves(right, wrong, (*_onsets(True, right_runs), *_onsets(False, mutant_runs)), steps)


def _step(right: Sequence[float], wrong: Sequence[float], tolerance: float) -> CurveStep:
    """Return right runs that fail and mutant runs that pass, from ascending deviations."""
    alarms, misses = len(right) - bisect_right(right, tolerance), bisect_right(wrong, tolerance)
    counted = MeasuredRate.counted
    return CurveStep(tolerance, counted(alarms, len(right)), counted(misses, len(wrong)))


def _deviations(
    comparator: Comparator, rows: Sequence[Row], outputs: Sequence[str]
) -> list[tuple[str, float]]:
    """Return (part, the largest deviation of the outputs that the run has) of each row."""
    runs = []
    for row in rows:
        values = [
            comparator.deviation(row["outputs"][name]) for name in outputs if name in row["outputs"]
        ]
        if values:
            runs.append((row["part"], max(values)))
    return runs


def _onsets(right: bool, runs: Sequence[tuple[str, float]]) -> Iterator[Onset]:
    for part in dict.fromkeys(name for name, _ in runs):
        values = [value for name, value in runs if name == part]
        turn = max(values) if right else min(values)
        yield Onset(part, right, len(values), turn if math.isfinite(turn) else None)


def _largest(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None
