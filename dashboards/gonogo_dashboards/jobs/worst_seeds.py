"""The worst seeds of a job as lines of a table, each with its worst output first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.spec.tolerances import Tolerance, for_output
from gonogo_dashboards.kit import comparators_view
from gonogo_service.kit.database.records import from_object
from gonogo_service.results import job_seeds
from gonogo_service.results.job_seeds import MarkRecord, SeedRecord


@dataclass(frozen=True)
class OutputLine:
    """One output in a table of seeds: its verdict and its main numbers."""

    output: str
    verdict: str
    explanation: str | None
    tolerance_ratio: float | None
    rounding_ratio: float | None
    max_abs: float | None
    nonfinite: Mapping[str, str]
    decided: str
    """The comparators that decided, where allclose isn't the only one."""


@dataclass(frozen=True)
class SeedLine:
    """A (seed, repeat) in the table of the worst; its worst output comes first."""

    seed: int
    repeat: int
    verdict: str
    device: str | None
    duration_ms: float | None
    message: str | None
    outputs: tuple[OutputLine, ...]


def line(seed: SeedRecord, tolerance: Mapping[str, Any]) -> SeedLine:
    """Return a stored (seed, repeat) as a line; `tolerance` is its test's, {} for none."""
    lines = tuple(
        _output(mark, for_output(tolerance, mark.output))
        for mark in job_seeds.outputs_worst_first(seed)
    )
    return from_object(SeedLine, seed, outputs=lines)


def _output(mark: MarkRecord, declared: Tolerance | None) -> OutputLine:
    numbers = mark.statistics
    return OutputLine(
        mark.output,
        mark.verdict,
        mark.explanation,
        numbers.get("tolerance_ratio"),
        numbers.get("rounding_ratio"),
        numbers.get("max_abs"),
        mark.nonfinite,
        comparators_view.decided(declared, numbers) if comparators_view.others(declared) else "",
    )
