"""What a job's page says of the build that it is compared with: how far the two are apart, output
by output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.spec.verdicts import Explanation
from gonogo_storage.jobs.job_seeds import SeedRecord

_WORST_FIRST = [each.value for each in Explanation]
_NUMBERS = ("max_abs", "ulp_max", "mismatch_fraction", "budget_ratio")


@dataclass(frozen=True)
class ComparisonLine:
    """One output against the reference build's: the worst over the seeds that are looked at."""

    output: str
    explanation: str
    reference_explanation: str | None  # of the reference build's own error against float64
    max_abs: float | None
    ulp_max: float | None
    mismatch_fraction: float | None
    budget_ratio: float | None


def lines(seeds: Sequence[SeedRecord]) -> tuple[ComparisonLine, ...]:
    """A line per output that has been compared, by name."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        for name, mark in seed.outputs.items():
            if entry := mark.statistics.get("reference"):
                entries.setdefault(name, []).append(entry)
    return tuple(_line(name, found) for name, found in sorted(entries.items()))


def _line(output: str, entries: Sequence[dict[str, Any]]) -> ComparisonLine:
    alone = [
        each["against_float64"]["explanation"] for each in entries if each.get("against_float64")
    ]
    largest = {
        name: max((each[name] for each in entries if each.get(name) is not None), default=None)
        for name in _NUMBERS
    }
    return ComparisonLine(
        output=output,
        explanation=min((each["explanation"] for each in entries), key=_WORST_FIRST.index),
        reference_explanation=min(alone, key=_WORST_FIRST.index) if alone else None,
        **largest,
    )
