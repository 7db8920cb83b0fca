"""The expectations of LayerNorm's outputs, in blocks of rows or columns that fit in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic import (
    backward,
    backward_terms,
    forward,
    forward_terms,
    given_moments,
)
from gonogo.numerics.expectation import Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


BLOCK = 2**19
"""Elements whose expectation (some thirty float64 matrices) is in memory at a time."""


Block = tuple[str, Expectation, slice, slice]


def of_layernorm(
    test: TestSpec, given: Mapping[str, NDArray[Any]], arithmetic: str | None
) -> Iterator[Block]:
    """Yield (output, expectation, rows, columns) of every output of LayerNorm in blocks.

    Each block fits in memory. Matrices, mean and rstd come in blocks of rows. dgamma and dbeta,
    which sum over all rows, come in blocks of columns.
    """
    total, features = given["x"].shape
    step = max(32, BLOCK // features)
    everything = slice(None)
    for start in range(0, total, step):
        rows = slice(start, min(start + step, total))
        some = {name: a if name in ("gamma", "beta") else a[rows] for name, a in given.items()}
        if test.kernel == "layernorm_fw":
            for name, expected in forward.expectations(
                some, test.epsilon, forward_terms(test, arithmetic)
            ).items():
                yield (
                    name,
                    expected,
                    rows if name == "y" else everything,
                    everything if name == "y" else rows,
                )
        else:
            terms = backward_terms(test, arithmetic)
            known = given_moments(some, test.epsilon, terms)
            yield "dx", backward.expectations(some, known, terms)["dx"], rows, everything
    if test.kernel != "layernorm_fw":
        terms = backward_terms(test, arithmetic)
        known = given_moments(given, test.epsilon, terms)
        step = max(32, BLOCK // total)
        for start in range(0, features, step):
            columns = slice(start, min(start + step, features))
            some = {
                name: a if name in ("mean", "rstd") else a[..., columns]
                for name, a in given.items()
            }
            sums = backward.expectations(some, known, terms)
            for name in ("dgamma", "dbeta"):
                yield name, sums[name], everything, columns
