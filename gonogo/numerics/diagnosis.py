"""The results of forensics.

A `Term` stands for each reduction or factor of a kernel, a `Diagnosis` for all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

PRECISION = ": precision, not a term"
"""The end of a finding about errors without a pattern, as rounding makes them."""


@dataclass(frozen=True)
class DiagnosedTerm:
    """A term of an output: 1 means that it is used once, which is right; null is not known."""

    output: str
    name: str
    tiles: int
    coefficients: tuple[float | None, ...]
    errors: tuple[float | None, ...]
    """The standard errors of the coefficients"""
    words: str = ""
    group: int = 1
    """The tiles that share a coefficient"""
    unit: str = "tile"
    wrong: bool = False
    can_tell: bool = True
    """Whether the data can show that it is wrong"""
    scatter: float | None = None
    rows: tuple[int, ...] = ()
    """The rows, counted from 1, that do not follow the others"""


@dataclass(frozen=True)
class Term(DiagnosedTerm):
    """One term of one output: how often each tile's part of it was used (1 = as it should be).

    `coefficients` and `errors` (standard errors) have one entry per group of `group` neighboring
    tiles (group 1: one per tile); None where the data can't tell that group. `tiles` counts tiles
    along the reduced (or, for factors, the feature) dimension; `unit` is "tile" or "row tile".
    `scatter` is the residual of the coefficients, in units of rounding.
    """

    hidden: bool = False
    """True where the inputs themselves (constant, alike in every row) hide the tiles."""
    coarse: bool = False
    """True where the test's own arithmetic (low fidelity, few bits) may make such an error."""
    named: bool = False
    """True where the words name something that was added to the sums, and no tiles."""

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON types: floats of six digits, null where there is no number."""
        return {part.name: _plain(getattr(self, part.name)) for part in fields(DiagnosedTerm)}


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
        """Return plain JSON types: numbers have six digits, and its terms are as they say."""
        return {
            "terms": [term.to_json() for term in self.terms],
            "words": self.words,
            "can_tell": self.can_tell,
            "residuals": {
                name: {key: number(value) for key, value in part.items()}
                for name, part in self.residuals.items()
            },
        }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    # a kind of others may give NumPy's scalars
    return value if value is None or isinstance(value, str | int) else number(value)


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
