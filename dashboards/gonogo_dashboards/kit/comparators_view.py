"""The comparators that a test declares: the number that each read, and the ones that decided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy.orm import Session

from gonogo.spec.tolerances import Tolerance, for_output
from gonogo_dashboards.kit import commands, words
from gonogo_service.results import worst as worst_seeds
from gonogo_service.results.seeds import StoredSeed
from gonogo_service.tests.trends import OF_COMPARATORS

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


def of_seed(seed: StoredSeed, tolerance: Mapping[str, Any]) -> str:
    """Return what decided a seed: "dx, seed 3: PCC 0.98, needs 0.999", of its worst output.

    "" where allclose is the only comparator, and for a seed without outputs. tolerance: its test's.
    """
    for name, output in seed.outputs.items():
        declared = for_output(tolerance, name)
        if others(declared) and (text := decided(declared, output)):
            return f"{name}, seed {seed.seed}: {text}"
    return ""


def stopped(worst: Sequence[StoredSeed]) -> str:
    """Return why the worst seed has no numbers, "Seed 3: no answer within 6 s"; "" if it has."""
    first = worst[0] if worst else None
    return f"Seed {first.seed}: {first.message}" if first is not None and first.message else ""


def of_job(session: Session, job_id: str, tolerance: Mapping[str, Any]) -> str:
    """Return what decided the worst seed of a job, as `of_seed` does."""
    by_output = [one for one in tolerance.values() if isinstance(one, Mapping)]
    if not any(name in one for one in (tolerance, *by_output) for name in OF_COMPARATORS):
        return ""
    worst = worst_seeds.read(session, job_id, 1)
    return of_seed(worst[0], tolerance) if worst else ""


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
        ratio = words.reported_number(statistics.get("tolerance_ratio"))
        shown = f"error ÷ tolerance {words.number(ratio)} (allclose)"
        yield shown, ratio is not None and ratio <= 1
    for name, allowed in others(declared).items():
        value = words.reported_number(statistics.get(OF_COMPARATORS[name]))
        if name == "pcc":
            shown = "undefined" if value is None else pcc(value)
            holds = value is not None and 1 - value >= allowed
            yield f"PCC {shown}, needs {commands.plain(allowed)}", holds
        else:
            label = "relative Frobenius error" if name == "frobenius" else "ulp"
            holds = value is not None and value <= allowed
            yield f"{label} {words.number(value)}, allowed {commands.plain(allowed)}", holds


def pcc(deficit: float) -> str:
    """Return a PCC with three digits of its distance from 1, which six digits would hide."""
    if not 0 < deficit < 1:
        return f"{1 - deficit:.6g}"
    return f"{1 - deficit:.{2 - math.floor(math.log10(deficit))}f}".rstrip("0")
