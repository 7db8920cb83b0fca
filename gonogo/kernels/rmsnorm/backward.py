"""The reference of rmsnorm_bw: dx = r (P - x^ s2) and dgamma = sum of dy x^.

P = dy gamma, x^ = x r, s2 = mean(P x^). Its budget is that of layernorm_bw
(gonogo.kernels.layernorm.arithmetic.backward) without a mean and s1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic import BackwardTerms, GivenMoments
from gonogo.kernels.rmsnorm import budget
from gonogo.numerics.expectation import Array


def reference(arrays: Mapping[str, NDArray[np.floating]], epsilon: float) -> dict[str, Array]:
    """Return dx (rows, N) and dgamma (N,) in float64; rstd is that of x where `arrays` has none."""
    x, dy, gamma = (np.asarray(arrays[name], np.float64) for name in ("x", "dy", "gamma"))
    if "rstd" in arrays:
        rstd = np.asarray(arrays["rstd"], np.float64)[:, None]
    else:
        rstd = 1.0 / np.sqrt((x**2).mean(axis=1, keepdims=True) + epsilon)
    xhat = x * rstd
    product = dy * gamma
    s2 = (product * xhat).mean(axis=1, keepdims=True)
    return {"dx": rstd * (product - xhat * s2), "dgamma": (dy * xhat).sum(axis=0)}


def given_root(
    given: Mapping[str, NDArray[Any]], epsilon: float, t: BackwardTerms, *, stores_squares: bool
) -> GivenMoments:
    """Return rstd as the kernel has it, with a mean of 0; see GivenMoments.

    stores_squares: as for budget.root, where the kernel computes rstd itself.
    """
    if t.own_statistics is None:
        return GivenMoments.given(np.zeros(len(given["x"])), given["rstd"])
    root_terms = t.own_statistics
    m = budget.root(
        np.asarray(given["x"], np.float64), epsilon, root_terms, stores_squares=stores_squares
    )
    r, zero = m.rstd, np.zeros_like(m.rstd)
    return GivenMoments(
        mean=zero,
        rstd=r,
        mean_error=zero,
        rstd_error=m.bound / r,
        var_mean=zero,
        var_rstd=m.variance / r**2,
        trend_mean=(),
        trend_rstd=(m.trend / r, m.together / r, m.lane / r),
        informative=m.informative,
    )
