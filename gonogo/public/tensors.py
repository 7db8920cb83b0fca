"""Tensors of any library as NumPy arrays, with the number format of their values.

This module runs in other people's interpreters (Python 3.10). It imports the standard library at
first, and NumPy when a tensor is read. It never imports torch or ttnn: their tensors can't exist
before they are imported.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__tracebackhide__ = True
"""pytest shows the test's line, and none of ours."""

FORMATS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "double": "fp64",
    "bfloat8_b": "bfp8_b",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
}
"""dtype names of NumPy, torch, ttnn and ml_dtypes for the formats that GoNoGo knows."""
KERNEL_FORMATS = ("fp32", "bf16", "fp16", "bfp8_b", "fp8_e4m3", "fp8_e5m2")
"""Formats that the numerics of a test can name."""
TELLING_VALUES = 16
"""This many different values must fit bf16 before a float32 array counts as bf16: a few small
whole numbers say nothing."""


@dataclass(frozen=True)
class Tensor:
    """A tensor's exact values in float32 or float64.

    Only whole numbers above 2^53 are rounded.
    """

    values: NDArray[Any]
    dtype: str
    """The name that its library uses."""
    format: str | None
    """One of FORMATS' values: the dtype's, or bf16 if all values of a float32 tensor fit it;
    None for whole numbers."""


def read(value: Any, name: str) -> Tensor:
    """Read a NumPy array, anything that NumPy can read, a torch tensor or a ttnn tensor.

    Raises TypeError if it holds no real numbers.
    """
    import numpy as np

    kind = ""
    if is_ttnn(value):
        kind = str(value.dtype)
        value = _of_ttnn(sys.modules["ttnn"], value)
    if hasattr(value, "detach"):  # torch, without importing it
        kind = kind or str(getattr(value, "dtype", "torch.float32"))
        value = value.detach().cpu()
        if getattr(value, "is_complex", lambda: False)():
            raise TypeError(f"{name} must be an array of real numbers; got {kind}")
        wide = kind.rpartition(".")[2] in ("float64", "double", "int64", "int32", "long", "int")
        value = (value.double() if wide else value.float()).numpy()  # NumPy knows no bfloat16
    if not hasattr(value, "__array__") and hasattr(value, "__dlpack__"):
        value = np.from_dlpack(value)
    try:
        array = np.asarray(value)
    except ValueError as problem:  # a list whose rows have different lengths
        raise TypeError(f"{name} can't be read as an array: {problem}") from None
    # V: the kind of ml_dtypes' bfloat16
    if array.dtype.kind not in "fiubV" or array.dtype.names is not None:
        raise TypeError(
            f"{name} must be an array of real numbers; got {type(value).__name__} of {array.dtype}"
        )
    kind = kind or str(array.dtype)
    keep = array.dtype.kind in "iub" or (array.dtype.kind == "f" and array.dtype.itemsize > 4)
    values = np.ascontiguousarray(array, dtype=np.float64 if keep else np.float32).reshape(
        array.shape
    )
    known = FORMATS.get(kind.rpartition(".")[2].lower())
    if known == "fp32" and fits_bf16(values):
        known = "bf16"
    return Tensor(values, kind, known)


def read_for_kernel(value: Any, name: str) -> Tensor:
    """Read an input or output of a kernel that is to be judged.

    Raises TypeError as `read` does, and for floats of a format that has no arithmetic here, such as
    float4: another format's rounding would be its ruler.
    """
    tensor = read(value, name)
    refuse_unknown(tensor, name)
    return tensor


def refuse_unknown(tensor: Tensor, name: str) -> None:
    """Raise TypeError for a tensor of floats whose format isn't one of FORMATS' values."""
    if tensor.format is None and "float" in tensor.dtype.lower():
        # the first of each format's names
        dtypes = {form: dtype for dtype, form in reversed(FORMATS.items())}
        raise TypeError(
            f"{name}: is {tensor.dtype}, a format that can't be judged"
            f" (allowed: {', '.join(reversed(dtypes.values()))})"
        )


def kernel_formats(read: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the formats of tensors, as far as a test can name them; float64 counts as fp32."""
    formats = {name: "fp32" if one.format == "fp64" else one.format for name, one in read.items()}
    return {name: form for name, form in formats.items() if form in KERNEL_FORMATS}


def is_ttnn(value: Any) -> bool:
    """Return whether a value is a ttnn tensor."""
    ttnn = sys.modules.get("ttnn")
    return ttnn is not None and isinstance(value, ttnn.Tensor)


def _of_ttnn(ttnn: Any, value: Any) -> Any:
    """Return a ttnn tensor in float32, which can represent all of ttnn's formats."""
    if not hasattr(ttnn, "to_dtype") or not hasattr(value, "to_numpy"):
        return ttnn.to_torch(value)
    import numpy as np

    host = ttnn.to_dtype(ttnn.from_device(value), ttnn.float32).to(ttnn.ROW_MAJOR_LAYOUT)
    return np.array(host.to_numpy(), np.float32).reshape(tuple(value.shape))


def fits_bf16(values: NDArray[Any]) -> bool:
    """Return whether a float32 array has values that were computed in bf16 and widened.

    Tests widen them (`.float()`) before they compare.
    """
    import numpy as np

    if values.dtype != np.float32 or values.size < TELLING_VALUES:
        return False
    bits = values.reshape(-1).view(np.uint32)
    if ((bits & np.uint32(0xFFFF)) != 0).any():
        return False
    return bool(
        np.unique(bits[: 64 * TELLING_VALUES]).size >= TELLING_VALUES
        or np.unique(bits).size >= TELLING_VALUES
    )
