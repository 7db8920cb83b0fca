"""Count flips: outputs that differ between two builds on equal inputs, and which way they moved.

A build whose values are 1 + d times another's moves each value v by d |v|. Rounding to a spacing
ulp(v) hides that, except where a value crosses the middle between two neighbors. Over values that
lie anywhere in their cells, d |v| / ulp(v) of the outputs flip by one step, and all of them move
away from zero (d > 0) or toward it. The mean of |v| / ulp(v) is 185 in bf16 and 1,480 in fp16 for
mantissas that are spread evenly in their logarithm: so many flips in a million elements for
d = 1e-6. Sums in another order flip outputs, too, but row by row: the values of a row share the
error of its mean and rstd, and rows have independent ones. So rows are the unit of the test.

The factor leaves one value in place, the pivot. It is zero for a factor of the output, and beta for
a factor of gamma x^ (or of rstd) in an output gamma x^ + beta.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import Array, Mask
from gonogo.numerics.formats import ulp
from gonogo.spec.compared_outputs import FlipCounts, FlipPivot

ZERO, BETA = "zero", "beta"
"""The pivots: the values that a factor leaves in place."""
ELEMENTS_PER_BLOCK = 2**18
"""Elements whose float64 copies are in memory at a time, per core."""
MAX_LEVER = 8.0
"""An element counts for a pivot up to this distance from it, in units of the element's own size.
Beyond, gamma x^ and beta cancel: the spacing of what is left is fine enough to show the errors of
fp32, which are no flips."""
STEP_FACTORS = (2.0**-12, 2.0**-6)
"""The relative moves of a row that count as steps of a stored rstd. A step of bf16 is 2^-8 to 2^-7
of the value, of fp16 2^-11 to 2^-10; the range is twice as wide on both sides."""
STEP_SHARE = 0.25
"""The share of a row's elements that such a step moves at least. A step of the output's own format,
relative to rstd, moves an element by 1/2 to 2 ulp, so at least half of them; a quarter leaves
room."""
STEP_AGREEMENT = 0.95
"""The share of a stepped row's moves that point one way at least. The rest is other rounding."""
FLAT = 1e-9
"""The part of the squares of |v| / ulp(v) below which all are alike: they have no slope."""
STEP_MOVES = 6
"""The moves of a stepped row at least: 6 alike by chance are 1 in 32."""


@dataclass(frozen=True)
class Pivoted:
    """The moves about one pivot. All arrays have one value per row.

    Attributes:
        away, toward: elements that moved away from the pivot, and toward it.
        moves: the sum of the moves in ulp, positive away from the pivot.
        weights: the sum of the distances from the pivot in ulp: the moves of a factor of 2.
        elements: the elements that count.
        squared_moves, squared_weights, weighted_moves: sums of squares, and of the products.
    """

    away: NDArray[np.int64]
    toward: NDArray[np.int64]
    moves: Array
    weights: Array
    elements: NDArray[np.int64]
    squared_moves: Array
    squared_weights: Array
    weighted_moves: Array

    @classmethod
    def of(cls, moved: Array, values: Array, distance: Array, spacing: Array) -> Pivoted:
        """Return it for some rows.

        moved: output minus reference, 0 where not finite. values, distance: the reference, and the
        reference minus the pivot. spacing: the ulp of each element.
        """
        near = np.abs(distance) <= MAX_LEVER * np.abs(values)
        distance = np.where(near, distance, 0.0)
        moves, weights = moved * np.sign(distance) / spacing, np.abs(distance) / spacing
        return cls(
            (moves > 0).sum(axis=1),
            (moves < 0).sum(axis=1),
            moves.sum(axis=1),
            weights.sum(axis=1),
            (distance != 0).sum(axis=1),
            *(
                np.einsum("ij,ij->i", one, other)
                for one, other in ((moves, moves), (weights, weights), (moves, weights))
            ),
        )

    def steps(self) -> NDArray[np.int64]:
        """Return 1 for a row that moved away from the pivot as a whole, -1 for toward it, or 0."""
        moved = self.away + self.toward
        agreement = np.maximum(self.away, self.toward) >= STEP_AGREEMENT * moved
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = self.moves / self.weights
        size = np.abs(factor)
        whole = (size >= STEP_FACTORS[0]) & (size <= STEP_FACTORS[1]) & agreement
        return np.where(whole & (moved >= STEP_MOVES), np.sign(factor), 0).astype(np.int64)

    def totals(self, used: Mask) -> FlipPivot:
        """Return the totals of the rows that count, with the factor and its standard error.

        The error comes from the scatter of the rows: their elements share errors.
        """
        away, toward = self.away[used], self.toward[used]
        moves, weights = self.moves[used], self.weights[used]
        total = float(weights.sum())
        factor = float(moves.sum()) / total if total > 0 else None
        error = None
        if factor is not None and moves.size > 1:
            scatter = float(((moves - factor * weights) ** 2).sum())
            error = (scatter * moves.size / (moves.size - 1)) ** 0.5 / total
        slope, slope_error = self._slope(used)
        return FlipPivot(
            away=int(away.sum()),
            toward=int(toward.sum()),
            rows_away=int((away > toward).sum()),
            rows_toward=int((toward > away).sum()),
            elements=int(self.elements[used].sum()),
            sensitivity=total,
            factor=factor,
            factor_error=error,
            slope=slope,
            slope_error=slope_error,
        )

    def _slope(self, used: Mask) -> tuple[float | None, float | None]:
        """Return the slope of the moves on the weights, with an offset, and its standard error.

        A factor moves large mantissas further: the slope is the factor. Another rounding of the
        result moves all alike: the slope is 0.
        """
        elements = float(self.elements[used].sum())
        weights, squares = (
            float(sums[used].sum()) for sums in (self.weights, self.squared_weights)
        )
        spread = squares - weights**2 / max(elements, 1.0)
        if elements <= 2 or spread <= FLAT * squares:
            return None, None
        moves = float(self.moves[used].sum())
        slope = (float(self.weighted_moves[used].sum()) - weights * moves / elements) / spread
        left = float(self.squared_moves[used].sum()) - moves**2 / elements - slope**2 * spread
        return slope, (max(left, 0.0) / (elements - 2) / spread) ** 0.5


def count(
    output: NDArray[np.float32],
    reference: NDArray[np.float32],
    output_format: str,
    shared_factor: float,
    beta: Array | None = None,
) -> FlipCounts:
    """Return the flips of one output of one seed (docs/pairs.md).

    Args:
        output: the values of one build. A matrix (rows, N); or one row (1, N) of values that are
            rows of their own, such as those of mean, rstd, dgamma and dbeta.
        reference: the values of the other build, in the same shape.
        output_format: the name of their format in gonogo.numerics.formats. It sets the ulp.
        shared_factor: the common factor that two right kernels may have here (shared_factors.py).
        beta: for an output gamma x^ + beta, beta in the output's shape; None for all others.

    Stepped rows are left out of the pivots where they are a minority. If most rows moved as a
    whole, a factor moved them.
    """
    spacing: Array | None = None
    if output.shape[0] == 1:
        spacing = ulp(reference, output_format).T  # a block format shares exponents along a row
        output, reference = output.T, reference.T
        beta = None if beta is None else beta.T

    def block(start: int, stop: int) -> tuple[int, int, list[Pivoted], NDArray[np.int64]]:
        here = slice(start, stop)
        values, other = reference[here].astype(np.float64), output[here].astype(np.float64)
        finite = np.isfinite(values) & np.isfinite(other)
        values = np.where(finite, values, 0.0)
        moved = np.where(finite, other - values, 0.0)
        steps = ulp(reference[here], output_format) if spacing is None else spacing[here]
        step = np.where(finite, steps, 1.0)
        pivots = [Pivoted.of(moved, values, values, step)]
        if beta is not None:
            pivots.append(Pivoted.of(moved, values, values - beta[here], step))
        enough = (moved != 0).sum(axis=1) >= STEP_SHARE * values.shape[1]
        return (
            int(finite.sum()),
            int((moved != 0).sum()),
            pivots,
            np.where(enough, pivots[-1].steps(), 0),
        )

    rows_at_once = max(32, ELEMENTS_PER_BLOCK // output.shape[1])
    blocks = over_rows(block, output.shape[0], rows_at_once, elements=output.size)
    steps = np.concatenate([part[3] for part in blocks])
    stepped = steps != 0
    used = ~stepped if 2 * stepped.sum() <= stepped.size else np.ones(stepped.size, dtype=bool)
    pivots = {
        name: _joined([part[2][place] for part in blocks]).totals(used)
        for place, name in enumerate((ZERO,) if beta is None else (ZERO, BETA))
    }
    return FlipCounts(
        shared_factor=shared_factor,
        elements=sum(part[0] for part in blocks),
        differing=sum(part[1] for part in blocks),
        rows=int(stepped.size),
        stepped_up=int((steps > 0).sum()),
        stepped_down=int((steps < 0).sum()),
        pivots=pivots,
    )


def _joined(parts: list[Pivoted]) -> Pivoted:
    return Pivoted(
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in (field.name for field in fields(Pivoted))
        )
    )
