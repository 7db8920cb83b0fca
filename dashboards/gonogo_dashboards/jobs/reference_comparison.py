"""The comparison of a job's build with its reference build, output by output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.verdicts import Explanation
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import flips
from gonogo_service.results.seeds import StoredSeed

_WORST_FIRST = [explanation.value for explanation in Explanation]
_NUMBERS = ("max_abs", "ulp_max", "mismatch_fraction")


@dataclass(frozen=True)
class ComparisonLine:
    """One output against that of the reference build: the worst of the seeds shown."""

    output: str
    within: bool | None
    """Whether the test's tolerance holds between the two; None without one."""
    max_abs: float | None
    ulp_max: float | None
    mismatch_fraction: float | None
    reference_explanation: str
    """The explanation of the reference build's own error against float64."""


def flip_lines(session: Session, job: JobRow) -> tuple[FlipsSummary, ...]:
    """Return the flips of each output that has counts, by name."""
    return () if job.reference is None else flips.of_job(session, job.id)


def lines(seeds: Sequence[StoredSeed]) -> tuple[ComparisonLine, ...]:
    """Return a line per output that has a comparison, by name."""
    entries: dict[str, list[dict[str, Any]]] = {}
    for seed in seeds:
        for name, output in seed.outputs.items():
            if entry := output.get("reference"):
                entries.setdefault(name, []).append(entry)
    return tuple(
        _line(name, entries_of_output) for name, entries_of_output in sorted(entries.items())
    )


def _line(output: str, entries: Sequence[dict[str, Any]]) -> ComparisonLine:
    answers = [entry["within"] for entry in entries if entry["within"] is not None]
    largest = {
        name: max((entry[name] for entry in entries if entry.get(name) is not None), default=None)
        for name in _NUMBERS
    }
    explanations = (entry["explanation"] for entry in entries)
    return ComparisonLine(
        output=output,
        within=all(answers) if answers else None,
        reference_explanation=min(explanations, key=_WORST_FIRST.index),
        **largest,
    )
