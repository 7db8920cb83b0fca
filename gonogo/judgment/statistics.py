"""Statistics of an output: the numbers that are stored, plotted, and held against tolerances.

None of them says whether rounding explains an error; judging does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from gonogo.arithmetic.formats import Doubles, round_to, step
from gonogo.closeness import NEEDED_RTOLS, is_near_power, pcc_deficit
from gonogo.judgment.blocks import ELEMENTS, in_threads
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
    if not values.size:
        return Statistics(0, 0)
    count = len(values) if values.ndim > 1 else 1
    rows = max(ELEMENTS * count // values.size, 1)

    def part(at: int) -> _RowSums:
        """Return the sums of some rows: its arrays stay in a cache."""
        some = slice(at * rows, (at + 1) * rows) if values.ndim > 1 else slice(None)
        arrays = values[some], raw[some], exact[some], outside[some]
        return _RowSums.of(*arrays, form, tolerance)

    parts = in_threads(part, -(-count // rows))
    sums = np.array([part.sums for part in parts])
    most = np.array([part.most for part in parts]).max(axis=0)
    nonfinite, finite, size, square, of_reference, mismatches, outliers = sums.sum(axis=0)
    if not finite:
        return Statistics(values.size, int(nonfinite))
    says = slice(None) if finite == values.size else _finite(values, raw, exact)
    reference = raw[says]
    distance = np.concatenate([part.distance for part in parts])
    max_abs, ulp_max, ratio, ratio_quantized, *needed = most.tolist()
    return Statistics(
        count=values.size,
        nonfinite=int(nonfinite),
        max_abs=max_abs,
        mean_abs=float(size / finite),
        rms=math.sqrt(square / finite),
        rel_frobenius=_quotient(math.sqrt(square), math.sqrt(of_reference)),
        pcc_deficit=pcc_deficit(reference, values[says] - reference),
        ulp_max=ulp_max,
        ulp_p99=float(np.ceil(np.quantile(distance, 0.99, method="inverted_cdf"))),
        mismatch_fraction=float(mismatches / finite),
        tolerance_ratio=None if tolerance is None else ratio,
        tolerance_ratio_quantized=None if tolerance is None else ratio_quantized,
        outliers=int(outliers),
        needed_atol=dict(zip(NEEDED_RTOLS, needed, strict=True)),
    )


def _finite(values: Doubles, raw: Doubles, exact: Doubles) -> Mask:
    finite: Mask = np.isfinite(values) & np.isfinite(raw) & np.isfinite(exact)
    return finite


class _RowSums(NamedTuple):
    """The part of some rows in the statistics.

    Attributes:
        sums: of values that aren't finite and of those that are, of the errors' sizes and squares,
            of the reference's squares, of mismatches and of outliers.
        most: the largest error, distance, ratios to the tolerance, and needed absolute tolerances.
        distance: in units in the last place.
    """

    sums: Sequence[float]
    most: Sequence[float]
    distance: Doubles

    @classmethod
    def of(
        cls,
        values: Doubles,
        raw: Doubles,
        exact: Doubles,
        outside: Mask,
        form: str,
        tolerance: Tolerance | None,
    ) -> _RowSums:
        nonfinite = int(np.count_nonzero(~np.isfinite(values) & np.isfinite(raw)))
        says = _finite(values, raw, exact)
        if not says.all():
            values, raw, exact, outside = values[says], raw[says], exact[says], outside[says]
        error = np.abs(values - raw)
        golden, size = round_to(raw, form), np.abs(raw)
        distance = np.abs(values - golden) / step(golden, form)
        ratios = [0.0, 0.0]
        if tolerance is not None:
            ratios = [
                _largest(np.abs(values - right), tolerance.allowed(right)) for right in (raw, exact)
            ]
        return cls(
            (
                nonfinite,
                values.size,
                error.sum(),
                np.square(error).sum(),
                np.square(raw).sum(),
                int(np.count_nonzero(values != round_to(exact, form))),
                int(np.count_nonzero(outside & is_near_power(values, exact))),
            ),
            (
                error.max(initial=0.0),
                distance.max(initial=0.0),
                *ratios,
                *((error - rtol * size).max(initial=0.0) for rtol in NEEDED_RTOLS),
            ),
            distance.ravel(),
        )


def _quotient(over: float, under: float) -> float:
    if not under:
        return math.inf if over else 0.0
    return over / under


def _largest(size: Doubles, allowed: Doubles) -> float:
    """Return the largest quotient; 0 / 0 is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(size == 0, 0.0, size / allowed).max(initial=0.0))
