"""The gradients of the L2 norm. x, dy and dx are (rows, N), gamma and dgamma (N,)."""

import numpy as np

from gonogo.kernels.kernel import Kernel


def gradients(x, gamma, dy, epsilon):
    """Return dx = r (P - x^ S) and dgamma = sum of dy x^."""
    total = np.sum(x * x, axis=-1, keepdims=True)
    r = 1 / np.sqrt(total + epsilon)
    xhat = x * r
    P = dy * gamma
    S = np.sum(P * xhat, axis=-1, keepdims=True)
    share = xhat * S
    rest = P - share
    dx = r * rest
    dgamma = np.sum(dy * xhat, axis=0)
    return {"dx": dx, "dgamma": dgamma}


L2NORM_BW = Kernel(
    "l2norm_gradients",
    gradients,
    ("dx", "dgamma"),
    builds=("correct", "missing/share@rest", "sign/share@rest", "without-last/dgamma"),
    block_formats=False,
)
