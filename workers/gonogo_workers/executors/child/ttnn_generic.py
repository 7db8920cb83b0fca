"""Our LayerNorm backward for ttnn.generic_op, one core per group of row tiles.

Its kernels are kernels/layernorm_bw_{reader,compute,writer}.cpp. It gives the service a small real
kernel, right, and with a real fault planted by a define (`SUBTRACT_S1_TWICE`), compiled and run by
the founding hardware's own toolchain. Written for the kernel interface of ttnn 0.81.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import ttnn
from ttnn_device import Device, Unsupported, upload
from ttnn_operations import TILE

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
    *tensors: Any, dx: Any, compute_kernel_config: Any, defines: tuple[str, ...] = ()
) -> None:
    """Write dx from x, dy, mean, rstd and gamma; everything is in bf16.

    defines: macros of the compute kernel, each of which plants a fault.
    """
    shape = dx.shape
    width = -(-shape[3] // TILE)
    if width > MAX_WIDTH:
        raise Unsupported(
            f"a row of {width} tiles doesn't fit into a core's memory; at most {MAX_WIDTH} do"
        )
    ones = np.zeros((1, 1, TILE, TILE), np.float32)
    ones[..., :: TILE // 2, :] = 1.0  # a reduction multiplies by the first row of each face
    given = [*tensors, upload(ones, "bf16")]
    ttnn.generic_op([*given, dx], _program(given, dx, compute_kernel_config, defines))


def _program(given: Sequence[Any], dx: Any, config: Any, defines: tuple[str, ...]) -> Any:
    shape = dx.shape
    height, width = shape[0] * shape[1] * -(-shape[2] // TILE), -(-shape[3] // TILE)
    cores = _cores(height)
    everywhere = ttnn.CoreRangeSet(
        [ttnn.CoreRange(ttnn.CoreCoord(x, y), ttnn.CoreCoord(x, y)) for x, y, _, _ in cores]
    )
    arguments = {part: ttnn.RuntimeArgs() for part in ("reader", "compute", "writer")}
    for x, y, first, count in cores:
        arguments["reader"][x][y] = [
            *(tensor.buffer_address() for tensor in given),
            first,
            count,
        ]
        arguments["compute"][x][y] = [count]
        arguments["writer"][x][y] = [dx.buffer_address(), first, count]
    reciprocal = struct.unpack("<I", struct.pack("<f", 1.0 / shape[3]))[0]
    compile_time = {
        "reader": [width, *(word for tensor in given for word in _accessor(tensor))],
        "compute": [width, reciprocal],
        "writer": [width, *_accessor(dx)],
    }
    configs = {
        "reader": ttnn.ReaderConfigDescriptor(),
        "compute": ttnn.ComputeConfigDescriptor(
            math_fidelity=config.math_fidelity, fp32_dest_acc_en=config.fp32_dest_acc_en
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
