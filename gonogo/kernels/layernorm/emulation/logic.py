"""A backward build's logic without any rounding, in float64.

It says whether a defect can show with given inputs at all.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation.plan import Plan
from gonogo.kernels.normalization.emulation.forward import STALE, moments
from gonogo.kernels.normalization.emulation.logic import TILE, tiles_of
from gonogo.kernels.normalization.emulation.steps import Exact

Array = NDArray[np.float64]


def backward(given: Mapping[str, Array], epsilon: float, plan: Plan) -> dict[str, Array]:
    """Return dx, dgamma and dbeta of the build's logic.

    It computes its own statistics where `given` has none.
    """
    x, dy = given["x"], given["dy"]
    features = x.shape[1]
    tiles, columns = tiles_of(features), plan.summed_columns(features)
    clear = np.zeros(TILE)
    if "mean" in given:
        mean, rstd = given["mean"], given["rstd"]
    else:
        mean, _, rstd = moments(Exact(), x, epsilon, plan.statistics_only(), clear)

    def mean_of(terms: Array, summed: NDArray[np.bool_], stale: Array) -> Array:
        return Exact().total(terms[:, columns], summed, stale, features)[:, None]

    xhat = (x - mean[:, None] if plan.subtracted == "mean" else x) * rstd[:, None]
    products = dy * plan.gamma(given["gamma"])
    s1 = mean_of(products, plan.first_sum_tiles(tiles), clear + STALE if plan.stale else clear)
    s2 = mean_of(products * xhat, plan.second_sum_tiles(tiles), clear)
    dgamma_rows = plan.dgamma_rows(x.shape[0])
    return {
        "dx": rstd[:, None] * plan.rstd_factor * (products - plan.s1_times * s1 - xhat * s2),
        "dgamma": (dy[:dgamma_rows] * xhat[:dgamma_rows]).sum(axis=0),
        "dbeta": dy.sum(axis=0),
    }
