"""The comparison of some rows of an output with their expectation, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import compare
from gonogo.numerics.compiled import blocks
from gonogo.numerics.compiled.rows import (
    BIAS,
    GOLDEN,
    HIGHEST,
    KNOWN,
    LOWEST,
    SCORES,
    SHARED,
)
from gonogo.numerics.expectation import Array, Direction, Expectation, Mask, Shared
from gonogo.numerics.jit import plain
from gonogo.numerics.totals import DIRECTIONS, Column, Totals

Floats = NDArray[np.float32]
Three = tuple[Array, Array, Array]
"""The weights of three directions, each (rows, N) or (1, N)."""


def compare_block(
    output: Floats,
    raw: Array | None,
    expected: Expectation,
    keep: Mask,
    *,
    start: int = 0,
    allclose: tuple[float, float] | None = None,
    origin: float = 0.0,
    groups: NDArray[np.int64] | None = None,
) -> Totals:
    """Return the totals of a block of rows.

    Args:
        output: (rows, N); the rows that are kept are finite.
        raw: the raw reference (rows, N). None: only the directions are measured.
        expected: what is expected of the block.
        keep: (rows,), the rows that are compared.
        start: the number of the block's first row.
        allclose: rtol and atol of the output's elements.
        origin: a value of the raw reference, about which the correlation's sums are centered.
        groups: a number for each row, equal where rows are equal, and -1 where a row is unique.
            None: all are unique.
    """
    rows = keep.size
    used = keep if expected.informative is None else keep & expected.informative
    down = [direction for direction in expected.directions if direction.axis == "column"]
    along = list(_along_rows(expected))
    goldens = compare.golden_of(expected)[2:] if expected.bias is not None else ()
    kept_shape = expected.reference.shape if down else (1, expected.reference.shape[1])
    error, even, away = (np.zeros(kept_shape) for _ in range(3))
    totals = Totals.empty()
    reference = plain(expected.reference)
    for first in range(0, max(1, len(along)), DIRECTIONS):
        three = along[first : first + DIRECTIONS]
        w0, w1, w2 = weights = _three(expected, three)
        scores = np.zeros((rows, SCORES))
        counted = first == 0 and raw is not None
        part = totals if first == 0 else Totals.empty()
        rtol, atol = allclose or (0.0, 0.0)
        blocks.compare_rows(
            start,
            counted,
            plain(output),
            reference if raw is None else plain(raw),
            reference,
            plain(expected.bound),
            plain(expected.noise),
            plain(expected.variance if counted else expected.noise),
            _matrix(expected, expected.truncated),
            w0,
            w1,
            w2,
            _known(expected, weights, goldens, used),
            keep,
            used,
            expected.out,
            expected.out_block,
            rtol,
            atol,
            allclose is not None,
            origin,
            part.sums,
            part.bins,
            scores,
            error,
            even,
            away,
        )
        for place, direction in enumerate(three):
            totals.add_scores(direction.name, scores, place, direction.floor, used)
    if down and used.any():
        usable = compare.restrict(expected, used)
        errors = (error, even, even + away, *goldens)
        error, *of_goldens = (e if used.all() else e[used] for e in errors)
        numbers = np.full(rows, -1) if groups is None else groups
        for direction in down:
            chosen = compare.restrict_direction(direction, used)
            totals.columns[direction.name] = Column.of(
                usable, chosen, error, tuple(of_goldens), numbers[used]
            )
    return totals


def _along_rows(expected: Expectation) -> Iterator[Direction]:
    """Yield the directions of each row; those of tiles are several of the only row."""
    for direction in expected.directions:
        if direction.axis == "row":
            yield direction
        elif direction.axis == "tiles":
            for weights in direction.weights:
                yield replace(direction, weights=weights[None])


def _matrix(expected: Expectation, values: Array | None) -> Array:
    """Return values as the loops take them: (rows, N), or (1, N) for all rows. None is zeros."""
    shape = expected.reference.shape
    if values is None:
        return np.zeros((1, shape[1]))
    if values.shape[1] != shape[1]:
        values = np.broadcast_to(values, (values.shape[0], shape[1]))
    return plain(np.asarray(values, np.float64))


def _three(expected: Expectation, three: Sequence[Direction]) -> Three:
    """Return the weights of up to three directions, and zeros for the others."""
    weights = [direction.weights for direction in three]
    w0, w1, w2 = (_matrix(expected, w) for w in (*weights, *[None] * (DIRECTIONS - len(three))))
    return w0, w1, w2


def _known(
    expected: Expectation,
    weights: Three,
    goldens: Sequence[Array],
    used: Mask,
) -> Array:
    """Return what rows.compare_row must know of each row's projections, (rows, KNOWN, 3)."""
    rows = used.size
    w0, w1, w2 = weights
    known = np.zeros((rows, KNOWN, DIRECTIONS))
    if not any(w.any() for w in weights):
        return known

    def project(values: Array) -> Array:
        projections = np.zeros((rows, DIRECTIONS))
        blocks.project_rows(w0, w1, w2, _matrix(expected, values), used, projections)
        return projections

    factors = [Shared(np.ones((1, 1)), row[None]) for rows in expected.factors for row in rows]
    for shared in (*expected.shared, *factors):
        known[:, SHARED] += shared.variance * project(shared.pattern) ** 2
    for keyed in expected.keyed:
        key, amplitude = _matrix(expected, keyed.key), _matrix(expected, keyed.amplitude)
        blocks.add_keyed(w0, w1, w2, key, amplitude, used, known)
    for allowance in expected.allowance:
        projections = project(allowance)
        known[:, LOWEST] = np.minimum(known[:, LOWEST], projections)
        known[:, HIGHEST] = np.maximum(known[:, HIGHEST], projections)
    for golden in goldens:
        known[:, GOLDEN] = np.maximum(known[:, GOLDEN], project(golden) ** 2)
    if expected.bias is not None:
        known[:, BIAS] = project(expected.bias) ** 2
    return known
