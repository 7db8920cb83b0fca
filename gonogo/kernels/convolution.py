"""Convolutions (cross-correlations, as in every framework) by windows and a matrix product.

x: (N, C, ...). weight: (channels, C, size, ...). bias: (channels,). Both sides are padded with 0.
"""

from __future__ import annotations

from functools import partial
from math import prod

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape


def windows_of(x: Array, size: Shape, stride: int) -> Array:
    """Return the windows of the last axes: (..., places along each axis, *size)."""
    rank = len(size)
    windows: Array = sliding_window_view(x, size, axis=tuple(range(-rank, 0)))
    steps = (slice(None, None, stride),) * rank
    return windows[(..., *steps, *(slice(None),) * rank)]


def convolution(x: Array, weight: Array, bias: Array, stride: int, padding: int) -> Outputs:
    """Return y (N, channels, places along each axis): each window times the weights, and bias."""
    size = weight.shape[2:]
    rank = len(size)
    padded = np.pad(x, ((0, 0), (0, 0), *((padding, padding),) * rank))
    windows = windows_of(padded, size, stride)
    columns = np.moveaxis(windows, 1, rank + 1)  # (N, places, C, *size)
    places = columns.shape[: rank + 1]
    columns = columns.reshape(*places, prod(weight.shape[1:]))
    product = columns @ weight.reshape(weight.shape[0], -1).T
    biased = product + bias
    y = np.moveaxis(biased, -1, 1)
    return {"y": y}


def _by_taps(x: Array, weight: Array, bias: Array, stride: int, padding: int) -> Outputs:
    """Return the sum of one product per place in the window, as direct convolutions compute it."""
    size = weight.shape[2:]
    rank = len(size)
    padded = np.pad(x, ((0, 0), (0, 0), *((padding, padding),) * rank))
    windows = np.moveaxis(windows_of(padded, size, stride), 1, -1)  # (N, places, *size, C)
    total = None
    for tap in np.ndindex(*size):
        product = windows[(..., *tap, slice(None))] @ weight[(slice(None), slice(None), *tap)].T
        total = product if total is None else total + product
    y = np.moveaxis(total + bias, -1, 1)
    return {"y": y}


def _flipped(x: Array, weight: Array, bias: Array, stride: int, padding: int) -> Outputs:
    """The weights are flipped: a convolution in the sense of mathematics."""
    flipped = weight[(..., *(slice(None, None, -1),) * (len(weight.shape) - 2))]
    return convolution(x, flipped, bias, stride, padding)


def places_of(length: int, size: int, stride: int, padding: int) -> int:
    """Return the number of windows along an axis. Raises FieldError where none fits."""
    if length + 2 * padding < size:
        limit = f"<= {length + 2 * padding}, the axis with its padding"
        raise FieldError("parameters.size", size, "is too large", limit=limit)
    return (length + 2 * padding - size) // stride + 1


def _shapes(shape: Shape, parameters: Parameters, *, rank: int) -> dict[str, Shape]:
    if len(shape) != rank + 2:
        limit = "[N, C, L]" if rank == 1 else "[N, C, H, W]"
        raise FieldError("shape", list(shape), "is no convolution's", limit=limit)
    size, stride, padding = (parameters[name] for name in ("size", "stride", "padding"))
    channels = parameters["channels"] or shape[1]
    places = (places_of(length, size, stride, padding) for length in shape[2:])
    weight = (channels, shape[1], *(size,) * rank)
    y = (shape[0], channels, *places)
    return {"x": shape, "weight": weight, "bias": (channels,), "y": y}


PARAMETERS = {
    "channels": Parameter(
        partial(fields.integer, least=0), 0, "channels of the output; 0: as many as of x"
    ),
    "size": Parameter(partial(fields.integer, least=1), 3, "elements of a window along an axis"),
    "stride": Parameter(partial(fields.integer, least=1), 1, "elements from window to window"),
    "padding": Parameter(partial(fields.integer, least=0), 1, "zeros on each side of an axis"),
}
KERNELS = tuple(
    Kernel(
        f"conv{rank}d",
        convolution,
        ("y",),
        partial(_shapes, rank=rank),
        ways=(_by_taps,),
        parameters=PARAMETERS,
        example=example,
        mistakes={"flipped": _flipped},
    )
    for rank, example in ((1, (2, 32, 128)), (2, (2, 16, 16, 16)))
)
