"""The reference and the budget of groupnorm_fw.

They are those of layernorm_fw over rows of groups, with gamma and beta of each element's channel.

A row of gonogo.kernels.layernorm.arithmetic.forward is a group here: M = C / num_groups * H * W
elements with their own mean and rstd. The machine is the same. B, s and the row directions (mean,
rstd, scale) are LayerNorm's with gamma and beta as matrices. Only what runs down the columns
differs, because a column of that matrix is no channel. gamma and beta are measured for each channel
of each sample instead, a stretch of H * W elements of a row (`channels`). There a wrong one is a
slope on x^, or a shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import rows_cut, with_min_step
from gonogo.kernels.layernorm import reference as layernorm
from gonogo.kernels.layernorm.arithmetic import forward, forward_terms
from gonogo.numerics.expectation import Array, Direction, Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Arrays = Mapping[str, NDArray[Any]]


def spread(test: TestSpec, vector: NDArray[Any], rows: slice | None = None) -> NDArray[Any]:
    """Return one value per channel (C,) as a matrix (groups, elements) with each element's value.

    rows: some of the groups; None for all.
    """
    groups = test.parameter("num_groups")
    spatial = test.features * groups // test.shape[1]
    one = np.repeat(vector.reshape(groups, -1), spatial, axis=1)
    return np.ascontiguousarray(one[np.arange(test.rows)[rows or slice(None)] % groups])


def reference(test: TestSpec, arrays: Arrays) -> dict[str, Array]:
    """Return y (groups, elements), and mean and rstd (groups,) in float64."""
    mean, rstd = layernorm.moments(arrays["x"], test.epsilon)
    xhat = (np.asarray(arrays["x"], np.float64) - mean[:, None]) * rstd[:, None]
    gamma, beta = (spread(test, np.asarray(arrays[name], np.float64)) for name in ("gamma", "beta"))
    return {"y": gamma * xhat + beta, "mean": mean, "rstd": rstd}


def expectations(
    test: TestSpec, given: Arrays, arithmetic: str | None, rows: slice
) -> dict[str, Expectation]:
    """Return what is expected of y, mean and rstd in some groups."""
    some = {
        "x": given["x"][rows],
        **{name: spread(test, given[name], rows) for name in ("gamma", "beta")},
    }
    expected = forward.expectations(some, test.epsilon, forward_terms(test, arithmetic))
    y = with_min_step(expected["y"], test.numerics.output)
    return {
        **expected,
        "y": replace(
            y, directions=tuple(direction for direction in y.directions if direction.axis == "row")
        ),
    }


def channels(test: TestSpec, given: Arrays, expected: Expectation, rows: slice) -> Expectation:
    """Return the expectation of y in some groups, with a row for each channel of each sample.

    Its directions are those of gamma and beta.
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
