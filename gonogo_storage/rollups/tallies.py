"""Sums over result rows.

They are counts of seeds, verdicts, explanations and outcomes, device time, and sketches of four
statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gonogo.flakiness import sketches
from gonogo.flakiness.outcomes import outcome_of
from gonogo.flakiness.sketches import Sketch
from gonogo_storage.rollups.figures import mean, total_figures
from gonogo_storage.seed_rows.packing import KINDS, stored_number
from gonogo_storage.tables import DayRollupRow, JobTallyRow

WHOLE = ""
"""Stands for the whole seed instead of an output."""
OF_OUTPUT = ("tolerance_ratio", "budget_ratio", "rms")
OF_SEED = ("tolerance_ratio", "budget_ratio")
"""The statistics of a whole seed are those of its worst output."""
DURATION = "duration_ms"
_GREEN, _RED = "passed", frozenset({"failed", "error", "crash", "hang"})
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": math.inf}
MAXIMA = ("tolerance_ratio", "budget_ratio", "chi", "max_abs", "row_z", "xhat_z", "scale_z")
MEANS = ("rms", "pcc_deficit")
"""The statistics whose maximum, or whose sum, an output's tally has."""
READ = (*MAXIMA, *MEANS, "outcome", "nonfinite_statistics", KINDS)
"""What `tallies` reads of an output, besides its verdict and explanation."""
Output = Mapping[str, Any]


@dataclass(frozen=True)
class Tally:
    """Sums over (seed, repeat), or over one output; the order of adding doesn't matter."""

    seeds: int = 0
    empty: int = 0
    """Number of `seeds` without any output: hangs, crashes, errors."""
    duration_us: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    explanations: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Of an output its MAXIMA, and for MEANS the sum and the number of its values; of whole seeds
    those of the duration, over the seeds with outputs (gonogo_storage.rollups.figures)."""
    sketches: Mapping[str, Sketch] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of both."""
        return total((self, other))

    def columns(self) -> dict[str, Any]:
        """Return the values of the database columns."""
        sketches = {name: sketch.to_json() for name, sketch in self.sketches.items()}
        return {
            "seeds": self.seeds,
            "empty": self.empty,
            "duration_us": self.duration_us,
            "counts": dict(self.counts),
            "explanations": dict(self.explanations),
            "outcomes": dict(self.outcomes),
            "figures": dict(self.figures),
            "sketches": sketches,
        }

    @staticmethod
    def of(table: type[DayRollupRow] | type[JobTallyRow], *, sketches: bool = True) -> list[Any]:
        """Return the columns that `stored` reads."""
        return [
            getattr(table, name)
            for name in Tally.__dataclass_fields__
            if sketches or name != "sketches"
        ]

    @classmethod
    def stored(cls, row: Any) -> Tally:
        """Return the tally of a row; without sketches if they weren't read."""
        sketches = {
            name: Sketch.parse(value) for name, value in getattr(row, "sketches", {}).items()
        }
        return cls(
            row.seeds,
            row.empty,
            row.duration_us,
            row.counts,
            row.explanations,
            row.outcomes,
            row.figures,
            sketches,
        )


def total(parts: Sequence[Tally]) -> Tally:
    """Return the sum of all parts; the empty tally for none."""
    metrics = sorted({name for part in parts for name in part.sketches})
    return Tally(
        sum(part.seeds for part in parts),
        sum(part.empty for part in parts),
        sum(part.duration_us for part in parts),
        _sum(part.counts for part in parts),
        _sum(part.explanations for part in parts),
        _sum(part.outcomes for part in parts),
        total_figures(part.figures for part in parts),
        {
            name: sketches.total(part.sketches[name] for part in parts if name in part.sketches)
            for name in metrics
        },
    )


def tallies(seeds: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Tally]:
    """Return the sums by (device, output) of seeds, as in a results message.

    Results of existing tests (with an `outcome`) count into their iteration and have no separate
    sums, because a suite has thousands.
    """
    whole: dict[str, list[Mapping[str, Any]]] = {}
    outputs: dict[tuple[str, str], list[Output]] = {}
    for seed in seeds:
        device = seed.get("device") or ""
        whole.setdefault(device, []).append(seed)
        for name, output in (seed.get("outputs") or {}).items():
            if output.get("outcome") is None:
                outputs.setdefault((device, name), []).append(output)
    sums = {(device, WHOLE): _of_seeds(members) for device, members in whole.items()}
    return sums | {place: _of_output(members) for place, members in outputs.items()}


def _of_seeds(seeds: Sequence[Mapping[str, Any]]) -> Tally:
    outputs = [[*(seed.get("outputs") or {}).values()] for seed in seeds]
    durations = [seed.get(DURATION) for seed in seeds]
    values = {name: [_worst(_values(of_seed, name)) for of_seed in outputs] for name in OF_SEED}
    measured = _finite(ms for ms, of_seed in zip(durations, outputs, strict=True) if of_seed)
    outcomes: Counter[str] = Counter()
    judged = Counter([(s["verdict"], _green(o)) for s, o in zip(seeds, outputs, strict=True)])
    for (verdict, green), number in judged.items():
        outcomes[outcome_of(verdict, green).value] += number
    return Tally(
        seeds=len(seeds),
        empty=outputs.count([]),
        duration_us=sum(map(_microseconds, durations)),
        counts=_count([seed["verdict"] for seed in seeds]),
        explanations=_count([seed.get("explanation") for seed in seeds]),
        outcomes=_ordered(outcomes),
        figures={DURATION: mean(measured)} if measured else {},
        sketches={
            name: Sketch.of(numbers)
            for name, numbers in sorted({**values, DURATION: durations}.items())
        },
    )


def _of_output(rows: Sequence[Output]) -> Tally:
    values = {name: _values(rows, name) for name in (*MAXIMA, *MEANS)}
    figures: dict[str, Any] = {}
    for name in MAXIMA:
        if known := _finite(values[name]):
            figures[name] = stored_number(name, max(known))
    for name in MEANS:
        if known := _finite(values[name]):
            figures[name] = mean(known)
    return Tally(
        seeds=len(rows),
        counts=_count([row["verdict"] for row in rows]),
        explanations=_count([row.get("explanation") for row in rows]),
        figures=figures,
        sketches={name: Sketch.of(values[name]) for name in sorted(OF_OUTPUT)},
    )


def _values(outputs: Sequence[Output], name: str) -> Sequence[float | None]:
    """Return `value_of` each output."""
    values = [output.get(name) for output in outputs]
    return [value_of(output, name) for output in outputs] if None in values else values


def _finite(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None and value - value == 0]


def value_of(output: Output, name: str) -> float | None:
    """Return a statistic of an output, or None if there is none.

    It is NaN or Inf if it is None and its kind is known.
    """
    value = output.get(name)
    if value is not None:
        return float(value)
    # The kinds come from ingest, and from a comparison, which names them itself.
    kinds = {**(output.get("nonfinite_statistics") or {}), **(output.get(KINDS) or {})}
    return _NONFINITE.get(str(kinds.get(name))) if kinds else None


def _worst(values: Sequence[float | None]) -> float | None:
    """Return the largest magnitude; NaN if one is NaN, None if all are."""
    known = [abs(value) for value in values if value is not None]
    return math.nan if math.isnan(sum(known)) else max(known, default=None)


def _green(outputs: Sequence[Output]) -> bool | None:
    """Return whether an iteration's tests passed; None for a kernel's seed, which has no tests."""
    outcomes = {output["outcome"] for output in outputs if output.get("outcome") is not None}
    return False if outcomes & _RED else True if _GREEN in outcomes else None


def _microseconds(duration_ms: float | None) -> int:
    """Return whole microseconds, whose sums are exact; 0 for an impossible time."""
    return round(1000 * duration_ms) if duration_ms is not None and 0 < duration_ms < 1e12 else 0


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total_counts: Counter[str] = Counter()
    for part in counts:
        total_counts.update(part)
    return _ordered(total_counts)


def _count(words: Iterable[str | None]) -> dict[str, int]:
    return {str(word): number for word, number in sorted(Counter(filter(None, words)).items())}


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
