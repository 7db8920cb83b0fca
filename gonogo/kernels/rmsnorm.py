"""RMSNorm over the last axis, forward and backward."""

from __future__ import annotations

import numpy as np

from gonogo.kernels import wormhole
from gonogo.kernels.kernel import Array, Kernel, Outputs
from gonogo.kernels.normalization import variance_gradient
from gonogo.kernels.programs import PROGRAMS, stored_xhat


def rmsnorm(x: Array, gamma: Array, epsilon: Array) -> Outputs:
    """Return y = gamma x rstd, with rstd = 1 / sqrt(mean(x^2) + epsilon). rstd: (..., 1)."""
    rstd = rstd_of(x, epsilon)
    xhat = x * rstd
    y = xhat * gamma
    return {"y": y, "rstd": rstd}


def rstd_of(x: Array, epsilon: Array) -> Array:
    """Return 1 / sqrt(mean(x^2) + epsilon), (..., 1)."""
    square = x * x
    mean_square = np.mean(square, axis=-1, keepdims=True)
    shifted = mean_square + epsilon
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    return rstd


def _divided(x: Array, gamma: Array, epsilon: Array) -> Outputs:
    square = x * x
    mean_square = np.mean(square, axis=-1, keepdims=True)
    root = np.sqrt(mean_square + epsilon)
    xhat = x / root
    y = xhat * gamma
    return {"y": y, "rstd": 1.0 / root}


def _by_factor(x: Array, gamma: Array, epsilon: Array) -> Outputs:
    rstd = rstd_of(x, epsilon)
    factor = rstd * gamma
    y = x * factor
    return {"y": y, "rstd": rstd}


def rmsnorm_backward(x: Array, gamma: Array, rstd: Array, dy: Array) -> Outputs:
    """Return the gradients, given the rstd (..., 1) of the forward pass.

    With P = dy gamma and x^ = x rstd: s2 = mean_j(P x^), dx = rstd (P - x^ s2) and dgamma_j =
    sum_i dy x^.
    """
    xhat = x * rstd
    P = dy * gamma
    P_xhat = P * xhat
    s2 = np.mean(P_xhat, axis=-1, keepdims=True)
    share = xhat * s2
    inner = P - share
    dx = inner * rstd
    return {"dx": dx, "dgamma": _dgamma(xhat, dy)}


def _dgamma(xhat: Array, dy: Array) -> Array:
    term = dy * xhat
    return np.sum(term, axis=tuple(range(len(dy.shape) - 1)))


def _two_products(x: Array, gamma: Array, rstd: Array, dy: Array) -> Outputs:
    """Return dx as rstd P - rstd x^ s2."""
    xhat = x * rstd
    P = dy * gamma
    P_xhat = P * xhat
    s2 = np.mean(P_xhat, axis=-1, keepdims=True)
    scaled_P = rstd * P
    share = xhat * s2
    scaled_share = rstd * share
    dx = scaled_P - scaled_share
    return {"dx": dx, "dgamma": _dgamma(xhat, dy)}


def _linear(x: Array, gamma: Array, rstd: Array, dy: Array) -> Outputs:
    """Return dx as rstd P + b x."""
    P = dy * gamma
    P_x = P * x
    mean_P_x = np.mean(P_x, axis=-1, keepdims=True)
    b = -mean_P_x * (rstd * rstd * rstd)
    scaled_P = rstd * P
    dx = scaled_P + b * x
    return {"dx": dx, "dgamma": _dgamma(x * rstd, dy)}


def rmsnorm_backward_own(x: Array, gamma: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return the gradients of a backward pass that computes rstd itself."""
    return rmsnorm_backward(x, gamma, rstd_of(x, epsilon), dy)


def _autograd(x: Array, gamma: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return the gradient of x rsqrt(mean(x x) + epsilon), as torch derives it."""
    rstd = rstd_of(x, epsilon)
    xhat = x * rstd
    P = dy * gamma
    direct = P * rstd
    weighted = P * x
    d_square = variance_gradient(weighted, rstd)
    through = d_square * x
    once = direct + through
    dx = once + through
    return {"dx": dx, "dgamma": _dgamma(xhat, dy)}


GRADIENTS = ("dx", "dgamma")
BUILDS = (
    "correct", "bf16-accumulate", "wrong-epsilon", "epsilon-dropped", "mean-subtracted",
    "padded-count", "last-tile-only", "last-tile-missing", "tile-missing", "mask-missing",
    "stale-partial", "stale-register", "rstd-off-1e-3", "gamma-shifted-tile", "gamma-neighbour",
    "gamma-missing", "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
BACKWARD_BUILDS = (
    "correct", "drop-s2", "s2-sign", "last-block-only", "bf16-accumulate", "wrong-epsilon",
    "mean-subtracted", "padded-count", "last-tile-only", "last-tile-missing", "tile-missing",
    "mask-missing", "stale-partial", "stale-register", "rstd-off-1e-3", "gamma-shifted-tile",
    "gamma-neighbour", "gamma-missing", "dgamma-last-row-tile-missing", "power-of-two-outliers",
    "nan-tile", "hang", "crash",
)  # fmt: skip
"""The emulated builds of each pass in order; gonogo.emulator.norms says what they do."""

KERNELS = (
    Kernel(
        "rmsnorm_fw",
        rmsnorm,
        ("y", "rstd"),
        ways=(_by_factor, _divided),
        wormhole=wormhole.RMSNORM,
        programs={**PROGRAMS, "stored-xhat": stored_xhat},
        builds=BUILDS,
    ),
    Kernel(
        "rmsnorm_bw",
        rmsnorm_backward,
        GRADIENTS,
        ways=(_two_products, _linear),
        without_statistics=Kernel(
            "rmsnorm_bw_own",
            rmsnorm_backward_own,
            GRADIENTS,
            ways=(_autograd,),
            wormhole=wormhole.RMSNORM_BACKWARD_OWN,
        ),
        wormhole=wormhole.BACKWARD,
        builds=BACKWARD_BUILDS,
    ),
)
