"""Sums over seeds, which can be added (gonogo_service.results.rollups.counting makes them).

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
from gonogo.flakiness.sketches import Sketch
from gonogo.spec.statistics import ROLLED_UP, STATISTICS
from gonogo_service.results.rollups.figures import total_figures
from gonogo_service.results.rows import ArchivedTallyRow, DayRollupRow, JobTallyRow
from gonogo_service.results.seed_rows.layouts import KINDS

WHOLE = ""
"""Stands for the whole seed instead of an output."""
OF_OUTPUT = tuple(row.name for row in STATISTICS.values() if row.quantiles)
OF_SEED = tuple(name for name in OF_OUTPUT if STATISTICS[name].rolled_up == "largest")
"""The statistics with a sketch; those of a whole seed are its worst output's."""
DURATION = "duration_ms"
_NONFINITE = {"nan": math.nan, "inf": math.inf, "-inf": math.inf}
MAXIMA, MEANS = (
    tuple(name for name in ROLLED_UP if STATISTICS[name].rolled_up == kind)
    for kind in ("largest", "mean")
)
"""The statistics whose maximum, or whose sum, an output's tally has."""
READ = (*ROLLED_UP, "outcome", "nonfinite_statistics", KINDS)
"""The statistics of an output that is counted, besides its verdict and explanation."""
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
    """For an output its MAXIMA, and for MEANS the sum and the number of its values; of whole seeds
    those of the duration, over the seeds with outputs (gonogo_service.results.rollups.figures)."""
    sketches: Mapping[str, Sketch] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        """Return the sum of both."""
        return total((self, other))

    def sketch(self, metric: str) -> Sketch:
        """Return the sketch of a metric, empty if nothing was counted.

        The metrics are tolerance_ratio and rounding_ratio, for whole seeds those of the worst
        output; for an output also rms, and for whole seeds also duration_ms.
        """
        return self.sketches.get(metric, Sketch())

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
    def of(
        table: type[ArchivedTallyRow] | type[DayRollupRow] | type[JobTallyRow],
        *,
        sketches: bool = True,
    ) -> list[Any]:
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


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total_counts: Counter[str] = Counter()
    for part in counts:
        total_counts.update(part)
    return _ordered(total_counts)


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
