"""The comparison of a job's build with its reference build, output by output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.verdicts import Explanation
from gonogo_storage.jobs.job import Job
from gonogo_storage.jobs.job_seeds import SeedRecord
from gonogo_storage.seeds import flips

_WORST_FIRST = [explanation.value for explanation in Explanation]
_NUMBERS = ("max_abs", "ulp_max", "mismatch_fraction", "budget_ratio")


@dataclass(frozen=True)
class ComparisonLine:
    """One output against that of the reference build: the worst of the seeds shown."""

    output: str
    explanation: str
    reference_explanation: str | None  # of the reference build's own error against float64
    max_abs: float | None
    ulp_max: float | None
    mismatch_fraction: float | None
    budget_ratio: float | None


def flip_lines(session: Session, job: Job) -> tuple[FlipsSummary, ...]:
    """Return the flips of each output that has counts, by name."""
    return () if job.reference is None else flips.of_job(session, job.id)


def lines(seeds: Sequence[SeedRecord]) -> tuple[ComparisonLine, ...]:
    """Return a line per output that has a comparison, by name."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        for name, mark in seed.outputs.items():
            if entry := mark.statistics.get("reference"):
                entries.setdefault(name, []).append(entry)
    return tuple(
        _line(name, entries_of_output) for name, entries_of_output in sorted(entries.items())
    )


def _line(output: str, entries: Sequence[dict[str, Any]]) -> ComparisonLine:
    alone = [
        entry["against_float64"]["explanation"] for entry in entries if entry.get("against_float64")
    ]
    largest = {
        name: max((entry[name] for entry in entries if entry.get(name) is not None), default=None)
        for name in _NUMBERS
    }
    return ComparisonLine(
        output=output,
        explanation=min((entry["explanation"] for entry in entries), key=_WORST_FIRST.index),
        reference_explanation=min(alone, key=_WORST_FIRST.index) if alone else None,
        **largest,
    )
