"""Quantization: values in fewer bits, with a scale for each row where the range needs it."""

from __future__ import annotations

import numpy as np

from gonogo.graph import quantize
from gonogo.kernels.kernel import Array, Kernel, Outputs, Parameters, Shape

LARGEST_INT8, LARGEST_FP8 = 127.0, 448.0


def to_bf16(x: Array) -> Outputs:
    """Return x in bf16."""
    y = quantize(x, "bf16")
    return {"y": y}


def to_bfp8(x: Array) -> Outputs:
    """Return x in bfp8_b: 16 neighbors of a row share the exponent of the largest."""
    y = quantize(x, "bfp8_b")
    return {"y": y}


def scale_of(x: Array, limit: float) -> Array:
    """Return the scale of each row that maps its largest size to a limit: (..., 1)."""
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    scale = largest / limit
    return scale


def _folded_scale_of(x: Array, limit: float) -> Array:
    """Return the scale as a product with 1 / limit, as compilers make of it."""
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    scale = largest * (1 / limit)
    return scale


def to_int8(x: Array) -> Outputs:
    """Return x / scale as whole numbers up to 127, and the scale of each row."""
    scale = scale_of(x, LARGEST_INT8)
    scaled = x / scale
    rounded = np.rint(scaled)
    y = np.clip(rounded, -LARGEST_INT8, LARGEST_INT8)
    return {"y": y, "scale": scale}


def _to_int8_by_folded(x: Array) -> Outputs:
    scale = _folded_scale_of(x, LARGEST_INT8)
    scaled = x / scale
    rounded = np.rint(scaled)
    y = np.clip(rounded, -LARGEST_INT8, LARGEST_INT8)
    return {"y": y, "scale": scale}


def _to_int8_by_factor(x: Array) -> Outputs:
    """Return x (127 / largest), rounded."""
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    factor = LARGEST_INT8 / largest
    y = np.clip(np.rint(x * factor), -LARGEST_INT8, LARGEST_INT8)
    return {"y": y, "scale": largest / LARGEST_INT8}


def to_fp8(x: Array) -> Outputs:
    """Return x / scale in fp8 (e4m3), whose largest number is 448, and the scale of each row."""
    scale = scale_of(x, LARGEST_FP8)
    scaled = x / scale
    y = quantize(scaled, "fp8_e4m3")
    return {"y": y, "scale": scale}


def _to_fp8_by_folded(x: Array) -> Outputs:
    scale = _folded_scale_of(x, LARGEST_FP8)
    scaled = x / scale
    y = quantize(scaled, "fp8_e4m3")
    return {"y": y, "scale": scale}


def _to_fp8_by_factor(x: Array) -> Outputs:
    """Return x (448 / largest) in fp8."""
    largest = np.max(np.abs(x), axis=-1, keepdims=True)
    factor = LARGEST_FP8 / largest
    y = quantize(x * factor, "fp8_e4m3")
    return {"y": y, "scale": largest / LARGEST_FP8}


def _truncated_int8(x: Array) -> Outputs:
    """The whole numbers are truncated, not rounded."""
    scale = scale_of(x, LARGEST_INT8)
    y = np.trunc(x / scale)
    return {"y": y, "scale": scale}


def _scaled_by_tensor(x: Array, limit: float) -> tuple[Array, Array]:
    scale = np.max(np.abs(x), keepdims=True) / limit
    return x / scale, np.broadcast_to(scale, (*x.shape[:-1], 1))


def _tensor_int8(x: Array) -> Outputs:
    """The scale is that of the whole tensor, not of each row."""
    scaled, scale = _scaled_by_tensor(x, LARGEST_INT8)
    return {"y": np.rint(scaled), "scale": scale}


def _tensor_fp8(x: Array) -> Outputs:
    """The scale is that of the whole tensor, not of each row."""
    scaled, scale = _scaled_by_tensor(x, LARGEST_FP8)
    return {"y": quantize(scaled, "fp8_e4m3"), "scale": scale}


def _shapes(shape: Shape, parameters: Parameters) -> dict[str, Shape]:
    return {"x": shape, "y": shape, "scale": (*shape[:-1], 1)}


KERNELS = (
    Kernel("quantize_bf16", to_bf16, ("y",), _shapes),
    Kernel("quantize_bfp8", to_bfp8, ("y",), _shapes),
    Kernel(
        "quantize_int8",
        to_int8,
        ("y", "scale"),
        _shapes,
        ways=(_to_int8_by_folded, _to_int8_by_factor),
        mistakes={
            "truncated": _truncated_int8,
            "scale-of-tensor": _tensor_int8,
        },
    ),
    Kernel(
        "quantize_fp8",
        to_fp8,
        ("y", "scale"),
        _shapes,
        ways=(_to_fp8_by_folded, _to_fp8_by_factor),
        mistakes={"scale-of-tensor": _tensor_fp8},
    ),
)
