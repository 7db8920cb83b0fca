"""LayerNorm over the last axis, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gonogo.kernels import wormhole
from gonogo.kernels.kernel import Array, Kernel, Outputs
from gonogo.kernels.normalization import (
    Rows,
    other_norms,
    two_pass,
    updated,
    variance_gradient,
)


def layernorm(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return y = gamma (x - mean) rstd + beta, with rstd = 1 / sqrt(variance + epsilon).

    The variance is the biased one. x: (..., N). gamma, beta: (N,). mean, rstd: (..., 1).
    """
    mean = np.mean(x, axis=-1, keepdims=True)
    centered = x - mean
    square = centered * centered
    variance = np.mean(square, axis=-1, keepdims=True)
    shifted = variance + epsilon
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    xhat = centered * rstd
    weighted = xhat * gamma
    y = weighted + beta
    return {"y": y, "mean": mean, "rstd": rstd}


def layernorm_backward(x: Array, gamma: Array, mean: Array, rstd: Array, dy: Array) -> Outputs:
    """Return the gradients, given the mean and rstd (..., 1) of the forward pass.

    With P = dy gamma and x^ = (x - mean) rstd: s1 = mean_j(P), s2 = mean_j(P x^), dx = rstd (P -
    s1 - x^ s2), dgamma_j = sum_i dy x^ and dbeta_j = sum_i dy, both (N,).
    """
    centered = x - mean
    xhat = centered * rstd
    P = dy * gamma
    s1 = np.mean(P, axis=-1, keepdims=True)
    P_xhat = P * xhat
    s2 = np.mean(P_xhat, axis=-1, keepdims=True)
    P_centered = P - s1
    share = xhat * s2
    inner = P_centered - share
    dx = inner * rstd
    return {"dx": dx, **column_sums(xhat, dy)}


def column_sums(xhat: Array, dy: Array) -> Outputs:
    """Return dgamma and dbeta (N,)."""
    rows = tuple(range(len(dy.shape) - 1))
    term = dy * xhat
    return {"dgamma": np.sum(term, axis=rows), "dbeta": np.sum(dy, axis=rows)}


def _linear_backward(x: Array, gamma: Array, mean: Array, rstd: Array, dy: Array) -> Outputs:
    """Return dx as rstd P + b x + c, and x^ as x rstd + shift, which ATen computes on a CPU."""
    P = dy * gamma
    s1 = np.mean(P, axis=-1, keepdims=True)
    P_x = P * x
    mean_P_x = np.mean(P_x, axis=-1, keepdims=True)
    difference = s1 * mean - mean_P_x
    b = difference * (rstd * rstd * rstd)
    c = -b * mean - s1 * rstd
    scaled_P = rstd * P
    dx = scaled_P + b * x + c
    shift = -rstd * mean
    xhat = x * rstd + shift
    return {"dx": dx, **column_sums(xhat, dy)}


def _two_products(x: Array, gamma: Array, mean: Array, rstd: Array, dy: Array) -> Outputs:
    """Return dx as rstd P - rstd (s1 + x^ s2), which flax computes."""
    centered = x - mean
    xhat = centered * rstd
    P = dy * gamma
    s1 = np.mean(P, axis=-1, keepdims=True)
    P_xhat = P * xhat
    s2 = np.mean(P_xhat, axis=-1, keepdims=True)
    scaled_P = rstd * P
    share = xhat * s2
    projection = s1 + share
    scaled_projection = rstd * projection
    dx = scaled_P - scaled_projection
    return {"dx": dx, **column_sums(xhat, dy)}


def _statistics(
    variance_of: Callable[..., tuple[Rows, Array]], x: Array, epsilon: Array
) -> tuple[Rows, Array]:
    """Return the rows of x with their mean, and rstd."""
    rows, variance = variance_of(x, -1)
    shifted = variance + epsilon
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    return rows, rstd


def _own_statistics(
    backward: Callable[..., Outputs], x: Array, gamma: Array, dy: Array, epsilon: Array
) -> Outputs:
    """Return a backward pass that computes mean and rstd of x itself."""
    rows, rstd = _statistics(two_pass, x, epsilon)
    return backward(x, gamma, rows.mean, rstd, dy)


def _after_forward(x: Array, gamma: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return a linear backward pass after a forward one, as torch runs them.

    The forward pass may round the mean that it hands on, which its variance doesn't take.
    """
    rows, rstd = _statistics(updated, x, epsilon)
    return _linear_backward(x, gamma, rows.mean, rstd, dy)


def _autograd(x: Array, gamma: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return the gradient of (x - mean) rsqrt(mean(centered^2) + epsilon), as torch derives it.

    A product of a value with itself gives its gradient to it twice; rsqrt gives -1/2 d rstd^3.
    """
    count = x.shape[-1]
    rows, rstd = _statistics(two_pass, x, epsilon)
    centered = rows.centered
    xhat = centered * rstd
    P = dy * gamma
    direct = P * rstd
    weighted = P * centered
    d_square = variance_gradient(weighted, rstd)
    through = d_square * centered
    once = direct + through
    d_centered = once + through
    d_mean = np.sum(-d_centered, axis=-1, keepdims=True)
    dx = d_centered + d_mean / count
    return {"dx": dx, **column_sums(xhat, dy)}


def _autograd_quotient(x: Array, gamma: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return the gradient of (x - mean) / sqrt(var(x) + epsilon), as torch derives it."""
    count = x.shape[-1]
    mean = np.mean(x, axis=-1, keepdims=True)
    variance = np.var(x, axis=-1, keepdims=True)
    shifted = variance + epsilon
    root = np.sqrt(shifted)
    centered = x - mean
    xhat = centered / root
    P = dy * gamma
    direct = P / root
    twice = xhat / root
    weighted = -P * twice
    d_root = np.sum(weighted, axis=-1, keepdims=True)
    d_variance = d_root / (2.0 * root)
    share = d_variance * (2.0 / count)
    through = share * centered
    d_mean = np.sum(-direct, axis=-1, keepdims=True)
    both = through + d_mean / count
    dx = direct + both
    return {"dx": dx, **column_sums(xhat, dy)}


BACKWARD = (layernorm_backward, _linear_backward, _two_products)
GRADIENTS = ("dx", "dgamma", "dbeta")
BUILDS = (
    "correct", "last-two-tiles", "double-subtract", "last-block-only", "tt-train-2025",
    "drop-s1", "bf16-accumulate", "wrong-epsilon", "unbiased-variance", "gamma-shifted-tile",
    "mask-missing", "mean-not-subtracted", "mean-last-tile-missing",
    "dgamma-last-row-tile-missing", "tile-missing", "rstd-off-1e-3", "stale-register",
    "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
"""Its emulated builds in order; gonogo.emulator.norms says what they do."""

FORWARD_ONLY = ("mean-last-tile-missing",)
BACKWARD_ONLY = (
    "last-two-tiles", "double-subtract", "last-block-only", "drop-s1",
    "dgamma-last-row-tile-missing",
)  # fmt: skip
"""The mutants of one of the two kernels (a test compares them). `tt-train-2025` is none of them,
although its faults are in the backward kernel: it is a release of a library, whose forward kernel
is right, and a suite of both kernels runs on it."""

KERNELS = (
    Kernel(
        "layernorm_fw",
        layernorm,
        ("y", "mean", "rstd"),
        ways=tuple(partial(norm, axis=-1) for norm in other_norms()),
        downstream=("linear",),
        wormhole=wormhole.LAYERNORM,
        builds=BUILDS,
        unchanged_by=BACKWARD_ONLY,
    ),
    Kernel(
        "layernorm_bw",
        layernorm_backward,
        GRADIENTS,
        ways=BACKWARD[1:],
        without_statistics=Kernel(
            "layernorm_bw_own",
            partial(_own_statistics, layernorm_backward),
            GRADIENTS,
            ways=(
                _after_forward,
                *(partial(_own_statistics, way) for way in BACKWARD[1:]),
                _autograd,
                _autograd_quotient,
            ),
            wormhole=wormhole.LAYERNORM_BACKWARD_OWN,
        ),
        wormhole=wormhole.BACKWARD,
        builds=BUILDS,
        unchanged_by=FORWARD_ONLY,
    ),
)
