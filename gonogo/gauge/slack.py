"""The slack of a test's tolerance: how much more it allows than right kernels need.

Errors are compared as shares of the largest that the declared tolerance allows, so a tolerance with
rtol and atol, one with PCC and one in ulps have the same scale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gonogo.gauge.comparators import Comparator, Name, limits
from gonogo.gauge.report import declared_of, passes, with_numbers
from gonogo.gauge.summary import AdvisedTolerance, Slack
from gonogo.gauge.windows import Row, finite
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import Tolerance


def slack(test: TestSpec, rows: Sequence[Row], advised: AdvisedTolerance) -> list[Slack]:
    """Return the slack of each output that has a declared tolerance and a right kernel's result.

    The need is the larger of what right kernels showed and of what their arithmetics may show, as
    in gonogo.gauge.windows. rows: those of gonogo.gauge.measure.
    """
    declared, useful = declared_of(test), with_numbers(rows)
    passing_rows = [
        row
        for row in useful
        if row["kind"] == "no_go" and row.get("able") and passes(declared, row)
    ]
    slacks = []
    for name, tolerance in declared.items():
        right_rows = [row for row in useful if row["kind"] == "go" and name in row["outputs"]]
        if not right_rows:
            continue
        shown = [row["outputs"][name] for row in right_rows]
        shown += [row["edges"][name] for row in right_rows if name in (row.get("edges") or {})]
        allowed = _limits(tolerance)
        needs = {
            comparator: max(comparator.share(comparator.deviation(one), limit) for one in shown)
            for comparator, limit in allowed.items()
        }
        strictest = max(needs, key=lambda comparator: needs[comparator])
        passing = [
            (
                strictest.share(strictest.deviation(row["outputs"][name]), allowed[strictest]),
                row["part"],
            )
            for row in passing_rows
            if name in row["outputs"]
        ]
        error, mutant = max(passing, default=(0.0, ""))
        is_beyond = error > needs[strictest]
        advice = advised.tolerance.get(name, {})
        slacks.append(
            Slack(
                output=name,
                comparator=strictest.name,
                needed=finite(needs[strictest]),
                advised=finite(_allowed(strictest, tolerance, advice)),
                advice=dict(advice),
                passing=finite(error) if is_beyond else None,
                mutant=mutant if is_beyond else None,
            )
        )
    return slacks


def _limits(declared: Tolerance) -> dict[Comparator, float]:
    """Return the largest deviation that each declared comparator allows."""
    largest = {}
    if declared.allclose is not None:
        largest[Comparator("allclose")] = float(any(declared.allclose))
    others = limits(declared.to_json()).items()
    return largest | {one: limit for one, limit in others if one.name != "allclose"}


def scaled(name: Name, declared: Tolerance, error: float) -> dict[str, float]:
    """Return the tolerance whose largest error is this share of the declared one's."""
    if name == "allclose":
        rtol, atol = declared.allclose or (0.0, 0.0)
        return {"rtol": rtol * error, "atol": atol * error}
    comparator = Comparator(name)
    limit = _limits(declared)[comparator]
    return comparator.tolerance(limit * (error**2 if name == "pcc" else error))


def _allowed(
    comparator: Comparator, declared: Tolerance, advice: Mapping[str, float]
) -> float | None:
    """Return the largest error that an advised tolerance allows, as a share; None for no bound.

    With another relation of rtol and atol, it is the largest share over all sizes of a value. There
    is none where one of them is wider and the other tighter.
    """
    if comparator.name == "allclose" and "atol" in advice:
        rtol, atol = declared.allclose or (0.0, 0.0)
        pairs = (advice.get("rtol", 0.0), rtol), (advice["atol"], atol)
        shares = [comparator.share(new, old) if new else 0.0 for new, old in pairs]
        return max(shares) if max(shares) <= 1 or min(shares) >= 1 else None
    new = limits(advice).get(comparator)
    return None if new is None else comparator.share(new, _limits(declared)[comparator])
