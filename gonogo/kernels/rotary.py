"""Rotary position embedding: pairs of elements are turned by angles. x: (..., S, D).

cos, sin: (S, D / 2), those of the angle of each position and pair. A pair is made of an element of
each half of D, or of two neighbors.
"""

from __future__ import annotations

import numpy as np

from gonogo.errors import FieldError
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameters, Shape


def rotary(x: Array, cos: Array, sin: Array) -> Outputs:
    """Return (x1 cos - x2 sin, x2 cos + x1 sin) of the halves x1 and x2, as Llama's does."""
    half = x.shape[-1] // 2
    x1, x2 = x[..., :half], x[..., half:]
    first = x1 * cos - x2 * sin
    second = x2 * cos + x1 * sin
    y = np.concatenate([first, second], axis=-1)
    return {"y": y}


def _by_turned_halves(x: Array, cos: Array, sin: Array) -> Outputs:
    """Return x cos + turned sin, with turned = (-x2, x1), as transformers' function does."""
    half = x.shape[-1] // 2
    turned = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
    cosine, sine = (np.concatenate([part, part], axis=-1) for part in (cos, sin))
    along, across = x * cosine, turned * sine
    y = along + across
    return {"y": y}


def rotary_interleaved(x: Array, cos: Array, sin: Array) -> Outputs:
    """Return (x1 cos - x2 sin, x2 cos + x1 sin) of the elements x1 at even places and x2 at odd."""
    x1, x2 = x[..., ::2], x[..., 1::2]
    first = x1 * cos - x2 * sin
    second = x2 * cos + x1 * sin
    y = np.stack([first, second], axis=-1).reshape(x.shape)
    return {"y": y}


def _interleaved(x: Array, cos: Array, sin: Array) -> Outputs:
    """Neighbors are turned, not the halves."""
    return rotary_interleaved(x, cos, sin)


def _halves(x: Array, cos: Array, sin: Array) -> Outputs:
    """Halves are turned, not neighbors."""
    return rotary(x, cos, sin)


def _shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    if len(shape) < 2 or shape[-1] % 2:
        limit = "[..., S, D] with an even D"
        raise FieldError("shape", list(shape), "has no pairs", limit=limit)
    angles = (shape[-2], shape[-1] // 2)
    return {"x": shape, "cos": angles, "sin": angles, "y": shape}


EXAMPLE = (2, 4, 64, 64)
KERNELS = (
    Kernel(
        "rotary",
        rotary,
        ("y",),
        _shapes,
        ways=(_by_turned_halves,),
        example=EXAMPLE,
        mistakes={"interleaved": _interleaved},
    ),
    Kernel(
        "rotary_interleaved",
        rotary_interleaved,
        ("y",),
        _shapes,
        example=EXAMPLE,
        mistakes={"halves": _halves},
    ),
)
