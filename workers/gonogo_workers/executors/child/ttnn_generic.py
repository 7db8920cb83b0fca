"""Our LayerNorm backward for ttnn.generic_op, one core per group of row tiles.

Its kernels are kernels/layernorm_bw_{reader,compute,writer}.cpp. It gives the service a small real
kernel, right, and with a real fault planted by a define (`SUBTRACT_S1_TWICE`), compiled and run by
the founding hardware's own toolchain. Written for the kernel interface of ttnn 0.81.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import ttnn
from ttnn_device import (
    FIDELITIES,
    Array,
    Device,
    Unsupported,
    blank,
    download,
    numerics,
    shape4,
    upload,
)
from ttnn_layernorm import TILE, bf16_only, interleaved_only

NAME = "layernorm_bw for ttnn.generic_op"
KERNELS = Path(__file__).with_name("kernels")
BUFFERS: Mapping[str, int | None] = {
    "x": 2, "dy": 2, "mean": 1, "rstd": 1, "gamma": None, "ones": 1, "centred": 1, "xhat": None,
    "product": None, "weighted": None, "s1": 1, "s2": 1, "along": 1, "left": 2, "difference": 1,
    "dx": 2,
}  # fmt: skip
"""The circular buffers, which the kernels know as BUFFER_<NAME>, with their tiles.

None: a whole row of tiles.
"""
TILE_BYTES = 2 * TILE * TILE
L1_BYTES = 1_300_000
"""The part of a core's 1.5 MB of memory that the firmware and the kernels leave for buffers."""
MAX_WIDTH = (L1_BYTES // TILE_BYTES - sum(count or 0 for count in BUFFERS.values())) // sum(
    count is None for count in BUFFERS.values()
)


def backward(
    test: Mapping[str, Any], inputs: Mapping[str, Array], defines: tuple[str, ...]
) -> dict[str, Array]:
    """Return dx; everything is in bf16."""
    interleaved_only(test, NAME)
    chosen = numerics(test)
    if "mean" not in inputs:
        raise Unsupported(
            f"{NAME} is given mean and rstd; it can't make its own "
            "(numerics.statistics must be 'given')"
        )
    bf16_only(chosen, tuple(inputs), NAME)
    shape = shape4(test["shape"])
    width = -(-shape[3] // TILE)
    if width > MAX_WIDTH:
        raise Unsupported(
            f"a row of {width} tiles doesn't fit into a core's memory; at most {MAX_WIDTH} do"
        )
    ones = np.zeros((1, 1, TILE, TILE), np.float32)
    ones[..., :: TILE // 2, :] = 1.0  # a reduction multiplies by the first row of each face
    tensors = {
        "x": upload(inputs["x"].reshape(shape), "bf16"),
        "dy": upload(inputs["dy"].reshape(shape), "bf16"),
        "mean": upload(inputs["mean"].reshape((*shape[:-1], 1)), "bf16"),
        "rstd": upload(inputs["rstd"].reshape((*shape[:-1], 1)), "bf16"),
        "gamma": upload(inputs["gamma"].reshape(1, 1, 1, -1), "bf16"),
        "ones": upload(ones, "bf16"),
    }
    dx = blank(shape, "bf16")
    height = shape[0] * shape[1] * -(-shape[2] // TILE)
    ttnn.generic_op(
        [*tensors.values(), dx], _program(tensors, dx, height, width, shape[3], chosen, defines)
    )
    return {"dx": download(dx, test["shape"])}


def _program(
    tensors: Mapping[str, Any],
    dx: Any,
    height: int,
    width: int,
    features: int,
    chosen: Mapping[str, Any],
    defines: tuple[str, ...],
) -> Any:
    cores = _cores(height)
    everywhere = ttnn.CoreRangeSet(
        [ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(x, y)) for x, y, _, _ in cores]
    )
    arguments = {part: ttnn.RuntimeArgs() for part in ("reader", "compute", "writer")}
    for x, y, first, count in cores:
        arguments["reader"][x][y] = [
            *(tensor.buffer_address() for tensor in tensors.values()),
            first,
            count,
        ]
        arguments["compute"][x][y] = [count]
        arguments["writer"][x][y] = [dx.buffer_address(), first, count]
    reciprocal = struct.unpack("<I", struct.pack("<f", 1.0 / features))[0]
    compile_time = {
        "reader": [width, *(word for tensor in tensors.values() for word in _accessor(tensor))],
        "compute": [width, reciprocal],
        "writer": [width, *_accessor(dx)],
    }
    configs = {
        "reader": ttnn.ReaderConfigDescriptor(),
        "compute": ttnn.ComputeConfigDescriptor(
            math_fidelity=getattr(ttnn.MathFidelity, FIDELITIES[chosen["fidelity"]]),
            fp32_dest_acc_en=chosen["accumulate"] == "fp32",
        ),
        "writer": ttnn.WriterConfigDescriptor(),
    }
    numbers = [(f"BUFFER_{name.upper()}", str(number)) for number, name in enumerate(BUFFERS)]
    kernels = [
        ttnn.KernelDescriptor(
            kernel_source=str(KERNELS / f"layernorm_bw_{part}.cpp"),
            core_ranges=everywhere,
            compile_time_args=compile_time[part],
            defines=[*numbers, *((name, "1") for name in defines)],
            runtime_args=arguments[part],
            config=configs[part],
        )
        for part in ("reader", "compute", "writer")
    ]
    buffers = [
        ttnn.CBDescriptor(
            total_size=(count or width) * TILE_BYTES,
            core_ranges=everywhere,
            format_descriptors=[
                ttnn.CBFormatDescriptor(
                    buffer_index=number, data_format=ttnn.bfloat16, page_size=TILE_BYTES
                )
            ],
        )
        for number, count in enumerate(BUFFERS.values())
    ]
    return ttnn.ProgramDescriptor(kernels=kernels, semaphores=[], cbs=buffers)


def _accessor(tensor: Any) -> list[int]:
    return list(ttnn.TensorAccessorArgs(tensor).get_compile_time_args())


def _cores(height: int) -> list[tuple[int, int, int, int]]:
    """Return (x, y, first row tile, count) of each core that gets work, as evenly as possible."""
    grid = Device.get().compute_with_storage_grid_size()
    used = min(height, grid.x * grid.y)
    starts = [height * number // used for number in range(used + 1)]
    return [
        (number % grid.x, number // grid.x, starts[number], starts[number + 1] - starts[number])
        for number in range(used)
    ]
