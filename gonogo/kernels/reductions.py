"""Reductions over the last axis, and the cumulative sum along it. x: (..., N)."""

from __future__ import annotations

from functools import partial

import numpy as np

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape

BLOCK = 32
"""Elements that a blocked scan adds at once."""


def total(x: Array) -> Outputs:
    """Return the sum."""
    y = np.sum(x, axis=-1)
    return {"y": y}


def mean(x: Array) -> Outputs:
    """Return sum / N."""
    y = np.mean(x, axis=-1)
    return {"y": y}


def _by_reciprocal(x: Array) -> Outputs:
    """Return sum (1/N)."""
    y = np.sum(x, axis=-1) * (1 / x.shape[-1])
    return {"y": y}


def variance(x: Array, ddof: int) -> Outputs:
    """Return sum (x - mean)^2 / (N - ddof)."""
    mean = np.mean(x, axis=-1, keepdims=True)
    centered = x - mean
    square = centered * centered
    y = np.sum(square, axis=-1) / (x.shape[-1] - ddof)
    return {"y": y}


def _updated(x: Array, ddof: int) -> Outputs:
    """Return the variance by Welford's updates."""
    y = np.var(x, axis=-1, ddof=ddof)
    return {"y": y}


def _one_pass(x: Array, ddof: int) -> Outputs:
    """Return the variance from E[x^2] - mean^2, which cancels where the mean is large."""
    count = x.shape[-1]
    mean = np.mean(x, axis=-1)
    mean_square = np.mean(x * x, axis=-1)
    biased = mean_square - mean * mean
    y = biased * (count / (count - ddof))
    return {"y": y}


def maximum(x: Array) -> Outputs:
    """Return the maximum."""
    y = np.max(x, axis=-1)
    return {"y": y}


def _maximum_of_sizes(x: Array) -> Outputs:
    """The largest size is taken."""
    y = np.max(np.abs(x), axis=-1)
    return {"y": y}


def cumulative_sum(x: Array) -> Outputs:
    """Return the sums of the first element, of the first two, and so on."""
    y = np.cumsum(x, axis=-1)
    return {"y": y}


def _blocked_scan(x: Array) -> Outputs:
    """Return the sums within blocks, each with the total of the blocks before it."""
    sums = np.cumsum(x[..., :BLOCK], axis=-1)
    parts = [sums]
    for start in range(BLOCK, x.shape[-1], BLOCK):
        carried = parts[-1][..., -1:]
        parts.append(np.cumsum(x[..., start : start + BLOCK], axis=-1) + carried)
    y = np.concatenate(parts, axis=-1)
    return {"y": y}


def _exclusive(x: Array) -> Outputs:
    """Each sum leaves out its own element."""
    y = np.cumsum(x, axis=-1) - x
    return {"y": y}


def _reduced(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    if shape[-1] <= parameters.get("ddof", 0):
        limit = f"more than ddof {parameters['ddof']} elements in the last axis"
        raise FieldError("shape", list(shape), "is too small", limit=limit)
    return {"x": shape, "y": shape[:-1]}


def _along(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    return {"x": shape, "y": shape}


DDOF = {
    "ddof": Parameter(
        partial(fields.integer, least=0, most=1), 1, "what N is lessened by in the divisor"
    )
}
KERNELS = (
    Kernel("sum", total, ("y",), _reduced),
    Kernel("mean", mean, ("y",), _reduced, ways=(_by_reciprocal,)),
    Kernel("variance", variance, ("y",), _reduced, ways=(_updated, _one_pass), parameters=DDOF),
    Kernel("max", maximum, ("y",), _reduced, mistakes={"of-sizes": _maximum_of_sizes}),
    Kernel(
        "cumsum",
        cumulative_sum,
        ("y",),
        _along,
        ways=(_blocked_scan,),
        mistakes={"exclusive": _exclusive},
    ),
)
