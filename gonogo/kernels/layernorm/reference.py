"""The LayerNorm references in the plainest possible float64 code.

Everything else is tested against them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Array = NDArray[np.float64]


def moments(x: NDArray[np.floating], epsilon: float) -> tuple[Array, Array]:
    """Return mean and rstd = 1/sqrt(var + epsilon) of each row of `x` (rows, N); both (rows,).

    The variance is the biased one. All is in float64.
    """
    wide = np.asarray(x, dtype=np.float64)
    mean = wide.mean(axis=1)
    variance = ((wide - mean[:, None]) ** 2).mean(axis=1)
    return mean, 1.0 / np.sqrt(variance + epsilon)


def forward(
    x: NDArray[np.floating], gamma: NDArray[np.floating], beta: NDArray[np.floating], epsilon: float
) -> dict[str, Array]:
    """Return y = gamma x^ + beta (rows, N), with mean and rstd (rows,)."""
    mean, rstd = moments(x, epsilon)
    xhat = (np.asarray(x, dtype=np.float64) - mean[:, None]) * rstd[:, None]
    return {
        "y": np.asarray(gamma, np.float64) * xhat + np.asarray(beta, np.float64),
        "mean": mean,
        "rstd": rstd,
    }


def backward(
    x: NDArray[np.floating],
    gamma: NDArray[np.floating],
    mean: NDArray[np.floating],
    rstd: NDArray[np.floating],
    dy: NDArray[np.floating],
) -> dict[str, Array]:
    """Return dx (rows, N), dgamma and dbeta (N,) from the mean and rstd that the kernel is given.

    With P = dy gamma: s1 = mean_j(P), s2 = mean_j(P x^), dx = rstd (P - s1 - x^ s2); dgamma_j =
    sum_i dy x^; dbeta_j = sum_i dy.
    """
    wide_dy = np.asarray(dy, np.float64)
    r = np.asarray(rstd, np.float64)[:, None]
    xhat = (np.asarray(x, np.float64) - np.asarray(mean, np.float64)[:, None]) * r
    product = wide_dy * np.asarray(gamma, np.float64)
    s1 = product.mean(axis=1, keepdims=True)
    s2 = (product * xhat).mean(axis=1, keepdims=True)
    return {
        "dx": r * (product - s1 - xhat * s2),
        "dgamma": (wide_dy * xhat).sum(axis=0),
        "dbeta": wide_dy.sum(axis=0),
    }


def reference(test: TestSpec, arrays: Mapping[str, NDArray[np.floating]]) -> dict[str, Array]:
    """Return the kernel's float64 function of `arrays`.

    For the inputs as the device gets them, this is the quantized reference. For the raw inputs, it
    is the raw reference. `layernorm_bw` without `mean` and `rstd` in `arrays` (statistics: own)
    takes those of x.
    """
    if test.kernel == "layernorm_fw":
        return forward(arrays["x"], arrays["gamma"], arrays["beta"], test.epsilon)
    if test.kernel == "layernorm_bw":
        if "mean" in arrays:
            mean, rstd = arrays["mean"], arrays["rstd"]
        else:
            mean, rstd = moments(arrays["x"], test.epsilon)
        return backward(arrays["x"], arrays["gamma"], mean, rstd, arrays["dy"])
    raise ValueError(f"no reference for kernel {test.kernel!r}")
