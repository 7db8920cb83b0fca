"""The reference of l2norm_fw, and another way to compute it. x and y are (rows, N)."""

import numpy as np

from gonogo.references.kernel import Kernel


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


KERNEL = Kernel("l2norm_fw", l2norm, ways=(by_quotient,))
