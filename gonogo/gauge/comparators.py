"""Comparators as one number each: the tolerance that an output would need.

They also convert such a number to a tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, Literal

from gonogo.closeness import NEEDED_RTOLS
from gonogo.spec.verdicts import needed_atol

Name = Literal["allclose", "pcc", "frobenius", "ulp"]
_STATISTIC: Mapping[Name, str] = {
    "allclose": "tolerance_ratio",
    "pcc": "pcc_deficit",
    "frobenius": "rel_frobenius",
    "ulp": "ulp_max",
}


@dataclass(frozen=True)
class Comparator:
    """A comparator: allclose at one rtol, PCC, relative Frobenius or ULP.

    Its *deviation* grows with the error: the smallest sufficient atol, 1 - PCC, the relative
    Frobenius error, or the largest distance in ulps. allclose without an rtol is that of the
    declared tolerance as a whole: its deviation is the tolerance ratio.
    """

    name: Name
    rtol: float | None = None

    def __str__(self) -> str:
        return self.name if self.rtol is None else f"{self.name} rtol {self.rtol:g}"

    def deviation(self, numbers: Mapping[str, Any]) -> float:
        """Return the deviation in one output's statistics, or in its edges.

        It is infinite if the output holds NaN or Inf, if the metric is undefined (which isn't met),
        and if no number was stored.
        """
        if numbers.get("nonfinite"):
            return math.inf
        if self.rtol is not None:
            value = needed_atol(self.rtol, numbers)
        else:
            value = numbers.get(_STATISTIC[self.name])
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return math.inf
        return max(float(value), 0.0)

    @property
    def largest(self) -> float:
        """The deviation from which on nothing is bounded: a PCC of 0 is no correlation at all."""
        return 1.0 if self.name == "pcc" else math.inf

    def share(self, deviation: float, limit: float) -> float:
        """Return a deviation as a share of the largest that is allowed, in proportion to the error.

        1 - PCC goes with the square of a small error, so its root counts. The share is 1 where only
        0 is allowed and met.
        """
        if limit <= 0:
            return math.inf if deviation > 0 else 1.0
        return math.sqrt(deviation / limit) if self.name == "pcc" else deviation / limit

    def exceeded(self, numbers: Mapping[str, Any], tolerance: Mapping[str, float]) -> bool:
        """Return whether the output is outside the `tolerance` that this comparator made.

        The comparison is the same as in gonogo.spec.verdicts.within.
        """
        deviation = self.deviation(numbers)
        if self.name == "pcc":
            return not 1.0 - deviation >= tolerance["pcc"]
        return deviation > tolerance["atol" if self.name == "allclose" else self.name]

    def tolerance(self, deviation: float) -> dict[str, float]:
        """Return the tolerance that passes deviations up to this one."""
        if self.name == "allclose":
            return {"rtol": self.rtol or 0.0, "atol": deviation}
        return {"pcc": 1.0 - deviation} if self.name == "pcc" else {self.name: deviation}


def comparators(rtols: Iterable[float] = ()) -> tuple[Comparator, ...]:
    """Return the comparators that advice considers.

    They are allclose at the stored rtols and at `rtols`, PCC, Frobenius and ULP.
    """
    return (
        *(Comparator("allclose", rtol) for rtol in sorted({*NEEDED_RTOLS, *rtols})),
        Comparator("pcc"),
        Comparator("frobenius"),
        Comparator("ulp"),
    )


def above(value: float, digits: int) -> float:
    """Return the smallest number with that many significant digits that isn't below the value."""
    return float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(Decimal(value)))


def limits(tolerance: Mapping[str, float]) -> dict[Comparator, float]:
    """Return the largest deviation that each comparator of a tolerance allows."""
    largest = {}
    if "atol" in tolerance or "rtol" in tolerance:
        largest[Comparator("allclose", tolerance.get("rtol", 0.0))] = tolerance.get("atol", 0.0)
    if "pcc" in tolerance:
        largest[Comparator("pcc")] = 1.0 - tolerance["pcc"]
    names: tuple[Name, ...] = ("frobenius", "ulp")
    return largest | {Comparator(name): tolerance[name] for name in names if name in tolerance}


def beyond(tolerance: Mapping[str, float], numbers: Mapping[str, Any]) -> float | None:
    """Return how many times too large an output's error is for a tolerance.

    It is the share (Comparator.share) of the strictest comparator; up to 1 is within. With an rtol,
    for which the place of the error matters as well, it grows with the error near 1 only. allclose
    needs one of NEEDED_RTOLS. Infinite where a metric is undefined or missing; None for a tolerance
    without comparators.
    """
    return max(
        (
            comparator.share(comparator.deviation(numbers), limit)
            for comparator, limit in limits(tolerance).items()
        ),
        default=None,
    )
