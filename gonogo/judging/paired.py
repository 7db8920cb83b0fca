"""One build's output against another's: the same statistics as against float64, with both budgets.

Two right builds err from the exact result independently: |a - b| <= |a - exact| + |b - exact| <=
B_a + B_b, and the variances add, s^2 = s_a^2 + s_b^2. What both share (a systematic part of the
same dataflow) cancels in a - b, so the sum is never too small.

There are no directions here. a - b = (a - exact) - (b - exact): a difference with a direction is a
direction of one of the two against float64, and each build has those judged there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import registry
from gonogo.kernels.layernorm.arithmetic.terms import BLOCK_FORMATS, UNIT_ROUNDOFF
from gonogo.numerics import compare
from gonogo.numerics.expectation import Array, Expectation, Mask, output_step
from gonogo.spec.arithmetic_names import budget_of

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]

BUDGET_STATISTICS = (
    "budget_ratio",
    "over_budget_fraction",
    "chi",
    "tolerance_ratio_quantised",
    "outliers",
    "rows_left_out",
)
"""Statistics without meaning in a comparison that has no budget, or no second reference."""


@dataclass(frozen=True)
class Bound:
    """The allowed error of one build: (rows, N), or one row. `informative` as in Expectation."""

    bound: Array
    variance: Array
    informative: Mask | None

    def with_other(self, other: Bound) -> Bound:
        """Return the allowed difference of two builds."""
        masks = [mask for mask in (self.informative, other.informative) if mask is not None]
        informative = np.logical_and.reduce(masks) if masks else None
        return Bound(self.bound + other.bound, self.variance + other.variance, informative)


def bounds(test: TestSpec, given: Arrays, arithmetic: str | None) -> dict[str, Bound]:
    """Return the bound of every output of the test, for what the device was given (rows flat).

    arithmetic: the arithmetic model of the kernel; None is the generic one. It works by blocks of
    rows, and of columns where an output sums over rows: in bounded memory, whatever the shape.
    """
    return {
        name: joined(parts, 0 if test.is_matrix(name) else 1)
        for name, parts in registry.numerics(test).parts(test, given, budget_of(arithmetic)).items()
    }


def statistics(
    output_values: NDArray[np.float32],
    reference_values: NDArray[np.float32],
    bound: Bound,
    test: TestSpec,
    name: str,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Return the statistics of a build's output with another build's as the reference, JSON-ready.

    Both are matrices; `shape` is the output's own. `mismatch_fraction` is the part of the elements
    that differ at all. What isn't finite on either side counts as not finite.
    """
    output = test.numerics.output
    tolerance = test.tolerance_for(name)
    allclose = None if tolerance is None else tolerance.allclose
    results = _compared(
        output_values,
        reference_values,
        bound,
        UNIT_ROUNDOFF[output],
        output in BLOCK_FORMATS,
        allclose,
        shape,
    )
    return {
        key: value
        for key, value in results.items()
        if key not in ("tolerance_ratio_quantised", "outliers", "digest")
    }


def without_budget(
    output_values: NDArray[np.float32],
    reference_values: NDArray[np.float32],
    out: float,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Return the same for an output without a known budget.

    out: the unit roundoff of its format.
    """
    nothing = Bound(np.full(output_values.shape, np.inf), np.ones(output_values.shape), None)
    results = _compared(output_values, reference_values, nothing, out, False, None, shape)
    return {
        key: value
        for key, value in results.items()
        if key not in (*BUDGET_STATISTICS, "tolerance_ratio", "digest")
    }


def _compared(
    output_values: NDArray[np.float32],
    reference_values: NDArray[np.float32],
    bound: Bound,
    out: float,
    block: bool,
    allclose: tuple[float, float] | None,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    finite = np.isfinite(reference_values)
    if not finite.all():  # an element that only one side has can't be compared: it counts as NaN
        output_values, reference_values = (
            np.where(finite, output_values, np.float32(np.nan)),
            np.where(finite, reference_values, np.float32(0)),
        )
    wide = reference_values.astype(np.float64)
    expectation = Expectation(
        wide, bound.bound, bound.variance, out, block, informative=bound.informative
    )
    results = compare.statistics(output_values, expectation, wide, allclose=allclose, shape=shape)
    # A build may write more digits than its format has. Here they are compared as they are, not
    # rounded.
    distance = (
        np.abs(output_values - wide)
        / (2 * np.maximum(output_step(wide, out, block), out * compare.SMALLEST_NORMAL))
    )[np.isfinite(output_values)]
    if distance.size:
        results |= {"ulp_max": float(distance.max()), "ulp_p99": compare.percentile_99(distance)}
    return compare.storable(
        results | {"mismatch_fraction": float((output_values != reference_values).mean())}
    )


def joined(parts: list[Expectation], axis: int) -> Bound:
    """Join the expectations of one output's blocks along its axis."""
    masks = [part.informative for part in parts if part.informative is not None]
    informative: Mask | None = None
    if masks:
        # A matrix has a mask of its rows. An output of one row is informative as a whole, where any
        # block is.
        informative = (
            np.concatenate(masks)
            if axis == 0
            else np.array([any(bool(mask.any()) for mask in masks)])
        )
    size = _along(axis)
    return Bound(
        size([part.bound for part in parts]), size([part.variance for part in parts]), informative
    )


def _along(axis: int) -> Callable[[list[Array]], Array]:
    return lambda arrays: np.concatenate(arrays, axis=axis)
