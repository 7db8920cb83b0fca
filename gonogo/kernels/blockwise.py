"""The statistics of a matrix output in blocks of rows, in bounded memory.

gonogo.numerics.compare defines them; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import compare, row_blocks
from gonogo.numerics.blocks import in_order
from gonogo.numerics.expectation import Array, Expectation
from gonogo.numerics.jit import pays
from gonogo.numerics.totals import Totals, finished

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]


class Expecting(Protocol):
    """A kind of kernel, as the statistics need it; gonogo.kernels.kind.Numerics has it all."""

    def spans(self, test: TestSpec) -> tuple[int, int]:
        """Return (rows, rows of a block)."""

    def expecting(
        self, test: TestSpec, given: Arrays, arithmetic: str | None
    ) -> Callable[[slice], dict[str, Expectation]]:
        """Return a function of the rows: what is expected of each output there."""

    def views(
        self, test: TestSpec, given: Arrays, output: str, expected: Expectation, rows: slice
    ) -> tuple[Expectation, ...]:
        """Return the same expectation with its rows cut differently."""


def statistics(
    numerics: Expecting,
    test: TestSpec,
    references: Callable[[slice], Mapping[str, Array]],
    given: Arrays,
    outputs: Mapping[str, NDArray[np.float32]],
    arithmetic: str | None,
    others: Iterable[str] = (),
) -> tuple[dict[str, Any], dict[str, list[Expectation]]]:
    """Return the statistics of matrix outputs (rows, N) with more than one row.

    references: the raw references of some rows, of the raw inputs. others: outputs whose
    expectations are returned, too, block by block. Each block's expectations are computed once, and
    those of matrices are dropped with it.
    """
    rows, step = numerics.spans(test)
    groups = equal_rows([np.asarray(a) for name, a in given.items() if test.is_matrix(name)])
    origins = references(slice(0, 1))
    expect = numerics.expecting(test, given, arithmetic)
    compare_block = _comparison(rows * test.features)
    keep = {name: compare.finite_rows(output) for name, output in outputs.items()}

    def block(
        start: int, stop: int
    ) -> tuple[dict[str, Totals], dict[str, tuple[str, ...]], dict[str, Expectation]]:
        here = slice(start, stop)
        expected, raw = expect(here), references(here)
        totals, names = {}, {}
        for name, output in outputs.items():
            views = numerics.views(test, given, name, expected[name], here)
            tolerance = test.tolerance_for(name)
            totals[name] = compare_block(
                output[here],
                np.asarray(raw[name], np.float64),
                expected[name],
                keep[name][here],
                start=start,
                allclose=None if tolerance is None else tolerance.allclose,
                origin=float(origins[name].flat[0]),
                groups=groups[here],
            )
            for view in views:
                shape = view.reference.shape
                cut = np.repeat(keep[name][here], shape[0] // (stop - start))
                scores = compare_block(output[here].reshape(shape), None, view, cut)
                totals[name].rows |= scores.rows
            names[name] = tuple(
                direction.name
                for expectation in (expected[name], *views)
                for direction in expectation.directions
            )
        return totals, names, {name: expected[name] for name in others}

    totals: dict[str, Totals] = {}
    names: dict[str, tuple[str, ...]] = {}
    parts: dict[str, list[Expectation]] = {name: [] for name in others}
    for block_totals, block_names, block_expected in in_order(
        block, rows, step, elements=rows * test.features
    ):
        names |= block_names
        for name, more in block_totals.items():
            if name in totals:
                totals[name].add(more)
            else:
                totals[name] = more
        for name, part in block_expected.items():
            parts[name].append(part)
    merged = {}
    for name, output in outputs.items():
        bare = {
            "count": int(output.size),
            "digest": compare.digest(output, output.shape),
            **compare.nonfinite(output),
        }
        count = int(keep[name].sum()) * output.shape[1]
        tolerance = test.tolerance_for(name)
        declared = tolerance is not None and tolerance.allclose is not None
        compared = (
            finished(totals[name], count, declared, names[name])
            if count
            else compare.blank(names[name])
        )
        merged[name] = compared | bare
    return merged, parts


def _comparison(elements: int) -> Callable[..., Totals]:
    """Return the comparison of a block: compiled where that pays, and else its definition."""
    if not pays(elements):
        return row_blocks.compare_block
    from gonogo.numerics.compiled.comparison import compare_block

    return compare_block


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
