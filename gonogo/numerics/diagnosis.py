"""The results of forensics.

A `Term` stands for each reduction or factor of a kernel, a `Diagnosis` for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Term:
    """One term of one output: how often each tile's part of it was used (1 = as it should be).

    `coefficients` and `errors` (standard errors) have one entry per group of `group` neighboring
    tiles (group 1: one per tile); None where the data can't tell that group. `tiles` counts tiles
    along the reduced (or, for factors, the feature) dimension; `unit` is "tile" or "row tile".
    `scatter` is the residual of the coefficients, in units of rounding.
    """

    output: str
    name: str
    tiles: int
    coefficients: tuple[float | None, ...]
    errors: tuple[float | None, ...]
    words: str = ""
    group: int = 1
    unit: str = "tile"
    wrong: bool = False
    can_tell: bool = True
    scatter: float | None = None
    hidden: bool = False
    """True where the inputs themselves (constant, alike in every row) hide the tiles."""
    coarse: bool = False
    """True where the test's own arithmetic (low fidelity, few bits) may make such an error."""
    named: bool = False
    """True where the words name something that was added to the sums, and no tiles."""
    rows: tuple[int, ...] = ()
    """The rows, counted from 1, that do not follow the others; empty when all do."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: floats of six digits, null where there is no number."""
        return {
            "output": self.output,
            "name": self.name,
            "tiles": self.tiles,
            "group": self.group,
            "unit": self.unit,
            "coefficients": [number(value) for value in self.coefficients],
            "errors": [number(value) for value in self.errors],
            "wrong": self.wrong,
            "can_tell": self.can_tell,
            "scatter": number(self.scatter),
            "rows": list(self.rows),
            "words": self.words,
        }


@dataclass(frozen=True)
class Diagnosis:
    """Every term of the outputs, the findings joined in words, and whether the data could tell.

    `residuals` maps an output to what is left of it. `before` and `after` are the rms error before
    and after all terms found, in units of the output format's rounding. The others are the shares
    of the error's energy along the directions of the terms.
    """

    terms: tuple[Term, ...]
    words: str
    can_tell: bool
    residuals: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types."""
        return {
            "terms": [term.to_json() for term in self.terms],
            "words": self.words,
            "can_tell": self.can_tell,
            "residuals": {
                name: {key: number(value) for key, value in part.items()}
                for name, part in self.residuals.items()
            },
        }


def number(value: float | None) -> float | None:
    """Return a finite float of six significant digits, else None."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def numbers(values: Iterable[float]) -> tuple[float | None, ...]:
    """Return finite floats as they are, and None for the others."""
    return tuple(float(value) if math.isfinite(value) else None for value in values)


def join(findings: Iterable[str]) -> str:
    """Join the findings by "; ", each once and in order."""
    return "; ".join(dict.fromkeys(words for words in findings if words))
