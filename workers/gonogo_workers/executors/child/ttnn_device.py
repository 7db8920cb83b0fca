"""The child's one ttnn device, and the way of tensors to it and back; everything that is the same
for all ttnn kernels.

Standard library, numpy and ttnn only: this runs in the build's own interpreter (Python 3.10 or
newer). A real card and the simulated Wormhole take the same path; only the environment that the
builds file gives differs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

if (
    "GONOGO_HOST_RUN" in os.environ
    # tt-metal writes a folder `generated` where it runs: ours is private, and deleted with the process
):
    os.environ.setdefault("TT_METAL_LOGS_PATH", os.path.dirname(os.path.abspath(sys.argv[0])))
import ttnn

Array = np.ndarray[Any, np.dtype[np.float32]]

DTYPES = {"bf16": "bfloat16", "fp32": "float32", "bfp8_b": "bfloat8_b"}
"""The formats of a test that ttnn's LayerNorm takes, by ttnn's names."""

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
"""What a field of `numerics` means when the canonical spec leaves it out (gonogo.spec.test_spec.Numerics;
this process can't import it)."""

NOT_OURS = {
    "buffers": "ttnn's kernels choose the format of their intermediates (fp32 with accumulate fp32, else that of the input)",
    "srcb": "it is a switch of the emulator; here the chip decides",
    "layout": "tensors are tilized on the host",
}
"""Fields of `numerics` that ttnn offers no choice of: another value than the default is refused,
never ignored."""

DEVICE_ID = 0
"""The chip among those that the process sees: the worker's environment (TT_VISIBLE_DEVICES) shows
it one."""


class Unsupported(ValueError):
    """This combination of kernel, numerics, memory and program can't be run by this build."""


class Device:
    """One opened device for the life of the process."""

    _opened: Any = None

    @classmethod
    def get(cls) -> Any:
        """The device, opened at the first call."""
        if cls._opened is None:
            cls._opened = ttnn.open_device(device_id=DEVICE_ID)
        return cls._opened

    @classmethod
    def close(cls) -> None:
        """Close it, if it is open."""
        device, cls._opened = cls._opened, None
        if device is not None:
            ttnn.close_device(device)


def numerics(test: Mapping[str, Any]) -> dict[str, Any]:
    """The test's numerics with the defaults filled in. Raises Unsupported for what ttnn offers no
    choice of.
    """
    chosen = DEFAULTS | dict(test.get("numerics", {}))
    for name, reason in NOT_OURS.items():
        if chosen[name] != DEFAULTS[name]:
            raise Unsupported(
                f"numerics.{name} = {chosen[name]!r} can't be asked of ttnn: {reason}"
            )
    return chosen


def format_of(chosen: Mapping[str, Any], tensor: str) -> str:
    """The format in which a tensor is given. Raises Unsupported for one that ttnn's LayerNorm
    doesn't take.
    """
    given = chosen["input"]
    name = str(given if isinstance(given, str) else given.get(tensor, DEFAULTS["input"]))
    if name not in DTYPES:
        raise Unsupported(
            f"{tensor} in {name} can't be given to ttnn's LayerNorm; it takes {', '.join(DTYPES)}"
        )
    return name


def same_format(chosen: Mapping[str, Any], tensor: str) -> None:
    """Raises Unsupported unless the output is asked for in the format of `tensor`: these kernels
    have no other.
    """
    given = format_of(chosen, tensor)
    if chosen["output"] != given:
        raise Unsupported(
            f"numerics.output = {chosen['output']!r}: the kernel gives its output in the format of {tensor}, {given}"
        )


def dtype(name: str) -> Any:
    """Ttnn's data type of a format."""
    return getattr(ttnn, DTYPES[name])


def compute_config(chosen: Mapping[str, Any]) -> Any:
    """Fidelity and the width of Dst, as the test asks for them; everything else at its exact
    setting.
    """
    return ttnn.init_device_compute_kernel_config(
        Device.get().arch(),
        math_fidelity=getattr(ttnn.MathFidelity, FIDELITIES[chosen["fidelity"]]),
        math_approx_mode=False,
        fp32_dest_acc_en=chosen["accumulate"] == "fp32",
        packer_l1_acc=False,
    )


def shape4(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """The shape with four dimensions. The last two stay as they are: they are what is cut into
    tiles.
    """
    padded = (1,) * max(0, 4 - len(shape)) + tuple(shape)
    first = 1
    for length in padded[: len(padded) - 3]:
        first *= length
    return (first, padded[-3], padded[-2], padded[-1])


def upload(array: Array, name: str, memory: Any = None) -> Any:
    """A device tensor in tiles. Tilized on the host: the simulated device's own tilize leaves it
    computing wrong results.
    """
    host = ttnn.Tensor(np.ascontiguousarray(array, np.float32), dtype(name)).to(ttnn.TILE_LAYOUT)
    return ttnn.to_device(host, Device.get(), memory_config=memory or ttnn.DRAM_MEMORY_CONFIG)


def blank(shape: Sequence[int], name: str) -> Any:
    """A device tensor for a kernel to write to: NaN where it doesn't (0 in block formats, which
    have no NaN).
    """
    return upload(np.full(tuple(shape), 0.0 if name == "bfp8_b" else np.nan, np.float32), name)


def download(tensor: Any, shape: Sequence[int]) -> Array:
    """A device tensor as float32, exactly, in the shape of the contract."""
    host = ttnn.to_dtype(ttnn.from_device(tensor), ttnn.float32).to(ttnn.ROW_MAJOR_LAYOUT)
    return np.array(host.to_numpy(), np.float32, order="C").reshape(tuple(shape))
