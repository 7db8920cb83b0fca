"""The comparators that a test declares: the number that each read, and the ones that decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from gonogo.spec.tolerances import Tolerance
from gonogo_dashboards.kit import words
from gonogo_storage.history.build_series import OF_COMPARATORS

READ = frozenset({"nonfinite", "tolerance_ratio", *OF_COMPARATORS.values()})
"""The statistics that `decided` reads."""


def decided(declared: Tolerance | None, statistics: Mapping[str, Any]) -> str:
    """Return what decided an output: the comparators that it misses, else all that it meets.

    It is "" without a declared comparator and where no statistics are known.
    """
    if not statistics:
        return ""
    if odd := statistics.get("nonfinite"):
        return f"{words.count(int(odd), 'value')} NaN or Inf"
    met: list[str] = []
    missed: list[str] = []
    for text, holds in _checks(declared, statistics):
        (met if holds else missed).append(text)
    return "; ".join(missed or met)


def others(declared: Tolerance | None) -> dict[str, float]:
    """Return the declared comparators besides allclose: name -> limit."""
    allowed = {} if declared is None else declared.to_json()
    return {name: allowed[name] for name in OF_COMPARATORS if name in allowed}


def limit(declared: Tolerance | None, metric: str) -> float | None:
    """Return the largest value of a statistic that the declared comparators allow, if any."""
    if metric == "tolerance_ratio":
        return None if declared is None or declared.allclose is None else 1.0
    allowed = {OF_COMPARATORS[name]: value for name, value in others(declared).items()}
    value = allowed.get(metric)
    return 1.0 - value if value is not None and metric == OF_COMPARATORS["pcc"] else value


def _checks(
    declared: Tolerance | None, statistics: Mapping[str, Any]
) -> Iterator[tuple[str, bool]]:
    """Yield each declared comparator in words, and whether the output meets it."""
    if declared is not None and declared.allclose is not None:
        ratio = _number(statistics.get("tolerance_ratio"))
        yield f"error ÷ tolerance {words.number(ratio)}", ratio is not None and ratio <= 1
    for name, allowed in others(declared).items():
        value = _number(statistics.get(OF_COMPARATORS[name]))
        if name == "pcc":
            shown = "undefined" if value is None else f"{1 - value:.6g}"
            holds = value is not None and 1 - value >= allowed
            yield f"PCC {shown}, needs {allowed:g}", holds
        else:
            label = "relative Frobenius error" if name == "frobenius" else "ulp"
            holds = value is not None and value <= allowed
            yield f"{label} {words.number(value)}, allowed {allowed:g}", holds


def _number(value: object) -> float | None:
    known = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if known and math.isfinite(value) else None  # type: ignore[arg-type]
