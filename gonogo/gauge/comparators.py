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

Name = Literal["allclose", "pcc", "frobenius", "ulp"]
_STATISTIC: Mapping[Name, str] = {
    "allclose": "needed_atol",
    "pcc": "pcc_deficit",
    "frobenius": "rel_frobenius",
    "ulp": "ulp_max",
}


@dataclass(frozen=True)
class Comparator:
    """A comparator: allclose at one rtol, PCC, relative Frobenius or ULP.

    Its *deviation* grows with the error: the smallest sufficient atol, 1 - PCC, the relative
    Frobenius error, or the largest distance in ulps.
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
        value = numbers.get(_STATISTIC[self.name])
        if self.name == "allclose":
            needed = value if isinstance(value, Mapping) else {}
            value = next((atol for rtol, atol in needed.items() if float(rtol) == self.rtol), None)
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
            return math.inf
        return max(float(value), 0.0)

    @property
    def largest(self) -> float:
        """The deviation from which on nothing is bounded: a PCC of 0 is no correlation at all."""
        return 1.0 if self.name == "pcc" else math.inf

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


def beyond(tolerance: Mapping[str, float], numbers: Mapping[str, Any]) -> float | None:
    """Return how many times too large an output's error is for a tolerance.

    It is the ratio of the strictest comparator; up to 1 is within. It grows in proportion to the
    error: 1 - PCC goes with the square of a small error, so its root counts; with an rtol, for
    which the place of the error matters as well, this holds near 1. allclose needs one of
    NEEDED_RTOLS. Infinite where a metric is undefined or missing, or where only 0 is allowed; None
    for a tolerance without comparators.
    """

    def times(comparator: Comparator, limit: float) -> float:
        deviation = comparator.deviation(numbers)
        if deviation <= 0:
            return 0.0
        return deviation / limit if limit > 0 else math.inf

    ratios = []
    if "atol" in tolerance or "rtol" in tolerance:
        close = Comparator("allclose", tolerance.get("rtol", 0.0))
        ratios.append(times(close, tolerance.get("atol", 0.0)))
    if "pcc" in tolerance:
        ratios.append(math.sqrt(times(Comparator("pcc"), 1.0 - tolerance["pcc"])))
    if "frobenius" in tolerance:
        ratios.append(times(Comparator("frobenius"), tolerance["frobenius"]))
    if "ulp" in tolerance:
        ratios.append(times(Comparator("ulp"), tolerance["ulp"]))
    return max(ratios, default=None)
