"""The child's only ttnn device, and the transfer of tensors; common to all ttnn kernels.

Standard library, numpy and ttnn only: this runs in the build's interpreter (Python 3.10 or newer).
A real card and the simulated Wormhole use the same code; only the environment that the builds file
sets differs.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

# tt-metal writes a folder `generated` where it runs: ours is private, and deleted with the process
if "GONOGO_HOST_RUN" in os.environ:
    os.environ.setdefault("TT_METAL_LOGS_PATH", os.path.dirname(os.path.abspath(sys.argv[0])))
try:
    import ttnn
except ImportError as problem:
    raise ImportError(
        f"{sys.executable} has no ttnn ({problem}); name an interpreter that has: "
        "python = ... under [executors.ttnn] in the builds file"
    ) from problem

Array = np.ndarray[Any, np.dtype[np.float32]]

DTYPES = {"bf16": "bfloat16", "fp32": "float32", "bfp8_b": "bfloat8_b"}
"""The formats of a test that ttnn has, with its names."""

FIDELITIES = {"lofi": "LoFi", "hifi2": "HiFi2", "hifi3": "HiFi3", "hifi4": "HiFi4"}

DEFAULTS = {
    "input": "bf16",
    "output": "bf16",
    "accumulate": "fp32",
    "fidelity": "hifi4",
    "buffers": "bf16",
    "statistics": "given",
    "srcb": "tf32",
    "layout": "tile",
}
"""The value of a field of `numerics` that the canonical spec leaves out.

They are those of gonogo.spec.test_spec.Numerics, which this process can't import.
"""

FIXED = {
    "buffers": (
        "ttnn's kernels choose the format of their intermediates "
        "(fp32 with accumulate fp32, else that of the input)"
    ),
    "srcb": "it is a switch of the emulator; here the chip decides",
    "layout": "tensors are tilized on the host",
}
"""Fields of `numerics` that ttnn offers no choice of.

Another value than the default is refused, never ignored.
"""

DEVICE_ID = 0
"""The chip's number among those that the process sees: TT_VISIBLE_DEVICES shows it one."""


class Unsupported(ValueError):
    """This build can't run this combination of kernel, numerics, memory and program."""


class Device:
    """One opened device for the life of the process."""

    _opened: Any = None
    launch_s: float | None = None
    """The seconds of the last operation, without moving its tensors."""

    @classmethod
    def get(cls) -> Any:
        """Return the device; the first call opens it."""
        if cls._opened is None:
            cls._opened = ttnn.open_device(device_id=DEVICE_ID)
        return cls._opened

    @classmethod
    def timed(cls, operation: Callable[[], Any]) -> Any:
        """Return the result of an operation; `launch_s` is the time until the device was done."""
        ttnn.synchronize_device(cls.get())
        began = time.perf_counter()
        result = operation()
        ttnn.synchronize_device(cls.get())
        cls.launch_s = time.perf_counter() - began
        return result

    @classmethod
    def close(cls) -> None:
        """Close the device if it is open."""
        device, cls._opened = cls._opened, None
        if device is not None:
            ttnn.close_device(device)


def numerics(test: Mapping[str, Any]) -> dict[str, Any]:
    """Return the test's numerics with the defaults filled in.

    Raises Unsupported for values that ttnn offers no choice of.
    """
    chosen = DEFAULTS | dict(test.get("numerics", {}))
    for name, reason in FIXED.items():
        if chosen[name] != DEFAULTS[name]:
            raise Unsupported(
                f"numerics.{name} = {chosen[name]!r} can't be asked of ttnn: {reason}"
            )
    return chosen


def format_of(chosen: Mapping[str, Any], tensor: str) -> str:
    """Return the format in which a tensor is given."""
    given = chosen["input"]
    return str(given if isinstance(given, str) else given.get(tensor, DEFAULTS["input"]))


def compute_config(chosen: Mapping[str, Any]) -> Any:
    """Return the compute configuration with the test's fidelity and width of Dst.

    Everything else is at its exact setting.
    """
    return ttnn.init_device_compute_kernel_config(
        Device.get().arch(),
        math_fidelity=getattr(ttnn.MathFidelity, FIDELITIES[chosen["fidelity"]]),
        math_approx_mode=False,
        fp32_dest_acc_en=chosen["accumulate"] == "fp32",
        packer_l1_acc=False,
    )


def shape4(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """Return the shape with four dimensions.

    The last two stay as they are, because they are cut into tiles.
    """
    padded = (1,) * max(0, 4 - len(shape)) + tuple(shape)
    first = 1
    for length in padded[: len(padded) - 3]:
        first *= length
    return (first, padded[-3], padded[-2], padded[-1])


def upload(array: Any, name: str, memory: Any = None, *, in_rows: bool = False) -> Any:
    """Return a device tensor in tiles, or in rows; whole numbers are uint32.

    It is tilized on the host: after the simulated device's own tilize, it computes wrong results.
    """
    is_whole = array.dtype.kind == "i"
    values = np.ascontiguousarray(array, np.uint32 if is_whole else np.float32)
    host = ttnn.Tensor(values, ttnn.uint32 if is_whole else getattr(ttnn, DTYPES[name]))
    placed = host if in_rows else host.to(ttnn.TILE_LAYOUT)
    return ttnn.to_device(placed, Device.get(), memory_config=memory or ttnn.DRAM_MEMORY_CONFIG)


def download(tensor: Any) -> Array:
    """Return a device tensor as exact float32."""
    host = ttnn.to_dtype(ttnn.from_device(tensor), ttnn.float32).to(ttnn.ROW_MAJOR_LAYOUT)
    return np.array(host.to_numpy(), np.float32, order="C")
