"""Statistics of an output: the numbers that are stored, plotted, and held against tolerances.

None of them says whether rounding explains an error; judging does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gonogo.arithmetic.formats import Doubles, round_to, step
from gonogo.closeness import NEEDED_RTOLS, is_near_power, pcc_deficit
from gonogo.judgment.cells import Mask
from gonogo.judgment.tolerance import Tolerance


@dataclass(frozen=True)
class Statistics:
    """The numbers of an output. Errors are those against the raw reference, unless said.

    None stands for what is undefined, and inf for what has no limit. Values that aren't finite
    where the reference is are counted, and left out of all others.

    Attributes:
        count: elements.
        nonfinite: values that aren't finite where the reference is.
        max_abs: the largest error.
        mean_abs: the mean size of the errors.
        rms: the root of their mean square.
        rel_frobenius: the 2-norm of the errors by that of the reference.
        pcc_deficit: 1 less Pearson's correlation with the reference, without losing digits.
        ulp_max: the largest distance from the rounded reference, in units in its last place.
        ulp_p99: its 99th percentile, in whole units.
        mismatch_fraction: of the elements, that aren't the rounded quantized reference.
        tolerance_ratio: the largest error by what the tolerance allows it; None without one.
        tolerance_ratio_quantized: the same against the quantized reference.
        outliers: errors beyond rounding that are near a power of two times the reference.
        needed_atol: the smallest absolute tolerance that passes, by the relative one.
    """

    count: int
    nonfinite: int
    max_abs: float | None = None
    mean_abs: float | None = None
    rms: float | None = None
    rel_frobenius: float | None = None
    pcc_deficit: float | None = None
    ulp_max: float | None = None
    ulp_p99: float | None = None
    mismatch_fraction: float | None = None
    tolerance_ratio: float | None = None
    tolerance_ratio_quantized: float | None = None
    outliers: int = 0
    needed_atol: Mapping[float, float] = field(default_factory=dict)


def statistics_of(
    values: Doubles,
    raw: Doubles,
    exact: Doubles,
    form: str,
    outside: Mask,
    tolerance: Tolerance | None = None,
) -> Statistics:
    """Return the numbers of an output.

    Args:
        values: the output.
        raw: the exact function of the data before they were rounded to the inputs' formats.
        exact: that of what the kernel was given: the quantized reference.
        form: the format of the output.
        outside: which elements are no rounding.
        tolerance: the test's.
    """
    is_finite = np.isfinite(values)
    nonfinite = int(np.count_nonzero(~is_finite & np.isfinite(raw)))
    says = is_finite & np.isfinite(raw) & np.isfinite(exact)
    if not says.any():
        return Statistics(values.size, nonfinite)
    given, reference, quantized = values[says], raw[says], exact[says]
    error = given - reference
    size, square = np.abs(error), float(np.square(error).sum())
    with np.errstate(over="ignore"):
        golden = round_to(reference, form)
    distance = np.abs(given - golden) / step(golden, form)
    ratios = [
        None if tolerance is None else _largest(np.abs(given - right), tolerance.allowed(right))
        for right in (reference, quantized)
    ]
    return Statistics(
        count=values.size,
        nonfinite=nonfinite,
        max_abs=float(size.max()),
        mean_abs=float(size.mean()),
        rms=math.sqrt(square / size.size),
        rel_frobenius=_quotient(math.sqrt(square), float(np.linalg.norm(reference))),
        pcc_deficit=pcc_deficit(reference, error),
        ulp_max=float(distance.max()),
        ulp_p99=float(np.ceil(np.quantile(distance, 0.99, method="inverted_cdf"))),
        mismatch_fraction=float((given != round_to(quantized, form)).mean()),
        tolerance_ratio=ratios[0],
        tolerance_ratio_quantized=ratios[1],
        outliers=int(np.count_nonzero(outside[says] & is_near_power(given, quantized))),
        needed_atol={
            rtol: max(float((size - rtol * np.abs(reference)).max()), 0.0) for rtol in NEEDED_RTOLS
        },
    )


def _quotient(over: float, under: float) -> float:
    if not under:
        return math.inf if over else 0.0
    return over / under


def _largest(size: Doubles, allowed: Doubles) -> float:
    """Return the largest quotient; 0 / 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(size == 0, 0.0, size / allowed).max())
