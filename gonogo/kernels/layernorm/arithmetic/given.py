"""Mean and rstd as a backward kernel has them: its inputs, or its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.arithmetic.moments import moments
from gonogo.kernels.layernorm.arithmetic.terms import BackwardTerms, ForwardTerms
from gonogo.numerics.expectation import Array, Mask


@dataclass(frozen=True)
class GivenMoments:
    """Mean and rstd as the kernel has them, (rows, 1), and how far they may be off.

    The bounds and variances are 0 where mean and rstd are inputs.
    """

    mean: Array
    rstd: Array
    mean_error: Array
    rstd_error: Array  # relative
    var_mean: Array
    var_rstd: Array  # relative
    # errors that have one sign in all rows: the truncated 1/N, ties, rounding that all rows share
    trend_mean: tuple[Array, ...]
    trend_rstd: tuple[Array, ...]  # relative
    informative: Mask

    @classmethod
    def given(cls, mean: Array, rstd: Array) -> GivenMoments:
        """Return inputs as they are (statistics: given)."""
        m, r = np.asarray(mean, np.float64)[:, None], np.asarray(rstd, np.float64)[:, None]
        zero = np.zeros_like(m)
        return cls(m, r, zero, zero, zero, zero, (), (), np.ones(m.shape[0], bool))

    @classmethod
    def computed(cls, x: Array, epsilon: float, t: ForwardTerms) -> GivenMoments:
        """Return the moments that the kernel computes from x (statistics: own)."""
        m = moments(x, epsilon, t)
        r = m.rstd
        return cls(
            m.mean,
            r,
            m.bound_mean,
            m.bound_rstd / r,
            m.var_mean,
            m.var_rstd / r**2,
            (m.trend_mean, m.lane_bias, m.together_mean),
            (m.trend_rstd / r, m.together_rstd / r),
            m.informative,
        )

    def some(self, rows: slice) -> GivenMoments:
        """Return the statistics of some of the rows."""
        return GivenMoments(
            self.mean[rows],
            self.rstd[rows],
            self.mean_error[rows],
            self.rstd_error[rows],
            self.var_mean[rows],
            self.var_rstd[rows],
            tuple(trend[rows] for trend in self.trend_mean),
            tuple(trend[rows] for trend in self.trend_rstd),
            self.informative[rows],
        )


def given_moments(
    given: Mapping[str, NDArray[Any]], epsilon: float, t: BackwardTerms
) -> GivenMoments:
    """Return the kernel's moments for what the device was given."""
    if t.own_statistics is None:
        return GivenMoments.given(given["mean"], given["rstd"])
    return GivenMoments.computed(np.asarray(given["x"], np.float64), epsilon, t.own_statistics)
