"""What is summed up of result rows: counts of verdicts, explanations and outcomes, seeds, device
time, and sketches of four statistics.
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
"""In place of an output: the seed as a whole."""
OF_OUTPUT = ("tolerance_ratio", "budget_ratio", "rms")
OF_SEED = ("tolerance_ratio", "budget_ratio")
"""Of a whole seed: that of its worst output."""
DURATION = "duration_ms"
_GREEN, _RED = "passed", frozenset({"failed", "error", "crash", "hang"})
_KINDS = {"nan": math.nan, "inf": math.inf, "-inf": math.inf}


@dataclass(frozen=True)
class Tally:
    """Sums over (seed, repeat), or over one output of them. Adds up in any order to the same."""

    seeds: int = 0
    empty: int = 0
    """Of these, without any output: hangs, crashes, errors."""
    duration_us: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    explanations: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)
    sketches: Mapping[str, Sketch] = field(default_factory=dict)

    def __add__(self, other: Tally) -> Tally:
        """Both together."""
        return total((self, other))

    def columns(self) -> dict[str, Any]:
        """As a row of the database has it."""
        sketches = {name: each.to_json() for name, each in self.sketches.items()}
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
        """The columns that `stored` reads."""
        return [
            getattr(table, name)
            for name in Tally.__dataclass_fields__
            if sketches or name != "sketches"
        ]

    @classmethod
    def stored(cls, row: Any) -> Tally:
        """From such a row; without sketches where they weren't read."""
        sketches = {name: Sketch.parse(each) for name, each in getattr(row, "sketches", {}).items()}
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
    """All together; of none the empty one."""
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
    """(device, output) -> sums over rows as `seed_results` holds them, those of one (seed, repeat)
    together.

    Entries of tests that exist already (`outcome` set) count into their iteration and have no sums
    of their own: a suite has thousands.
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
    whole = {(device, WHOLE): _of_seeds(each) for device, each in seeds.items()}
    return whole | {place: _of_output(each) for place, each in outputs.items()}


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
        {name: Sketch.of(each) for name, each in sorted(values.items())},
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
    """A statistic of a row; NaN or Inf where it is stored as NULL with its kind, None where there
    is none.
    """
    value = row[name]
    if value is not None:
        return float(value)
    # of whoever sent a number that isn't finite, and of the comparison, which names them itself
    kinds = {
        **((row["statistics"] or {}).get("nonfinite_statistics") or {}),
        **(row["nonfinite"] or {}),
    }
    return _KINDS.get(str(kinds.get(name)))


def _worst(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The largest magnitude of the outputs; NaN where one is NaN, None where none has it."""
    known = [abs(value) for row in rows if (value := value_of(row, name)) is not None]
    return math.nan if any(value != value for value in known) else max(known, default=None)


def _green(rows: Sequence[Mapping[str, Any]]) -> bool | None:
    """What the tests of an iteration say of themselves; None of a kernel's seed, which has none."""
    told = {row["outcome"] for row in rows if row["outcome"] is not None}
    return False if told & _RED else True if _GREEN in told else None


def _microseconds(duration_ms: float | None) -> int:
    """Whole microseconds add up exactly, which fractions don't; 0 for a time that can't be."""
    return round(1000 * duration_ms) if duration_ms is not None and 0 < duration_ms < 1e12 else 0


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for each in counts:
        found.update(each)
    return _ordered(found)


def _ordered(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted(counts.items()))
