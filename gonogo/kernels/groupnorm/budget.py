"""The reference and the budget of groupnorm_fw: those of layernorm_fw over rows of groups, with
gamma and beta of each element's channel.

What a row of gonogo.kernels.layernorm.arithmetic.forward is, is here a group: M = C / num_groups * H * W
elements, mean and rstd of its own, the machine the same. A term is a term: B, s and the row
directions (mean, rstd, scale) are LayerNorm's with gamma and beta as matrices. Only what runs down
the columns differs: a column of that matrix is no channel. gamma and beta are asked of each channel
of each sample instead, a stretch of H * W elements of a row (`channels`): there a wrong one is a
slope on x^, or a shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import rows_cut, with_least_step
from gonogo.kernels.layernorm import reference as layernorm
from gonogo.kernels.layernorm.arithmetic import forward, forward_terms
from gonogo.numerics.expectation import Array, Direction, Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]


def spread(test: TestSpec, vector: NDArray[Any], rows: slice | None = None) -> NDArray[Any]:
    """A value a channel (C,) as the matrix (groups, elements) of each element's: of all groups, or
    of some.
    """
    groups = test.parameter("num_groups")
    spatial = test.features * groups // test.shape[1]
    one = np.repeat(vector.reshape(groups, -1), spatial, axis=1)
    return np.ascontiguousarray(one[np.arange(test.rows)[rows or slice(None)] % groups])


def reference(test: TestSpec, arrays: Arrays) -> dict[str, Array]:
    """Y (groups, elements), mean and rstd (groups,) in float64."""
    mean, rstd = layernorm.moments(arrays["x"], test.epsilon)
    xhat = (np.asarray(arrays["x"], np.float64) - mean[:, None]) * rstd[:, None]
    gamma, beta = (spread(test, np.asarray(arrays[name], np.float64)) for name in ("gamma", "beta"))
    return {"y": gamma * xhat + beta, "mean": mean, "rstd": rstd}


def expectations(
    test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice
) -> dict[str, Expectation]:
    """Of y, mean and rstd in some groups."""
    some = {
        "x": given["x"][rows],
        **{name: spread(test, given[name], rows) for name in ("gamma", "beta")},
    }
    found = forward.expectations(some, test.epsilon, forward_terms(test, arithmetic))
    y = with_least_step(found["y"], test.numerics.output)
    return {
        **found,
        "y": replace(y, directions=tuple(each for each in y.directions if each.axis == "row")),
    }


def channels(test: TestSpec, given: Arrays, expected: Expectation, rows: slice) -> Expectation:
    """The expectation of y in some groups with a row for each channel of each sample, and the
    directions of gamma and beta there.
    """
    width = test.features * test.parameter("num_groups") // test.shape[1]
    mean, rstd = layernorm.moments(given["x"][rows], test.epsilon)
    xhat = ((np.asarray(given["x"][rows], np.float64) - mean[:, None]) * rstd[:, None]).reshape(
        -1, width
    )
    return replace(
        rows_cut(expected, width),
        directions=(Direction("gamma", xhat), Direction("beta", np.ones_like(xhat))),
    )
