"""The numerics of rmsnorm_bw: dx = r (P - x^ s2) and dgamma = sum of dy x^.

P = dy gamma, x^ = x r, s2 = mean(P x^). Everything but rstd is LayerNorm's without a mean and s1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.kind import Arrays, Emulation, with_min_step
from gonogo.kernels.layernorm.arithmetic import GivenMoments, backward_terms
from gonogo.kernels.layernorm.gradients import GradientNumerics
from gonogo.kernels.rmsnorm import budget
from gonogo.numerics.expectation import Array, Expectation

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec


class RMSNormBackward(GradientNumerics):
    """The numerics of rmsnorm_bw."""

    centered = False
    emulation = Emulation("rmsnorm_bw")

    def reference(self, test: TestSpec, arrays: Arrays) -> dict[str, Array]:
        """Return dx (rows, N) and dgamma (N,) in float64.

        rstd is that of x where `arrays` has none.
        """
        x, dy, gamma = (np.asarray(arrays[name], np.float64) for name in ("x", "dy", "gamma"))
        if "rstd" in arrays:
            rstd = np.asarray(arrays["rstd"], np.float64)[:, None]
        else:
            rstd = 1.0 / np.sqrt((x**2).mean(axis=1, keepdims=True) + test.epsilon)
        xhat = x * rstd
        product = dy * gamma
        s2 = (product * xhat).mean(axis=1, keepdims=True)
        return {"dx": rstd * (product - xhat * s2), "dgamma": (dy * xhat).sum(axis=0)}

    def moments(self, test: TestSpec, given: Arrays, arithmetic: str | None) -> GivenMoments:
        """Return rstd as the kernel has it, with a mean of 0."""
        terms = backward_terms(test, arithmetic).own_statistics
        if terms is None:
            return GivenMoments.given(np.zeros(len(given["x"])), given["rstd"])
        root = budget.root(
            np.asarray(given["x"], np.float64),
            test.epsilon,
            terms,
            stores_squares=arithmetic != budget.TT_TRAIN,
        )
        r, zero = root.rstd, np.zeros_like(root.rstd)
        return GivenMoments(
            mean=zero,
            rstd=r,
            mean_error=zero,
            rstd_error=root.bound / r,
            var_mean=zero,
            var_rstd=(root.row_variance + root.together**2) / r**2,
            trend_mean=(),
            trend_rstd=(root.trend / r, root.together / r, root.lane / r),
            informative=root.informative,
        )

    def stored(self, test: TestSpec, expected: Expectation) -> Expectation:
        """Return the expectation with the least step of fp16."""
        return with_min_step(expected, test.numerics.output)
