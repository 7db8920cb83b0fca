"""The worst seeds of a job as lines of a table, each with its worst output first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gonogo.spec.tolerances import Tolerance, for_output
from gonogo_dashboards.kit import comparators_view
from gonogo_service.kit.database.records import from_object
from gonogo_service.results.seeds import KINDS, StoredSeed


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


def line(seed: StoredSeed, tolerance: Mapping[str, Any]) -> SeedLine:
    """Return a stored (seed, repeat) as a line; `tolerance` is its test's, {} for none."""
    lines = tuple(
        _output(name, output, for_output(tolerance, name)) for name, output in seed.outputs.items()
    )
    return from_object(SeedLine, seed, outputs=lines)


def _output(name: str, numbers: Mapping[str, Any], declared: Tolerance | None) -> OutputLine:
    return OutputLine(
        name,
        numbers["verdict"],
        numbers["explanation"],
        numbers.get("tolerance_ratio"),
        numbers.get("rounding_ratio"),
        numbers.get("max_abs"),
        dict(numbers.get(KINDS) or {}),
        comparators_view.decided(declared, numbers) if comparators_view.others(declared) else "",
    )
