"""Group norm over the channels of each group and all positions, and batch norm in training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gonogo.references import wormhole
from gonogo.references.kernel import Kernel
from gonogo.references.normalization import USUAL, Array, other_norms

Outputs = Mapping[str, Array]


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


def _batchnorm(
    norm: Callable[..., Outputs],
    x: Array,
    gamma: Array,
    beta: Array,
    epsilon: Array,
) -> Outputs:
    axes = (0, *range(2, len(x.shape)))
    per_channel = (1, -1, *(1,) * (len(x.shape) - 2))
    gamma, beta = gamma.reshape(per_channel), beta.reshape(per_channel)
    return norm(x, gamma, beta, epsilon, axes)


def batchnorm(x: Array, gamma: Array, beta: Array, epsilon: Array) -> Outputs:
    """Return y = gamma (x - mean) rstd + beta, with the mean and rstd of each channel.

    x: (N, C, ...). gamma, beta: (C,). mean, rstd: (1, C, 1, ...).
    """
    return _batchnorm(USUAL, x, gamma, beta, epsilon)


KERNELS = (
    Kernel(
        "groupnorm_fw",
        groupnorm,
        tuple(partial(_groupnorm, norm) for norm in other_norms()),
        wormhole.GROUPNORM,
    ),
    Kernel("batchnorm_fw", batchnorm, tuple(partial(_batchnorm, norm) for norm in other_norms())),
)
