"""Group norm over the channels of each group and all positions, and its gradient.

The shape is torch's: samples, channels, then the other dimensions ([N, C, H, W], also [N, C]). The
elements of a group of channels are contiguous there, so a group is a row of the matrix that is
normalized. Where a kernel uses another order (ttnn's [N, 1, H*W, C]), its executor converts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels import wormhole
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape
from gonogo.kernels.normalization import (
    USUAL,
    VARIANCES,
    Rows,
    other_norms,
    two_pass,
)


def _groupnorm(
    norm: Callable[..., Outputs],
    x: Array,
    gamma: Array,
    beta: Array,
    epsilon: Array,
    num_groups: int,
) -> Outputs:
    count, channels = x.shape[:2]
    grouped = (count, num_groups, channels // num_groups, -1)
    per_channel = (1, num_groups, channels // num_groups, 1)
    gamma, beta = gamma.reshape(per_channel), beta.reshape(per_channel)
    outputs = norm(x.reshape(grouped), gamma, beta, epsilon, (2, 3))
    return {**outputs, "y": outputs["y"].reshape(x.shape)}


def groupnorm(x: Array, gamma: Array, beta: Array, epsilon: Array, num_groups: int) -> Outputs:
    """Return y = gamma (x - mean) rstd + beta, with the mean and rstd of each group of channels.

    x: (N, C, ...). gamma, beta: (C,). mean, rstd: (N, num_groups, 1, 1).
    """
    return _groupnorm(USUAL, x, gamma, beta, epsilon, num_groups)


def groupnorm_backward(
    x: Array, gamma: Array, dy: Array, epsilon: Array, num_groups: int
) -> Outputs:
    """Return the gradients of group norm, which computes its statistics itself.

    With P = dy gamma, s1 = mean(P) and s2 = mean(P x^) of each group: dx = rstd (P - s1 - x^ s2),
    dgamma = sum(dy x^) and dbeta = sum(dy) of each channel, both (C,).
    """
    return _gradients(_textbook, two_pass, x, gamma, dy, epsilon, num_groups)


def _gradients(
    way: Callable[[Rows, Array, Array, Array], tuple[Array, Array, Array]],
    variance_of: Callable[..., tuple[Rows, Array]],
    x: Array,
    gamma: Array,
    dy: Array,
    epsilon: Array,
    num_groups: int,
) -> Outputs:
    """Return the gradients by a way, a function of tensors (N, groups, channels, positions)."""
    count, channels = x.shape[:2]
    shape = (count, num_groups, channels // num_groups, -1)
    grouped_x, grouped_dy = x.reshape(shape), dy.reshape(shape)
    rows, variance = variance_of(grouped_x, (2, 3))
    root = np.sqrt(variance + epsilon)
    rstd = 1.0 / root
    dx, dgamma, dbeta = way(rows, rstd, gamma, grouped_dy)
    vectors = {"dgamma": dgamma.reshape(gamma.shape), "dbeta": dbeta.reshape(gamma.shape)}
    return {"dx": dx.reshape(x.shape), **vectors}


def _textbook(rows: Rows, rstd: Array, gamma: Array, dy: Array) -> tuple[Array, Array, Array]:
    xhat = rows.centered * rstd
    P = dy * gamma.reshape((1, dy.shape[1], -1, 1))
    P_xhat = P * xhat
    s1 = np.mean(P, axis=(2, 3), keepdims=True)
    s2 = np.mean(P_xhat, axis=(2, 3), keepdims=True)
    share = xhat * s2
    P_centered = P - s1
    inner = P_centered - share
    dx = inner * rstd
    term = dy * xhat
    dgamma, dbeta = np.sum(term, axis=(0, 3)), np.sum(dy, axis=(0, 3))
    return dx, dgamma, dbeta


def _linear(rows: Rows, rstd: Array, gamma: Array, dy: Array) -> tuple[Array, Array, Array]:
    """Return dx as rstd P + b x + c from the sums of dy and dy x of each channel, as ATen does."""
    weight = gamma.reshape((1, dy.shape[1], -1, 1))
    dy_x = np.sum(dy * rows.x, axis=3, keepdims=True)
    dy_1 = np.sum(dy, axis=3, keepdims=True)
    P_x = np.sum(dy_x * weight, axis=2, keepdims=True)
    P_1 = np.sum(dy_1 * weight, axis=2, keepdims=True)
    count = rows.x.shape[2] * rows.x.shape[3]
    b = (P_1 * rows.mean - P_x) * (rstd * rstd * rstd) * (1.0 / count)
    c = -b * rows.mean - P_1 * rstd * (1.0 / count)
    factor = rstd * weight
    dx = factor * dy + b * rows.x + c
    term = (dy_x - dy_1 * rows.mean) * rstd
    return dx, np.sum(term, axis=0), np.sum(dy_1, axis=0)


GROUPS = Parameter(
    lambda value, path: fields.integer(value, path, least=1),
    1,
    "groups of channels that are normalized together",
)
BUILDS = (
    "correct", "bf16-accumulate", "wrong-epsilon", "epsilon-dropped", "unbiased-variance",
    "mean-square", "mean-not-subtracted", "padded-count", "last-tile-only", "last-tile-missing",
    "tile-missing", "mask-missing", "stale-partial", "stale-register", "rstd-off-1e-3",
    "group-boundaries", "half-groups", "gamma-neighbour", "beta-neighbour", "beta-missing",
    "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
"""Its emulated builds in order; gonogo.emulator.norms says what they do."""


def _groups(shape: Shape, parameters: Parameters) -> Mapping[str, Shape]:
    """Return the shapes of torch's tensors, [N, C, ...]; statistics are those of groups."""
    if len(shape) < 2:
        raise FieldError("shape", list(shape), "has no channels", limit="[N, C, ...]")
    groups = parameters["num_groups"]
    if shape[1] % groups:
        where, limit = "parameters.num_groups", f"a divisor of {shape[1]}"
        raise FieldError(where, groups, "doesn't divide the channels", limit=limit)
    return {
        **dict.fromkeys(("x", "dy", "y", "dx"), shape),
        **dict.fromkeys(("gamma", "beta", "dgamma", "dbeta"), shape[1:2]),
        **dict.fromkeys(("mean", "rstd"), (shape[0], groups)),
    }


BACKWARD = tuple(
    partial(_gradients, way, variance) for way in (_textbook, _linear) for variance in VARIANCES
)
KERNELS = (
    Kernel(
        "groupnorm_fw",
        groupnorm,
        ("y", "mean", "rstd"),
        _groups,
        ways=tuple(partial(_groupnorm, norm) for norm in other_norms()),
        parameters={"num_groups": GROUPS},
        example=(4, 64, 8, 8),
        groups=lambda shape, parameters: shape[0] * int(parameters["num_groups"]),
        block_formats=False,
        wormhole=wormhole.GROUPNORM,
        builds=BUILDS,
    ),
    Kernel(
        "groupnorm_bw",
        groupnorm_backward,
        ("dx", "dgamma", "dbeta"),
        _groups,
        ways=BACKWARD[1:],
        parameters={"num_groups": GROUPS},
        example=(4, 64, 8, 8),
        groups=lambda shape, parameters: shape[0] * int(parameters["num_groups"]),
        block_formats=False,
    ),
)
