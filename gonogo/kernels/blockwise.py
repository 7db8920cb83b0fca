"""The statistics of a matrix output in blocks of rows, in bounded memory.

gonogo.numerics.compare defines them; a test compares the two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.totals import LARGEST, SUMS, Column, Totals, blank, finished
from gonogo.numerics import compare, directions
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import (
    Array,
    Direction,
    Expectation,
    Mask,
    beyond_truncation,
    binade,
)

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Allclose = tuple[float, float] | None
Arrays = Mapping[str, NDArray[Any]]


class Expecting(Protocol):
    """A kind of kernel, as the statistics need it; gonogo.kernels.kind.Numerics has it all."""

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block)."""

    def expectations(
        self, test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice
    ) -> dict[str, Expectation]:
        """Return what is expected of each output in these rows."""

    def views(
        self, test: TestSpec, given: Arrays, output: str, expected: Expectation, rows: slice
    ) -> tuple[Expectation, ...]:
        """Return the same expectation with its rows cut differently."""


def statistics(
    numerics: Expecting,
    test: TestSpec,
    references: Mapping[str, Array],
    given: Arrays,
    outputs: Mapping[str, NDArray[np.float32]],
    arithmetic: str | None,
    others: Iterable[str] = (),
) -> tuple[dict[str, Any], dict[str, list[Expectation]]]:
    """Return the statistics of matrix outputs (rows, N) with more than one row.

    references: the raw references, of the raw inputs. others: outputs whose expectations are
    returned, too, block by block. Each block's expectations are computed once, and those of
    matrices are dropped with it.
    """
    rows, step = numerics.spans(test)
    groups = equal_rows([np.asarray(a) for name, a in given.items() if test.is_matrix(name)])
    whole = {name: np.asarray(references[name], np.float64) for name in outputs}
    keep = {name: compare.finite_rows(output) for name, output in outputs.items()}

    def block(
        start: int, stop: int
    ) -> tuple[dict[str, Totals], dict[str, tuple[Direction, ...]], dict[str, Expectation]]:
        here = slice(start, stop)
        expected = numerics.expectations(test, given, arithmetic, here)
        views = {name: numerics.views(test, given, name, expected[name], here) for name in outputs}
        block_totals = {}
        for name, output in outputs.items():
            expectation, compared = expected[name], keep[name][here]
            if not compared.any():
                continue
            tolerance = test.tolerance_for(name)
            allclose = None if tolerance is None else tolerance.allclose
            first = float(whole[name].flat[0])
            usable = compare.restrict(expectation, compared)
            out, raw = np.asarray(output[here][compared], np.float64), whole[name][here][compared]
            places = np.flatnonzero(compared) + start
            totals = _totals(out, raw, usable, allclose, first, places, groups[here][compared])
            for view in views[name]:
                cut = np.repeat(compared, view.reference.shape[0] // compared.size)
                part = compare.restrict(view, cut)
                elements = np.asarray(output[here], np.float64).reshape(view.reference.shape)[cut]
                _directions(totals, elements - part.reference, part, np.full(int(cut.sum()), -1))
            block_totals[name] = totals
        every = {name: _every(expected[name], views[name]) for name in outputs}
        return block_totals, every, {name: expected[name] for name in others}

    results = over_rows(block, rows, step)
    merged = {}
    for name, output in outputs.items():
        parts = [block_totals[name] for block_totals, _, _ in results if name in block_totals]
        bare = {
            "count": int(output.size),
            "digest": compare.digest(output, output.shape),
            **compare.nonfinite(output),
        }
        if not parts:
            merged[name] = blank(results[0][1][name]) | bare
            continue
        totals = parts[0]
        for part in parts[1:]:
            totals.add(part)
        tolerance = test.tolerance_for(name)
        declared = tolerance is not None and tolerance.allclose is not None
        counted = int(keep[name].sum()) * output.shape[1]
        merged[name] = finished(totals, counted, declared, results[0][1][name]) | bare
    return merged, {name: [expected[name] for _, _, expected in results] for name in others}


def joined(parts: Sequence[Expectation]) -> Expectation:
    """Return the expectation of a one-row output from its parts, side by side.

    Their shared errors have one variance each.
    """
    if len(parts) == 1:
        return parts[0]

    def along(values: Iterable[Array]) -> Array:
        return np.concatenate([np.atleast_2d(value) for value in values], axis=1)

    first = parts[0]
    masks = [part.informative for part in parts if part.informative is not None]
    return replace(
        first,
        reference=along(part.reference for part in parts),
        bound=along(part.bound for part in parts),
        noise=along(part.noise for part in parts),
        shared=tuple(
            replace(s, pattern=along(part.shared[k].pattern for part in parts))
            for k, s in enumerate(first.shared)
        ),
        directions=tuple(
            replace(d, weights=along(part.directions[k].weights for part in parts))
            for k, d in enumerate(first.directions)
        ),
        allowance=tuple(
            along(part.allowance[k] for part in parts) for k in range(len(first.allowance))
        ),
        truncated=None
        if first.truncated is None
        else along(part.truncated for part in parts if part.truncated is not None),
        bias=None if first.bias is None else along(p.bias for p in parts if p.bias is not None),
        factors=tuple(along(part.factors[k] for part in parts) for k in range(len(first.factors))),
        informative=np.array([any(bool(mask.any()) for mask in masks)]) if masks else None,
    )


def equal_rows(matrices: Sequence[NDArray[Any]]) -> NDArray[np.int64]:
    """Number the rows, so that rows that are equal in all matrices share a number.

    A row that no other row equals gets -1.
    """
    seen: dict[bytes, int] = {}
    import xxhash  # not in the interpreters of builds, where the conformance suite runs

    first = np.empty(matrices[0].shape[0], np.int64)
    for row in range(first.size):
        hasher = xxhash.xxh3_128()
        for matrix in matrices:
            hasher.update(np.ascontiguousarray(matrix[row]).view(np.uint8).data)
        first[row] = seen.setdefault(hasher.digest(), row)
    _, place, count = np.unique(first, return_inverse=True, return_counts=True)
    return np.where(count[place] > 1, first, -1)


def _every(expected: Expectation, views: Sequence[Expectation]) -> tuple[Direction, ...]:
    """Return the names of all directions, with those of the views."""
    return tuple(
        Direction(direction.name, np.zeros((1, 1)), direction.axis)
        for expectation in (expected, *views)
        for direction in expectation.directions
    )


def _totals(
    out: Array,
    raw: Array,
    expected: Expectation,
    allclose: Allclose,
    first: float,
    places: NDArray[np.intp],
    groups: NDArray[np.int64],
) -> Totals:
    """Return the totals of some finite rows.

    places: the rows' numbers. first: the raw reference's first value; sums are taken about it.
    """
    error = out - raw
    size = np.abs(error)
    magnitude = np.abs(raw)
    golden = compare.rounded(raw, expected.out, expected.out_block)
    distance = np.abs(out - golden) / (
        2 * expected.out * np.maximum(binade(golden), compare.SMALLEST_NORMAL)
    )
    largest = dict.fromkeys(LARGEST, 0.0)
    largest |= {
        "abs": float(size.max()),
        "raw": float(np.abs(raw - first).max()),
        "ulp": float(distance.max()),
    }
    for rtol in compare.NEEDED_RTOLS:
        largest[f"needed{rtol:g}"] = max(0.0, float((size - rtol * magnitude).max()))
    if allclose is not None:
        rtol, atol = allclose
        largest["tolerance"] = _largest(size, atol + rtol * magnitude)
        quantized = np.abs(out - expected.reference), atol + rtol * np.abs(expected.reference)
        largest["quantized"] = _largest(*quantized)
    centred = raw - first
    sums = dict.fromkeys(SUMS, 0.0)
    sums |= {
        "abs": float(size.sum()),
        "square": float((error**2).sum()),
        "raw": float(centred.sum()),
        "raw_square": float((raw**2).sum()),
        "error": float(error.sum()),
        "centred": float((centred**2).sum()),
        "cross": float((centred * error).sum()),
    }
    whole, counts = np.unique(np.ceil(distance), return_counts=True)
    distances: Counter[float] = Counter()
    for value, count in zip(whole.tolist(), counts.tolist(), strict=True):
        distances[compare.coarse(value)] += count
    added, maxima = (
        np.array([sums[name] for name in SUMS]),
        np.array([largest[name] for name in LARGEST]),
    )
    totals = Totals(added, maxima, distances, (-1.0, -1, -1), {}, {}, {})
    informative = (
        np.ones(out.shape[0], bool) if expected.informative is None else expected.informative
    )
    totals.sums[SUMS.index("left_out")] = float((~informative).sum())
    if informative.any():
        _budget(
            totals, out[informative], compare.restrict(expected, informative), places[informative]
        )
    _directions(totals, out - expected.reference, expected, groups)
    return totals


def _budget(totals: Totals, out: Array, expected: Expectation, places: NDArray[np.intp]) -> None:
    """Add the comparison with the quantized reference, over informative rows."""
    error = out - expected.reference
    size = np.abs(error)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(size == 0, 0.0, size / expected.bound)
        beyond = beyond_truncation(expected, error)
        standard = np.where(beyond == 0, 0.0, beyond**2 / expected.variance)
        multiple = np.abs(out / expected.reference)
        power = np.rint(np.log2(multiple))
        outlier = (
            (ratio > compare.OUTLIER_BUDGETS)
            & (power != 0)
            & (np.abs(multiple / 2.0**power - 1) < compare.OUTLIER_RATIO)
        )
    row, column = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    totals.worst = (float(ratio[row, column]), int(places[row]), int(column))
    golden = compare.rounded(expected.reference, expected.out, expected.out_block)
    sums = {
        "used": out.size,
        "over": int((ratio > 1).sum()),
        "chi": float(standard.sum()),
        "mismatch": int((out != golden).sum()),
        "outliers": int(outlier.sum()),
    }
    for name, value in sums.items():
        totals.sums[SUMS.index(name)] = value


def _directions(
    totals: Totals, error: Array, expected: Expectation, groups: NDArray[np.int64]
) -> None:
    """Add the scores of the rows, and the block's share of the columns' sums."""
    informative: Mask = (
        np.ones(error.shape[0], bool) if expected.informative is None else expected.informative
    )
    if not informative.any() or not expected.directions:
        return
    usable, error = compare.restrict(expected, informative), error[informative]
    goldens = compare.golden_of(usable)
    if usable.bias is not None and len(goldens) == 2:  # no bias in this block; another may have one
        goldens = (*goldens, *goldens)
    for direction in expected.directions:
        chosen = compare.restrict_direction(direction, informative)
        if direction.axis == "column":
            totals.columns[direction.name] = Column.of(
                usable, chosen, error, goldens, groups[informative]
            )
            totals.floors[direction.name] = float(np.max(direction.floor))
        else:
            totals.rows.setdefault(direction.name, []).append(
                directions.scores(usable, chosen, error, goldens).z
            )


def _largest(numerator: Array, denominator: Array) -> float:
    """Return the largest ratio; 0/0 counts as 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(np.where(numerator == 0, 0.0, numerator / denominator).max(initial=0.0))
