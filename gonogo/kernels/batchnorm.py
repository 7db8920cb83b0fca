"""Batch norm in training, its gradient, batch norm in inference, and instance norm.

The shape is torch's: samples, channels, then the other dimensions: (N, C, H, W), also (N, C).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gonogo.errors import FieldError
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameters, Shape
from gonogo.kernels.normalization import (
    USUAL,
    VARIANCES,
    Rows,
    other_norms,
    two_pass,
)

VARIANCE = {"regime": "uniform", "low": 0.25, "high": 4.0}


def _reduced(x: Array) -> tuple[int, ...]:
    """Return the axes of all values of a channel."""
    return (0, *range(2, len(x.shape)))


def _per_channel(x: Array, *vectors: Array) -> list[Array]:
    """Return vectors (C,) in the shape that multiplies x: (1, C, 1, ...)."""
    shape = (1, -1, *(1,) * (len(x.shape) - 2))
    return [vector.reshape(shape) for vector in vectors]


def _batchnorm(
    norm: Callable[..., Outputs], x: Array, gamma: Array, beta: Array, epsilon: Array
) -> Outputs:
    return norm(x, *_per_channel(x, gamma, beta), epsilon, _reduced(x))


def batchnorm(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return y = gamma (x - mean) rstd + beta, with the mean and rstd of each channel.

    x: (N, C, ...). gamma, beta: (C,). mean, rstd: (1, C, 1, ...).
    """
    return _batchnorm(USUAL, x, gamma, beta, epsilon)


def batchnorm_backward(x: Array, gamma: Array, dy: Array, epsilon: Array) -> Outputs:
    """Return the gradients of batch norm in training, which computes its statistics itself.

    s1 = mean(dy) and s2 = mean(dy x^) of each channel: dx = gamma rstd (dy - s1 - x^ s2), dgamma =
    sum(dy x^) and dbeta = sum(dy), both (C,).
    """
    return _gradients(_textbook, two_pass, x, gamma, dy, epsilon)


def _gradients(
    way: Callable[[Rows, Array, Array, Array], tuple[Array, Array]],
    variance_of: Callable[..., tuple[Rows, Array]],
    x: Array,
    gamma: Array,
    dy: Array,
    epsilon: Array,
) -> Outputs:
    """Return the gradients by a way to compute dx and dgamma."""
    axes = _reduced(x)
    (factor,) = _per_channel(x, gamma)
    rows, variance = variance_of(x, axes)
    root = np.sqrt(variance + epsilon)
    rstd = 1.0 / root
    dx, dgamma = way(rows, rstd, factor, dy)
    return {"dx": dx, "dgamma": dgamma.reshape(gamma.shape), "dbeta": np.sum(dy, axis=axes)}


def _textbook(rows: Rows, rstd: Array, factor: Array, dy: Array) -> tuple[Array, Array]:
    axes = _reduced(dy)
    xhat = rows.centered * rstd
    dy_xhat = dy * xhat
    s1 = np.mean(dy, axis=axes, keepdims=True)
    s2 = np.mean(dy_xhat, axis=axes, keepdims=True)
    share = xhat * s2
    dy_centered = dy - s1
    inner = dy_centered - share
    scale = factor * rstd
    dx = inner * scale
    return dx, np.sum(dy_xhat, axis=axes)


def _by_sums(rows: Rows, rstd: Array, factor: Array, dy: Array) -> tuple[Array, Array]:
    """Return (dy - s1 - (x - mean) k) rstd gamma, with k = sum(dy (x - mean)) rstd^2 / N: ATen."""
    axes = _reduced(dy)
    dy_centered = dy * rows.centered
    total = np.sum(dy_centered, axis=axes, keepdims=True)
    count = dy.size // dy.shape[1]
    k = total * rstd * rstd / count
    s1 = np.mean(dy, axis=axes, keepdims=True)
    inner = dy - s1 - rows.centered * k
    dx = inner * rstd * factor
    dgamma = total * rstd
    return dx, dgamma


def batchnorm_inference(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: Array
) -> Outputs:
    """Return y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with given statistics (C,)."""
    gamma, beta, mean, variance = _per_channel(x, gamma, beta, mean, variance)
    centered = x - mean
    shifted = variance + epsilon
    root = np.sqrt(shifted)
    rstd = 1.0 / root
    xhat = centered * rstd
    weighted = xhat * gamma
    y = weighted + beta
    return {"y": y}


def _folded(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: Array
) -> Outputs:
    """Return x scale + shift, as inference engines fold the statistics into two vectors."""
    gamma, beta, mean, variance = _per_channel(x, gamma, beta, mean, variance)
    root = np.sqrt(variance + epsilon)
    scale = gamma * (1.0 / root)
    shift = beta - mean * scale
    y = x * scale + shift
    return {"y": y}


def _scaled_centered(
    x: Array, gamma: Array, beta: Array, mean: Array, variance: Array, epsilon: Array
) -> Outputs:
    """Return (x - mean) (gamma rstd) + beta, as flax does."""
    gamma, beta, mean, variance = _per_channel(x, gamma, beta, mean, variance)
    root = np.sqrt(variance + epsilon)
    scale = gamma * (1.0 / root)
    y = (x - mean) * scale + beta
    return {"y": y}


def _instancenorm(
    norm: Callable[..., Outputs], x: Array, gamma: Array, beta: Array, epsilon: Array
) -> Outputs:
    axes = tuple(range(2, len(x.shape)))
    return {"y": norm(x, *_per_channel(x, gamma, beta), epsilon, axes)["y"]}


def instancenorm(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return y = gamma (x - mean) rstd + beta, with the mean and rstd of each sample's channel.

    x: (N, C, L, ...). gamma, beta: (C,).
    """
    return _instancenorm(USUAL, x, gamma, beta, epsilon)


def channels(least: int, *tensors: str) -> Callable[[Shape, Parameters], dict[str, Shape]]:
    """Return the function of the tensors' shapes: those of x, or (C,).

    least: the axes that x has to have.
    """

    def shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
        if len(shape) < least:
            limit = "[N, C, ...]" if least == 2 else "[N, C, L, ...]"
            raise FieldError("shape", list(shape), "has too few dimensions", limit=limit)
        return {name: shape if name in FULL else shape[1:2] for name in tensors}

    return shapes


FULL = ("x", "dy", "y", "dx")
"""Tensors of the size of x; others have a value per channel."""
BACKWARD = tuple(
    partial(_gradients, way, variance) for way in (_textbook, _by_sums) for variance in VARIANCES
)
KERNELS = (
    Kernel(
        "batchnorm_fw",
        batchnorm,
        ("y", "mean", "rstd"),
        channels(2, "x", "gamma", "beta", "y", "mean", "rstd"),
        ways=tuple(partial(_batchnorm, norm) for norm in other_norms()),
        example=(4, 64, 8, 8),
        block_formats=False,
    ),
    Kernel(
        "batchnorm_bw",
        batchnorm_backward,
        ("dx", "dgamma", "dbeta"),
        channels(2, "x", "gamma", "dy", "dx", "dgamma", "dbeta"),
        ways=BACKWARD[1:],
        example=(4, 64, 8, 8),
        block_formats=False,
    ),
    Kernel(
        "batchnorm_inference",
        batchnorm_inference,
        ("y",),
        channels(2, "x", "gamma", "beta", "mean", "variance", "y"),
        ways=(_folded, _scaled_centered),
        regimes={"variance": VARIANCE},
        example=(4, 64, 8, 8),
        block_formats=False,
    ),
    Kernel(
        "instancenorm",
        instancenorm,
        ("y",),
        channels(3, "x", "gamma", "beta", "y"),
        ways=tuple(partial(_instancenorm, norm) for norm in other_norms()),
        example=(4, 64, 8, 8),
        block_formats=False,
    ),
)
