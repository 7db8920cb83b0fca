"""The expectations of LayerNorm's outputs, block by block, computed on all cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gonogo.kernels.kind import Arrays
from gonogo.kernels.layernorm import statistics
from gonogo.kernels.layernorm.arithmetic import backward, backward_terms, given_moments
from gonogo.numerics.blocks import over_rows
from gonogo.numerics.expectation import Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

TILE = 32
ELEMENTS_PER_BLOCK = 2**18
"""Elements of a block. The definition of a budget keeps some forty arrays of it: 2 MiB each."""


def of_layernorm(
    test: TestSpec, given: Arrays, arithmetic: str | None
) -> dict[str, list[Expectation]]:
    """Return the expectations of LayerNorm's outputs, in blocks of rows or of columns.

    dgamma and dbeta, which sum over all rows, come in blocks of columns.
    """
    rows, n = given["x"].shape
    per_block = max(TILE, ELEMENTS_PER_BLOCK // n // TILE * TILE)
    if test.kernel == "layernorm_fw":

        def forward(start: int, stop: int) -> dict[str, Expectation]:
            return statistics.of_layernorm(test, {**given, "x": given["x"][start:stop]}, arithmetic)

        return _by_output(over_rows(forward, rows, per_block), ("y", "mean", "rstd"))
    terms = backward_terms(test, arithmetic)
    known = given_moments(given, test.epsilon, terms)

    def of_rows(start: int, stop: int) -> dict[str, Expectation]:
        part = {**given, "x": given["x"][start:stop], "dy": given["dy"][start:stop]}
        return backward.expectations(part, known.some(slice(start, stop)), terms)

    def of_columns(start: int, stop: int) -> dict[str, Expectation]:
        part = {**given, **{name: given[name][..., start:stop] for name in ("x", "dy", "gamma")}}
        return backward.expectations(part, known, terms)

    wide = max(TILE, ELEMENTS_PER_BLOCK // rows // TILE * TILE)
    return _by_output(over_rows(of_rows, rows, per_block), ("dx",)) | _by_output(
        over_rows(of_columns, n, wide), ("dgamma", "dbeta")
    )


def _by_output(
    parts: list[dict[str, Expectation]], names: tuple[str, ...]
) -> dict[str, list[Expectation]]:
    return {name: [part[name] for part in parts] for name in names}
