"""The tolerance that a test should have.

It is the best window's, with other comparators if one misses mutants, and it says what no tolerance
can see.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from gonogo.gauge.comparators import Comparator
from gonogo.gauge.summary import AdvisedTolerance, WindowSummary
from gonogo.gauge.windows import Row, Tolerances, rejects


def spelled(tolerance: Tolerances) -> str:
    """Return the tolerance in words: `dx: rtol 0.001, atol 0.014; dgamma: ...`."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{key} {value:.6g}" for key, value in limits.items())
        for name, limits in tolerance.items()
    )


def advice(windows: Sequence[WindowSummary], mutant_rows: Sequence[Row]) -> AdvisedTolerance:
    """Return the best window's tolerance, with other comparators if it misses some mutants.

    mutant_rows: those of the mutants that can show.

    Each comparator is added for the mutants that it rejects and the others don't. There is at most
    one allclose, because rtol and atol are one comparator.
    """
    usable = [window for window in windows if window.tolerance]
    tolerances: dict[Comparator, Tolerances] = {
        window.comparison: window.tolerance for window in usable if window.tolerance
    }
    first = _best(usable)
    chosen = {} if first is None else {first.comparison: tolerances[first.comparison]}
    left = _passing(chosen, mutant_rows)
    while left and chosen:
        names = {other.name for other in chosen}
        rests = {
            comparator: _passing({comparator: tolerances[comparator]}, left)
            for comparator in tolerances
            if comparator.name not in names
        }
        sizes = {comparator: (_parts(rest), len(rest)) for comparator, rest in rests.items()}
        best = min(sizes, key=lambda comparator: sizes[comparator], default=None)
        if best is None or sizes[best][0] == _parts(left):
            break  # nothing rejects another part on every seed
        chosen[best] = tolerances[best]
        left = rests[best]
    tolerance: dict[str, dict[str, float]] = {}
    for one in chosen.values():
        for name, limits in one.items():
            tolerance.setdefault(name, {}).update(limits)
    parts = list(dict.fromkeys(row["part"] for row in mutant_rows))
    missed = dict(Counter(row["part"] for row in left)) if tolerance else {}
    return AdvisedTolerance(
        tolerance=tolerance,
        works=bool(tolerance and parts) and not missed,
        rejected=[part for part in parts if part not in missed] if tolerance else [],
        missed=missed,
        words=_words(tolerance, parts, missed),
    )


def _best(usable: Sequence[WindowSummary]) -> WindowSummary | None:
    """Return the window to begin with: an allclose that works, another that does, an allclose.

    Of several, it is the one that misses the fewest mutants, then the fewest runs. Ties go to the
    window with the most room, then to the first.
    """

    def order(window: WindowSummary) -> tuple[bool, bool, int, int, float]:
        room = window.room_within_reach
        return (
            not window.works,
            window.comparator != "allclose",
            len(window.missed),
            sum(window.missed.values()),
            -(math.inf if room is None else room),
        )

    return min(usable, key=order, default=None)


def _words(tolerance: Tolerances, parts: Sequence[str], missed: Mapping[str, int]) -> str:
    """Return the advice in one or two sentences."""
    if not parts:
        return "No mutant can show with these inputs: they measure no tolerance."
    if not tolerance:
        bounds = "no comparator bounds a right kernel's error on these inputs"
        return f"No tolerance can be advised: {bounds}."
    written, count = spelled(tolerance), len(parts)
    if not missed:
        return f"Take {written}: every right kernel passes, all {count} mutants that can show fail."
    return (
        "No tolerance works with these inputs. The sharpest that every right kernel passes,"
        f" {written}, rejects {count - len(missed)} of {count} mutants on every seed; it"
        f" misses {', '.join(missed)}."
    )


def _parts(rows: Sequence[Row]) -> int:
    return len({row["part"] for row in rows})


def _passing(chosen: Mapping[Comparator, Tolerances], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not rejects(chosen, row)]
