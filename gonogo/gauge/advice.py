"""The tolerance that a test should have.

It is the best window's, with other comparators if one misses mutants, and it says what no tolerance
can see.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gonogo.gauge.comparators import Comparator
from gonogo.gauge.summary import AdvisedTolerance
from gonogo.gauge.windows import Row, Tolerances, Window, rejects


@dataclass(frozen=True)
class Advice:
    """A declared tolerance (output -> comparators), and the mutants that still pass it.

    `missed` counts the seeds on which each of them passes.
    """

    tolerance: Tolerances
    missed: Mapping[str, int]
    parts: tuple[str, ...]
    """The mutants that can show."""

    @property
    def works(self) -> bool:
        """Return whether every mutant that can show is rejected on every seed."""
        return bool(self.tolerance and self.parts) and not self.missed

    @property
    def summary(self) -> AdvisedTolerance:
        """Return it in plain values."""
        return AdvisedTolerance(
            tolerance={name: dict(limits) for name, limits in self.tolerance.items()},
            works=self.works,
            rejected=[part for part in self.parts if part not in self.missed],
            missed=dict(self.missed),
            words=self.words,
        )

    @property
    def words(self) -> str:
        """The advice in one or two sentences."""
        if not self.parts:
            return "No mutant can show with these inputs: they measure no tolerance."
        if not self.tolerance:
            return (
                "No tolerance can be advised: no comparator bounds a right kernel's error on these"
                " inputs."
            )
        written = spelled(self.tolerance)
        if self.works:
            return (
                f"Take {written}: every right kernel passes, all {len(self.parts)} mutants that can"
                " show fail."
            )
        rejected = len(self.parts) - len(self.missed)
        return (
            "No tolerance works with these inputs. The sharpest that every right kernel passes,"
            f" {written}, rejects {rejected} of {len(self.parts)} mutants on every seed; it misses"
            f" {', '.join(self.missed)}."
        )


def spelled(tolerance: Tolerances) -> str:
    """Return the tolerance in words: `dx: rtol 0.001, atol 0.014; dgamma: ...`."""
    return "; ".join(
        f"{name}: " + ", ".join(f"{key} {value:.6g}" for key, value in limits.items())
        for name, limits in tolerance.items()
    )


def best(windows: Sequence[Window], mutant_rows: Sequence[Row]) -> Window | None:
    """Return the window that misses the fewest mutants, then the fewest runs.

    Ties go to the window with the most room, then to the first.
    """
    usable = [window for window in windows if window.usable]
    if not usable or not mutant_rows:
        return usable[0] if usable else None
    return min(
        usable,
        key=lambda window: (len(window.missed), sum(window.missed.values()), -window.within_reach),
    )


def advice(windows: Sequence[Window], mutant_rows: Sequence[Row]) -> Advice:
    """Return the best window's tolerance, with other comparators if it misses some mutants.

    Each comparator is added for the mutants that it rejects and the others don't. There is at most
    one allclose, because rtol and atol are one comparator.
    """
    parts = tuple(dict.fromkeys(row["part"] for row in mutant_rows))
    close = [window for window in windows if window.comparator.name == "allclose"]
    first = best([window for window in close if window.works], mutant_rows) or best(
        [window for window in windows if window.works], mutant_rows
    )
    first = first or best(close, mutant_rows) or best(windows, mutant_rows)
    if first is None:
        return Advice({}, {}, parts)
    chosen: dict[Comparator, Tolerances] = {first.comparator: first.tolerances()}
    left = _passing(chosen, mutant_rows)
    while left:
        others = {
            window.comparator: window.tolerances()
            for window in windows
            if window.usable and _may_join(window.comparator, chosen)
        }
        rests = {
            comparator: _passing({comparator: tolerances}, left)
            for comparator, tolerances in others.items()
        }
        comparator = min(
            rests,
            key=lambda candidate: (len(_parts(rests[candidate])), len(rests[candidate])),
            default=None,
        )
        if comparator is None or len(_parts(rests[comparator])) == len(_parts(left)):
            break  # nothing rejects another part on every seed
        chosen[comparator] = others[comparator]
        left = rests[comparator]
    tolerance: dict[str, dict[str, float]] = {}
    for tolerances in chosen.values():
        for name, limits in tolerances.items():
            tolerance.setdefault(name, {}).update(limits)
    missed: dict[str, int] = {}
    for row in left:
        missed[row["part"]] = missed.get(row["part"], 0) + 1
    return Advice(tolerance, missed, parts)


def _may_join(comparator: Comparator, chosen: Mapping[Comparator, Tolerances]) -> bool:
    return comparator.name not in {other.name for other in chosen}


def _parts(rows: Sequence[Row]) -> set[str]:
    return {row["part"] for row in rows}


def _passing(chosen: Mapping[Comparator, Tolerances], rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if not rejects(chosen, row)]
