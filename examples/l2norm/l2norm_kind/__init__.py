"""The L2 norm over the last axis, and another way to compute it. x and y are (rows, N)."""

import numpy as np

from gonogo.kernels.kernel import Kernel


def l2norm(x, gamma, epsilon):
    """Return y = gamma x / sqrt(sum x^2 + epsilon)."""
    total = np.sum(x * x, axis=-1, keepdims=True)
    r = 1 / np.sqrt(total + epsilon)
    xhat = x * r
    y = gamma * xhat
    return {"y": y}


def by_quotient(x, gamma, epsilon):
    """Return the same with a quotient in the place of a reciprocal."""
    total = np.sum(x * x, axis=-1, keepdims=True)
    xhat = x / np.sqrt(total + epsilon)
    y = gamma * xhat
    return {"y": y}


L2NORM_FW = Kernel(
    "l2norm_fw",
    l2norm,
    ("y",),
    ways=(by_quotient,),
    builds=("correct", "without-tile-0/total", "without-last/total", "missing/gamma@y"),
    block_formats=False,
)
