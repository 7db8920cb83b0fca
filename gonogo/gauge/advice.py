"""The tolerance that a test should have: the best window, other comparators beside it, and what no
tolerance can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.gauge.comparators import Comparator
from gonogo.gauge.windows import Row, Tolerances, Window, rejects


@dataclass(frozen=True)
class Advice:
    """A declared tolerance (output -> comparators), the wrong parts that still pass it with their
    seeds, and how many were rejected.
    """

    tolerance: Tolerances
    missed: Mapping[str, int]
    parts: tuple[str, ...]
    """The wrong parts that can show."""

    @property
    def works(self) -> bool:
        """Return whether every wrong part that can show is rejected on every seed."""
        return bool(self.tolerance and self.parts) and not self.missed

    def to_json(self) -> dict[str, Any]:
        """{"tolerance", "works", "rejected", "missed"}."""
        rejected = [part for part in self.parts if part not in self.missed]
        return {
            "tolerance": {name: dict(each) for name, each in self.tolerance.items()},
            "works": self.works,
            "rejected": rejected,
            "missed": dict(self.missed),
        }

    @property
    def words(self) -> str:
        """In one or two sentences."""
        if not self.parts:
            return "No wrong kernel can show with these inputs: they measure no tolerance."
        if not self.tolerance:
            return "No tolerance can be advised: no comparator bounds a right kernel's error on these inputs."
        written = spelt(self.tolerance)
        if self.works:
            return f"Take {written}: every right kernel passes, all {len(self.parts)} wrong ones that can show fail."
        rejected = len(self.parts) - len(self.missed)
        return (
            f"No tolerance works with these inputs. The sharpest that every right kernel passes, {written}, rejects {rejected} of "
            f"{len(self.parts)} wrong ones on every seed; it misses {', '.join(self.missed)}."
        )


def spelt(tolerance: Tolerances) -> str:
    """ "dx: rtol 0.001, atol 0.014; dgamma: ..." """
    return "; ".join(
        f"{name}: " + ", ".join(f"{key} {value:.6g}" for key, value in each.items())
        for name, each in tolerance.items()
    )


def best(windows: Sequence[Window], no_go: Sequence[Row]) -> Window | None:
    """Return the window that misses the fewest wrong parts, then runs; of equals the one with the most
    room, then the first.
    """
    usable = [each for each in windows if each.usable]
    if not usable or not no_go:
        return usable[0] if usable else None
    return min(
        usable, key=lambda each: (len(each.missed), sum(each.missed.values()), -each.within_reach)
    )


def advice(windows: Sequence[Window], no_go: Sequence[Row]) -> Advice:
    """Return the best window's tolerance; where it misses some, with other comparators, each added for
    what it rejects beyond the others.

    One allclose at most: rtol and atol are one comparator.
    """
    parts = tuple(dict.fromkeys(row["part"] for row in no_go))
    close = [each for each in windows if each.comparator.name == "allclose"]
    first = best([each for each in close if each.works], no_go) or best(
        [each for each in windows if each.works], no_go
    )
    first = first or best(close, no_go) or best(windows, no_go)
    if first is None:
        return Advice({}, {}, parts)
    taken: dict[Comparator, Tolerances] = {first.comparator: first.tolerances()}
    left = _passing(taken, no_go)
    while left:
        others = {
            each.comparator: each.tolerances()
            for each in windows
            if each.usable and _may_join(each.comparator, taken)
        }
        rests = {
            comparator: _passing({comparator: tolerances}, left)
            for comparator, tolerances in others.items()
        }
        comparator = min(
            rests, key=lambda each: (len(_parts(rests[each])), len(rests[each])), default=None
        )
        if comparator is None or len(_parts(rests[comparator])) == len(_parts(left)):
            break  # nothing rejects another part on every seed
        taken[comparator] = others[comparator]
        left = rests[comparator]
    tolerance: dict[str, dict[str, float]] = {}
    for tolerances in taken.values():
        for name, each in tolerances.items():
            tolerance.setdefault(name, {}).update(each)
    missed: dict[str, int] = {}
    for row in left:
        missed[row["part"]] = missed.get(row["part"], 0) + 1
    return Advice(tolerance, missed, parts)


def _may_join(comparator: Comparator, taken: Mapping[Comparator, Tolerances]) -> bool:
    return comparator.name not in {each.name for each in taken}


def _parts(rows: Sequence[Row]) -> set[str]:
    return {row["part"] for row in rows}


def _passing(taken: Mapping[Comparator, Tolerances], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not rejects(taken, row)]
