"""Maximum and mean of the windows of an image's last two axes. x: (N, C, H, W)."""

from __future__ import annotations

from functools import partial

import numpy as np

from gonogo import fields
from gonogo.errors import FieldError
from gonogo.kernels.convolution import places_of, windows_of
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameter, Parameters, Shape


def _padded(x: Array, padding: int, value: float) -> Array:
    sides = (padding, padding)
    return np.pad(x, ((0, 0), (0, 0), sides, sides), constant_values=value)


def max_pool(x: Array, size: int, stride: int, padding: int) -> Outputs:
    """Return the maximum of each window; padding is -inf."""
    windows = windows_of(_padded(x, padding, -np.inf), (size, size), stride)
    y = np.max(windows, axis=(-2, -1))
    return {"y": y}


def _zero_padded(x: Array, size: int, stride: int, padding: int) -> Outputs:
    """The padding is 0, which exceeds negative values."""
    windows = windows_of(_padded(x, max(padding, 1), 0.0), (size, size), stride)
    windows = windows if padding else windows[:, :, : x.shape[2], : x.shape[3]]
    y = np.max(windows, axis=(-2, -1))
    return {"y": y}


def average_pool(x: Array, size: int, stride: int, padding: int) -> Outputs:
    """Return the mean of each window; padding is 0 and counts, as torch's does."""
    windows = windows_of(_padded(x, padding, 0.0), (size, size), stride)
    y = np.mean(windows, axis=(-2, -1))
    return {"y": y}


def _by_reciprocal(x: Array, size: int, stride: int, padding: int) -> Outputs:
    windows = windows_of(_padded(x, padding, 0.0), (size, size), stride)
    total = np.sum(windows, axis=(-2, -1))
    y = total * (1 / size**2)
    return {"y": y}


def _shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    if len(shape) != 4:
        raise FieldError("shape", list(shape), "is no image's", limit="[N, C, H, W]")
    size, stride, padding = (parameters[name] for name in ("size", "stride", "padding"))
    if 2 * padding > size:
        limit = "at most half the size"
        raise FieldError("parameters.padding", padding, "gives windows without data", limit=limit)
    places = (places_of(length, size, stride, padding) for length in shape[2:])
    return {"x": shape, "y": (*shape[:2], *places)}


PARAMETERS = {
    "size": Parameter(partial(fields.integer, least=1), 3, "rows and columns of a window"),
    "stride": Parameter(partial(fields.integer, least=1), 2, "elements from window to window"),
    "padding": Parameter(partial(fields.integer, least=0), 1, "elements on each side of an axis"),
}
KERNELS = (
    Kernel(
        "max_pool2d",
        max_pool,
        ("y",),
        _shapes,
        parameters=PARAMETERS,
        example=(2, 16, 32, 32),
        mistakes={"zero-padded": _zero_padded},
    ),
    Kernel(
        "average_pool2d",
        average_pool,
        ("y",),
        _shapes,
        ways=(_by_reciprocal,),
        parameters=PARAMETERS,
        example=(2, 16, 32, 32),
    ),
)
