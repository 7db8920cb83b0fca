"""The tensors of a test in torch, and what torch can't do with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch_setup import torch

FORMATS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
FIXED = {"accumulate": "fp32", "fidelity": "hifi4"}
"""Numerics that torch offers no choice of: fp32 accumulators, exact products."""

Array = NDArray[np.float32]
Tensor = Any


class CannotServe(ValueError):
    """The test asks for something that this build can't do."""


def tensor(test: Mapping[str, Any], name: str, array: Array, device: str) -> Tensor:
    """Return an input on the device, in its format; x and dy as rows.

    The format represents its values exactly.
    """
    formats = test.get("numerics", {}).get("input", "bf16")
    format_name = formats if isinstance(formats, str) else formats.get(name, "bf16")
    if format_name not in FORMATS:
        raise CannotServe(f"numerics.input: torch has no {format_name}, only {', '.join(FORMATS)}")
    flat = array.reshape(-1, test["shape"][-1]) if name in ("x", "dy") else array.reshape(-1)
    dtype = FORMATS[format_name]
    if device != "cpu" and name in ("mean", "rstd"):
        dtype = torch.float32  # a GPU's kernels return and expect this format
    return torch.from_numpy(flat).to(device=device, dtype=dtype)


def check(test: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Raise CannotServe for numerics, memory or programs that torch can't provide."""
    numerics = test.get("numerics", {})
    for name, only in FIXED.items():
        if numerics.get(name, only) != only:
            raise CannotServe(f"numerics.{name}: torch has {only} only, not {numerics[name]}")
    for name in ("memory", "program"):
        if name in test:
            raise CannotServe(f"{name}: torch has the default only")
    output = numerics.get("output", "bf16")
    if FORMATS.get(output) is not tensors["x"].dtype:
        raise CannotServe(
            "numerics.output: torch gives its result in the format of x, "
            f"{format_of(tensors['x'])}, not in {output}"
        )


def check_gradient(t: Mapping[str, Tensor]) -> None:
    """Raise CannotServe where dy hasn't the format of x, which torch requires."""
    x, dy = t["x"], t["dy"]
    if dy.dtype is not x.dtype:
        raise CannotServe(
            f"numerics.input: torch takes dy in the format of x, {format_of(x)}, "
            f"not in {format_of(dy)}"
        )


def format_of(tensor: Tensor) -> str:
    """Return the name of a tensor's format."""
    return next(name for name, dtype in FORMATS.items() if dtype is tensor.dtype)


def array(tensor: Tensor, shape: tuple[int, ...]) -> Array:
    """Return a new float32 array with the tensor's values."""
    return np.array(
        tensor.detach().to(device="cpu", dtype=torch.float32).numpy().reshape(shape), order="C"
    )
