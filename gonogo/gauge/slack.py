"""The slack of a test's tolerance: how much more it allows than right kernels need.

Errors are compared as shares of the largest that the declared tolerance allows, so a tolerance with
rtol and atol, one with PCC and one in ulps have the same scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from gonogo.gauge.comparators import Comparator, Name
from gonogo.gauge.summary import AdvisedTolerance, Slack
from gonogo.gauge.windows import Row
from gonogo.spec.tolerances import Tolerance

Numbers = Mapping[str, Any]


def slack(
    declared: Mapping[str, Tolerance],
    advised: AdvisedTolerance,
    right_rows: Sequence[Row],
    passing_rows: Sequence[Row],
) -> list[Slack]:
    """Return the slack of each output that has a declared tolerance and a right kernel's result.

    The need is the larger of what right kernels showed and of what their arithmetics may show, as
    in gonogo.gauge.windows. passing_rows: those of mutants that can show and pass the test.
    """
    slacks = []
    for name, tolerance in declared.items():
        rows = [row for row in right_rows if name in row["outputs"]]
        if not rows:
            continue
        shown = [row["outputs"][name] for row in rows]
        shown += [row["edges"][name] for row in rows if name in (row.get("edges") or {})]
        needs = {
            comparator: max(share(comparator, tolerance, numbers) for numbers in shown)
            for comparator in limits(tolerance)
        }
        strictest = max(needs, key=lambda comparator: needs[comparator])
        passing = [
            (share(strictest, tolerance, row["outputs"][name]), row["part"])
            for row in passing_rows
            if name in row["outputs"]
        ]
        error, mutant = max(passing, default=(0.0, ""))
        is_beyond = error > needs[strictest]
        advice = advised.tolerance.get(name, {})
        slacks.append(
            Slack(
                output=name,
                comparator=strictest,
                needed=_finite(needs[strictest]),
                advised=_finite(_of_advice(strictest, tolerance, advice)),
                advice=dict(advice),
                passing=_finite(error) if is_beyond else None,
                mutant=mutant if is_beyond else None,
            )
        )
    return slacks


def limits(tolerance: Tolerance) -> dict[Name, float]:
    """Return the largest deviation (Comparator) that each declared comparator allows.

    That of allclose is its tolerance ratio.
    """
    all_limits: dict[Name, float | None] = {
        "allclose": None if tolerance.allclose is None else float(any(tolerance.allclose)),
        "pcc": None if tolerance.pcc is None else 1.0 - tolerance.pcc,
        "frobenius": tolerance.frobenius,
        "ulp": tolerance.ulp,
    }
    return {name: limit for name, limit in all_limits.items() if limit is not None}


def share(comparator: Name, tolerance: Tolerance, numbers: Numbers) -> float:
    """Return an output's error as a share of the largest that a declared comparator allows.

    1 - PCC goes with the square of a small error, so its root counts. It is infinite where no
    number bounds the error, and 1 where only 0 is allowed and met.
    """
    if comparator == "allclose":
        ratio = numbers.get("tolerance_ratio")
        deviation = math.inf if ratio is None or numbers.get("nonfinite") else float(ratio)
    else:
        deviation = Comparator(comparator).deviation(numbers)
    return _share(comparator, deviation, limits(tolerance)[comparator])


def at(comparator: Name, tolerance: Tolerance, error: float) -> dict[str, float]:
    """Return the tolerance whose largest error is this share of the declared one's."""
    if comparator == "allclose":
        rtol, atol = tolerance.allclose or (0.0, 0.0)
        return {"rtol": rtol * error, "atol": atol * error}
    limit = limits(tolerance)[comparator]
    return Comparator(comparator).tolerance(limit * (error**2 if comparator == "pcc" else error))


def _of_advice(comparator: Name, tolerance: Tolerance, advice: Mapping[str, float]) -> float | None:
    """Return the largest error that an advised tolerance allows, as a share; None for no bound.

    With another relation of rtol and atol, it is the largest share over all sizes of a value. There
    is none where one of them is wider and the other tighter.
    """
    if comparator == "allclose" and "atol" in advice:
        rtol, atol = tolerance.allclose or (0.0, 0.0)
        pairs = (advice.get("rtol", 0.0), rtol), (advice["atol"], atol)
        shares = [_share(comparator, new, old) if new else 0.0 for new, old in pairs]
        return max(shares) if max(shares) <= 1 or min(shares) >= 1 else None
    if comparator not in advice:
        return None
    new = 1.0 - advice["pcc"] if comparator == "pcc" else advice[comparator]
    return _share(comparator, new, limits(tolerance)[comparator])


def _share(comparator: Name, deviation: float, limit: float) -> float:
    if limit <= 0:
        return math.inf if deviation > 0 else 1.0
    return math.sqrt(deviation / limit) if comparator == "pcc" else deviation / limit


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
