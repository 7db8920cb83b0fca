"""A build's logic without any rounding, in float64.

It says whether a defect can show with given inputs at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation.plan import TILE, Plan, tiles_of

Array = NDArray[np.float64]

STALE = 1.0
"""The content of a stale register in float64: 1 left in each lane.

The real leftovers depend on what ran before.
"""


def _row_mean(
    terms: Array,
    plan: Plan,
    tiles: NDArray[np.bool_],
    stale: float = 0.0,
    divisor: int | None = None,
) -> Array:
    """Return the mean of each row of `terms` (rows, N) over the summed tiles: (rows, 1)."""
    features = terms.shape[1]
    columns = plan.summed_columns(features)
    summed = np.repeat(tiles, TILE)[: columns.size]
    total: Array = terms[:, columns[summed]].sum(axis=1, keepdims=True)
    return (total + TILE * stale) / (divisor or features)


def _moments(
    x: Array, epsilon: float, plan: Plan, tiles: NDArray[np.bool_], stale: float
) -> tuple[Array, Array]:
    features = x.shape[1]
    mean = _row_mean(x, plan, tiles, stale)
    divisor = max(features - 1, 1) if plan.unbiased else features
    variance = _row_mean((x - mean) ** 2, plan, np.ones_like(tiles), divisor=divisor)
    return mean, 1.0 / np.sqrt(variance + epsilon * plan.epsilon_factor)


def forward(given: Mapping[str, Array], epsilon: float, plan: Plan) -> dict[str, Array]:
    """Return y, mean and rstd of the build's logic."""
    x = given["x"]
    tiles = plan.first_sum_tiles(tiles_of(x.shape[1]))
    mean, rstd = _moments(x, epsilon, plan, tiles, STALE if plan.stale else 0.0)
    scale = rstd * plan.rstd_factor
    centred = x - mean if plan.subtract_mean else x
    gamma = np.roll(given["gamma"], plan.gamma_shift * TILE)
    return {"y": gamma * (centred * scale) + given["beta"], "mean": mean[:, 0], "rstd": scale[:, 0]}


def backward(given: Mapping[str, Array], epsilon: float, plan: Plan) -> dict[str, Array]:
    """Return dx, dgamma and dbeta of the build's logic.

    It computes its own statistics where `given` has none.
    """
    x, dy = given["x"], given["dy"]
    tiles = tiles_of(x.shape[1])
    if "mean" in given:
        mean, rstd = given["mean"][:, None], given["rstd"][:, None]
    else:
        mean, rstd = _moments(
            x, epsilon, plan.statistics_only(), np.ones(tiles, dtype=np.bool_), 0.0
        )
    xhat = (x - mean if plan.subtract_mean else x) * rstd
    products = dy * np.roll(given["gamma"], plan.gamma_shift * TILE)
    s1 = _row_mean(products, plan, plan.first_sum_tiles(tiles), STALE if plan.stale else 0.0)
    s2 = _row_mean(products * xhat, plan, plan.second_sum_tiles(tiles))
    dgamma_rows = plan.dgamma_rows(x.shape[0])
    return {
        "dx": rstd * plan.rstd_factor * (products - plan.s1_times * s1 - xhat * s2),
        "dgamma": (dy[:dgamma_rows] * xhat[:dgamma_rows]).sum(axis=0),
        "dbeta": dy.sum(axis=0),
    }
