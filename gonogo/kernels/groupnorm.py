"""Group norm over the channels of each group and all positions, and batch norm in training.

The shape is torch's: samples, channels, then the other dimensions ([N, C, H, W], also [N, C]). The
elements of a group of channels are contiguous there, so a group is a row of the matrix that is
normalized. Where a kernel uses another order (ttnn's [N, 1, H*W, C]), its executor converts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels import wormhole
from gonogo.kernels.kernel import Kernel, Parameter, Parameters, Shape
from gonogo.kernels.normalization import USUAL, Array, other_norms

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
"""The builds in gonogo.emulator, in that order (a test compares them)."""


def _channels(shape: Shape, parameters: Parameters) -> Mapping[str, Shape]:
    """Return the shapes of batch norm's tensors, which are those of torch: [N, C, ...]."""
    if len(shape) < 2:
        raise FieldError("shape", list(shape), "has no channels", limit="[N, C, ...]")
    vectors = dict.fromkeys(("gamma", "beta", "mean", "rstd"), shape[1:2])
    return {**dict.fromkeys(("x", "y"), shape), **vectors}


def _groups(shape: Shape, parameters: Parameters) -> Mapping[str, Shape]:
    """Return the shapes of group norm's tensors: statistics are those of a sample's groups."""
    shapes, groups = _channels(shape, parameters), parameters["num_groups"]
    if shape[1] % groups:
        where, limit = "parameters.num_groups", f"a divisor of {shape[1]}"
        raise FieldError(where, groups, "doesn't divide the channels", limit=limit)
    return {**shapes, **dict.fromkeys(("mean", "rstd"), (shape[0], groups))}


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
        "batchnorm_fw",
        batchnorm,
        ("y", "mean", "rstd"),
        _channels,
        ways=tuple(partial(_batchnorm, norm) for norm in other_norms()),
        example=(4, 64, 8, 8),
        block_formats=False,
    ),
)
