"""Sums over result rows.

They are counts of seeds, verdicts, explanations and outcomes, device time, and sketches of four
statistics.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from gonogo.flakiness import sketches
from gonogo.flakiness.outcomes import outcome_of
from gonogo.flakiness.sketches import Sketch
from gonogo_storage.tables import DayRollupRow, JobTallyRow

WHOLE = ""
"""Stands for the whole seed instead of an output."""
OF_OUTPUT = ("tolerance_ratio", "budget_ratio", "rms")
OF_SEED = ("tolerance_ratio", "budget_ratio")
"""The statistics of a whole seed are those of its worst output."""
DURATION = "duration_ms"
_GREEN, _RED = "passed", frozenset({"failed", "error", "crash", "hang"})
_KINDS = {"nan": math.nan, "inf": math.inf, "-inf": math.inf}


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
        {
            name: sketches.total(part.sketches[name] for part in parts if name in part.sketches)
            for name in metrics
        },
    )


def tallies(rows: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Tally]:
    """Return the sums by (device, output) of rows as in `seed_results`.

    Rows of one (seed, repeat) follow each other. Results of existing tests (`outcome` is set) count
    into their iteration and have no separate sums, because a suite has thousands.
    """
    seeds: dict[str, list[Sequence[Mapping[str, Any]]]] = {}
    outputs: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for _, group in groupby(rows, key=lambda row: (row["seed"], row["repeat"])):
        members = list(group)
        device = members[0]["device"] or ""
        seeds.setdefault(device, []).append(members)
        for row in members:
            if row["output"] != WHOLE and row["outcome"] is None:
                outputs.setdefault((device, row["output"]), []).append(row)
    whole = {(device, WHOLE): _of_seeds(members) for device, members in seeds.items()}
    return whole | {place: _of_output(members) for place, members in outputs.items()}


def _of_seeds(seeds: Sequence[Sequence[Mapping[str, Any]]]) -> Tally:
    heads = [rows[0] for rows in seeds]
    values = {name: [_worst(rows, name) for rows in seeds] for name in OF_SEED} | {
        DURATION: [head[DURATION] for head in heads]
    }
    outcomes = Counter(outcome_of(rows[0]["seed_verdict"], _green(rows)).value for rows in seeds)
    return Tally(
        len(seeds),
        sum(head["output"] == WHOLE for head in heads),
        sum(_microseconds(head[DURATION]) for head in heads),
        _ordered(Counter(head["seed_verdict"] for head in heads)),
        _ordered(Counter(head["seed_explanation"] for head in heads if head["seed_explanation"])),
        _ordered(outcomes),
        {name: Sketch.of(numbers) for name, numbers in sorted(values.items())},
    )


def _of_output(rows: Sequence[Mapping[str, Any]]) -> Tally:
    return Tally(
        len(rows),
        0,
        0,
        _ordered(Counter(row["verdict"] for row in rows)),
        _ordered(Counter(row["explanation"] for row in rows if row["explanation"])),
        {},
        {name: Sketch.of(value_of(row, name) for row in rows) for name in sorted(OF_OUTPUT)},
    )


def value_of(row: Mapping[str, Any], name: str) -> float | None:
    """Return a statistic of a row, or None if there is none.

    It is NaN or Inf if it is stored as NULL with its kind.
    """
    value = row[name]
    if value is not None:
        return float(value)
    # The kinds come from ingest, and from a comparison, which names them itself.
    kinds = {
        **((row["statistics"] or {}).get("nonfinite_statistics") or {}),
        **(row["nonfinite"] or {}),
    }
    return _KINDS.get(str(kinds.get(name)))


def _worst(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Return the largest magnitude over the outputs; NaN if one is NaN, None if none has it."""
    known = [abs(value) for row in rows if (value := value_of(row, name)) is not None]
    return math.nan if any(value != value for value in known) else max(known, default=None)


def _green(rows: Sequence[Mapping[str, Any]]) -> bool | None:
    """Return whether an iteration's tests passed; None for a kernel's seed, which has no tests."""
    outcomes = {row["outcome"] for row in rows if row["outcome"] is not None}
    return False if outcomes & _RED else True if _GREEN in outcomes else None


def _microseconds(duration_ms: float | None) -> int:
    """Return whole microseconds, whose sums are exact; 0 for an impossible time."""
    return round(1000 * duration_ms) if duration_ms is not None and 0 < duration_ms < 1e12 else 0


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total_counts: Counter[str] = Counter()
    for part in counts:
        total_counts.update(part)
    return _ordered(total_counts)


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
