"""One build's output against another's: the same statistics as against float64, with the budgets of
both.

Two right builds err from the exact result independently: |a - b| <= |a - exact| + |b - exact| <=
B_a + B_b, and the variances add, s^2 = s_a^2 + s_b^2. What both share (a systematic part of the
same dataflow) cancels in a - b, so the sum is never too small.

There are no directions here. a - b = (a - exact) - (b - exact): a difference with a direction is a
direction of one of the two against float64, where each build has them judged.
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

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]

OF_THE_BUDGET = (
    "budget_ratio",
    "over_budget_fraction",
    "chi",
    "tolerance_ratio_quantised",
    "outliers",
    "rows_left_out",
)
"""Statistics that a comparison without a budget, or without a second reference, has no meaning
for."""


@dataclass(frozen=True)
class Bound:
    """What one build may err by: (rows, N), or one row. `informative` as in Expectation."""

    bound: Array
    variance: Array
    informative: Mask | None

    def with_other(self, other: Bound) -> Bound:
        """What two builds may differ by."""
        masks = [each for each in (self.informative, other.informative) if each is not None]
        informative = np.logical_and.reduce(masks) if masks else None
        return Bound(self.bound + other.bound, self.variance + other.variance, informative)


def bounds(test: TestSpec, given: Arrays, arithmetic: str | None) -> dict[str, Bound]:
    """Of every output of the test, for a kernel of that arithmetic (None: generic), on what the device
    was given (rows flat).

    By blocks of rows, and of columns where an output sums over rows: in bounded memory, whatever
    the shape.
    """
    return {
        name: joined(parts, 0 if test.is_matrix(name) else 1)
        for name, parts in registry.numerics(test).parts(test, given, arithmetic).items()
    }


def statistics(
    ours: NDArray[np.float32],
    theirs: NDArray[np.float32],
    bound: Bound,
    test: TestSpec,
    name: str,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Statistics of our output with theirs as the reference (matrices; `shape` is the output's
    own), JSON-ready.

    `mismatch_fraction` is the part of the elements that differ at all. What isn't finite on either
    side counts as not finite.
    """
    output = test.numerics.output
    tolerance = test.tolerance_for(name)
    allclose = None if tolerance is None else tolerance.allclose
    found = _compared(
        ours, theirs, bound, UNIT_ROUNDOFF[output], output in BLOCK_FORMATS, allclose, shape
    )
    return {
        key: value
        for key, value in found.items()
        if key not in ("tolerance_ratio_quantised", "outliers", "digest")
    }


def without_budget(
    ours: NDArray[np.float32], theirs: NDArray[np.float32], out: float, shape: tuple[int, ...]
) -> dict[str, Any]:
    """The same for an output that no budget is known of; `out` is the unit roundoff of its
    format.
    """
    nothing = Bound(np.full(ours.shape, np.inf), np.ones(ours.shape), None)
    found = _compared(ours, theirs, nothing, out, False, None, shape)
    return {
        key: value
        for key, value in found.items()
        if key not in (*OF_THE_BUDGET, "tolerance_ratio", "digest")
    }


def _compared(
    ours: NDArray[np.float32],
    theirs: NDArray[np.float32],
    bound: Bound,
    out: float,
    block: bool,
    allclose: tuple[float, float] | None,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    finite = np.isfinite(theirs)
    if not finite.all():  # an element that only one side has can't be compared: it counts as NaN
        ours, theirs = (
            np.where(finite, ours, np.float32(np.nan)),
            np.where(finite, theirs, np.float32(0)),
        )
    wide = theirs.astype(np.float64)
    wanted = Expectation(
        wide, bound.bound, bound.variance, out, block, informative=bound.informative
    )
    found = compare.statistics(ours, wanted, wide, allclose=allclose, shape=shape)
    # A build may put out more digits than its format has: here it is compared as it is, not as
    # rounded
    distance = (
        np.abs(ours - wide)
        / (2 * np.maximum(output_step(wide, out, block), out * compare.SMALLEST_NORMAL))
    )[np.isfinite(ours)]
    if distance.size:
        found |= {"ulp_max": float(distance.max()), "ulp_p99": compare.percentile_99(distance)}
    return compare.storable(found | {"mismatch_fraction": float((ours != theirs).mean())})


def joined(mine: list[Expectation], axis: int) -> Bound:
    """The blocks' expectations of one output side by side along its axis."""
    masks = [each.informative for each in mine if each.informative is not None]
    informative: Mask | None = None
    if masks:
        # a matrix has a mask of its rows; an output of one row is informative as a whole, in all or
        # in some of its blocks
        informative = (
            np.concatenate(masks)
            if axis == 0
            else np.array([any(bool(mask.any()) for mask in masks)])
        )
    size = _along(axis)
    return Bound(
        size([each.bound for each in mine]), size([each.variance for each in mine]), informative
    )


def _along(axis: int) -> Callable[[list[Array]], Array]:
    return lambda arrays: np.concatenate(arrays, axis=axis)
