"""Group norm, forward, of [N, C, ...]: LayerNorm over each sample's groups of channels.

gamma and beta have one value per channel.

The shape is torch's: samples, channels, then the other dimensions ([N, C, H, W], also [N, C]). The
elements of a group of channels are contiguous there, so a group is a row of the matrix that is
normalized: (N * num_groups, C / num_groups * H * W). Where a kernel uses another order (ttnn's [N,
1, H*W, C]), its executor converts.
"""

from __future__ import annotations

from math import prod

from gonogo.errors import FieldError
from gonogo.spec import fields
from gonogo.spec.kernels.kernel import Extent, Kernel, Parameter, Parameters, Shape

BUILDS = (
    "correct", "bf16-accumulate", "wrong-epsilon", "epsilon-dropped", "unbiased-variance",
    "mean-square", "mean-not-subtracted", "padded-count", "last-tile-only", "last-tile-missing",
    "tile-missing", "mask-missing", "stale-partial", "stale-register", "rstd-off-1e-3",
    "group-boundaries", "half-groups", "gamma-neighbour", "beta-neighbour", "beta-missing",
    "power-of-two-outliers", "nan-tile", "hang", "crash",
)  # fmt: skip
"""The builds in gonogo.emulator, in that order (a test compares them)."""

GROUPS = Parameter(
    lambda value, path: fields.integer(value, path, least=1),
    1,
    "groups of channels that are normalized together",
)


def extent(shape: Shape, parameters: Parameters, path: str) -> Extent:
    """Return the matrix of a shape; its rows are the groups of every sample.

    Raises FieldError for a shape without channels, or if the groups don't divide the channels.
    """
    groups = parameters.get("num_groups", GROUPS.default)
    if len(shape) < 2:
        raise FieldError(
            fields.join(path, "shape"), list(shape), "has no channels", limit="[N, C, ...]"
        )
    samples, channels = shape[:2]
    if channels % groups:
        where = fields.join(fields.join(path, "parameters"), "num_groups")
        raise FieldError(
            where, groups, "doesn't divide the channels", limit=f"a divisor of {channels}"
        )
    return Extent(
        samples * groups, channels // groups * prod(shape[2:]), (samples, groups), (channels,)
    )


KERNELS = (
    Kernel(
        "groupnorm_fw",
        ("y", "mean", "rstd"),
        ("x", "gamma", "beta"),
        builds=BUILDS,
        parameters={"num_groups": GROUPS},
        extent=extent,
        block_formats=False,
    ),
)
