"""The adapter of ttnn's operations: how any of them gets its tensors and settings, as data.

A row of the executor's table says what is particular to an operation. Everything raises Unsupported
with the reason where an operation can't do what a test asks; nothing is replaced silently.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import ttnn
from ttnn_device import (
    DEFAULTS,
    Array,
    Device,
    Unsupported,
    compute_config,
    download,
    format_of,
    numerics,
    shape4,
    upload,
)

Test = Mapping[str, Any]
Settings = Callable[[Test], Mapping[str, Any]]
TILE = 32
BF16, USUAL = ("bf16",), ("bf16", "fp32")
EPSILON, GROUPS = 1e-6, 32
"""A test's epsilon and num_groups where the canonical spec leaves them out."""
MAX_KEYS = 512
"""Keys of attention whose scores fit a core's memory."""


def of_4_axes(array: Array) -> Array:
    """Return a tensor as most operations take it."""
    return array.reshape(shape4(array.shape))


@dataclass(frozen=True)
class Operation:
    """How ttnn computes a kernel.

    Attributes:
        call: the operation's name below ttnn, or that of `function`.
        tensors: the kernel's tensors that it takes by place, in its order.
        keywords: those that it takes by name: from the name to the kernel's tensor.
        layouts: functions that shape a tensor for the operation; others get four axes.
        in_rows: the tensors that aren't cut into tiles.
        settings: the function of a test that returns all other arguments.
        y: the function that returns y in the contract's shape, from what the operation returns and
            the shape of the test.
        outputs: the outputs that it is given tensors for, with its names; none: it returns y.
        formats: those of its tensors; the output has that of the first one.
        narrower: those of tensors that have fewer.
        is_configured: whether it takes a compute configuration.
        has_placements: whether tests may choose memory and program; the settings have them.
        function: an operation that ttnn doesn't have.
    """

    call: str
    tensors: tuple[str, ...] = ("x",)
    keywords: Mapping[str, str] = field(default_factory=dict)
    layouts: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    in_rows: tuple[str, ...] = ()
    settings: Settings = lambda test: {}
    y: Callable[[Array, tuple[int, ...]], Array] = lambda y, shape: y.reshape(*shape[:-1], -1)
    outputs: Mapping[str, str] = field(default_factory=dict)
    formats: tuple[str, ...] = USUAL
    narrower: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_configured: bool = True
    has_placements: bool = False
    function: Callable[..., Any] | None = None

    def run(self, test: Test, inputs: Mapping[str, Any]) -> dict[str, Array]:
        """Return the kernel's outputs for one seed."""
        chosen, shape = self._numerics(test, inputs), tuple(test["shape"])
        settings = dict(self.settings(test))
        if self.is_configured:
            settings["compute_kernel_config"] = compute_config(chosen)

        def given(name: str) -> Any:
            memory = settings.get("memory_config") if name == self.tensors[0] else None
            array = self.layouts.get(name, of_4_axes)(inputs[name])
            return upload(array, format_of(chosen, name), memory, in_rows=name in self.in_rows)

        tensors = [given(name) for name in self.tensors]
        settings |= {keyword: given(name) for keyword, name in self.keywords.items()}
        blanks = {
            name: upload(np.full(shape4(shape)[_axes(name)], np.nan, np.float32), "bf16")
            for name in self.outputs
        }
        settings |= {self.outputs[name]: tensor for name, tensor in blanks.items()}
        operation = self.function or attrgetter(self.call)(ttnn)
        y = Device.timed(partial(operation, *tensors, **settings))
        if not blanks:
            return {"y": np.ascontiguousarray(self.y(download(y), shape))}
        return {name: download(a).reshape(shape[_axes(name)]) for name, a in blanks.items()}

    def _numerics(self, test: Test, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the test's numerics. Raises Unsupported for what the operation can't do."""
        chosen = numerics(test)
        if not self.is_configured:
            self._refuse(chosen, DEFAULTS, ("accumulate", "fidelity"), "it has no configuration")
        if not self.has_placements:
            usual = {"memory": "interleaved", "program": "default"}
            reason = "it takes interleaved tensors, and has one program only"
            self._refuse({**usual, **test}, usual, tuple(usual), reason)
        names = (*self.tensors, *self.keywords.values())
        missing = [name for name in names if name not in inputs]
        if missing:
            reason = "it can't make its own (numerics.statistics must be 'given')"
            raise Unsupported(f"{self.call} is given {', '.join(missing)}; {reason}")
        floats = [name for name in names if inputs[name].dtype.kind == "f"]
        for name in floats:
            form, allowed = format_of(chosen, name), self.narrower.get(name, self.formats)
            if form not in allowed:
                takes = f"{self.call} takes {', '.join(allowed)} only"
                raise Unsupported(f"{name} in {form} can't be given: {takes}")
        first = {"output": format_of(chosen, floats[0])}
        self._refuse(chosen, first, ("output",), f"it gives y in the format of {floats[0]}")
        return chosen

    def _refuse(self, requested: Test, only: Test, fields: tuple[str, ...], reason: str) -> None:
        for name in fields:
            if requested[name] != only[name]:
                value = f"{name} = {requested[name]!r}"
                raise Unsupported(f"{value} can't be asked of {self.call}: {reason}")


def _axes(output: str) -> slice:
    """Return the axes of x that an output has."""
    ends = {"y": slice(None), "dx": slice(None), "mean": slice(-1), "rstd": slice(-1)}
    return ends.get(output, slice(-1, None))


def epsilon(test: Test, name: str = "epsilon") -> dict[str, Any]:
    """Return the test's epsilon, by the operation's name of it."""
    return {name: test.get("epsilon", EPSILON)}


def placed(test: Test, program: str = "default") -> dict[str, Any]:
    """Return ttnn.layer_norm's settings: tensors are interleaved, or sharded in blocks of cores.

    program: the build's reduction, where it is one.
    """
    requested = str(test.get("program", "default"))
    if "default" not in (requested, program) and requested != program:
        raise Unsupported(f"the test asks for program {requested!r}, but the build is {program!r}")
    program = requested if program == "default" else program
    reduction = {"legacy_reduction": program == "legacy", "use_welford": program == "welford"}
    memory, shape = test.get("memory", "interleaved"), shape4(test["shape"])
    if memory == "interleaved":
        return {**epsilon(test), "program_config": ttnn.LayerNormDefaultProgramConfig(**reduction)}
    rows, columns = memory["sharded"]
    height, width = shape[0] * shape[1] * -(-shape[2] // TILE), -(-shape[3] // TILE)
    grid = Device.get().compute_with_storage_grid_size()
    if rows > grid.y or columns > grid.x:
        raise Unsupported(
            f"memory.sharded [{rows}, {columns}]: this chip has {grid.y} rows of {grid.x} cores"
        )
    if height % rows or width % columns or shape[2] % TILE or shape[3] % TILE:
        raise Unsupported(
            f"memory.sharded [{rows}, {columns}]: {height} x {width} tiles of "
            f"{list(test['shape'])} don't divide evenly into whole shards"
        )
    block, along = ttnn.ShardStrategy.BLOCK, ttnn.ShardOrientation.ROW_MAJOR
    sharded = ttnn.create_sharded_memory_config(
        shape, ttnn.CoreGrid(y=rows, x=columns), block, along
    )
    config = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=ttnn.CoreCoord(columns, rows),
        subblock_w=1,
        block_h=height // rows,
        block_w=width // columns,
        inplace=False,
        **reduction,
    )
    return {**epsilon(test), "memory_config": sharded, "program_config": config}


def on_one_core(test: Test) -> dict[str, Any]:
    """Return group norm's settings: on more cores it adds their sums in another order."""
    return {
        **epsilon(test),
        "num_groups": test.get("parameters", {}).get("num_groups", GROUPS),
        "core_grid": ttnn.CoreGrid(y=1, x=1),
        "inplace": False,
        "output_layout": ttnn.TILE_LAYOUT,
    }


def keys_at_once(test: Test) -> dict[str, Any]:
    """Return attention's settings: exact exponentials, and up to 512 keys in one block."""
    if numerics(test)["accumulate"] == "bf16":
        raise Unsupported("attention in a 16-bit Dst is another kernel, which isn't known here")
    parameters = test.get("parameters", {})
    keys = parameters.get("keys") or test["shape"][2]
    config = ttnn.SDPAProgramConfig(
        compute_with_storage_grid_size=Device.get().compute_with_storage_grid_size(),
        q_chunk_size=TILE,
        k_chunk_size=min(-(-keys // TILE) * TILE, MAX_KEYS),
        exp_approx_mode=False,
    )
    return {"is_causal": parameters.get("causal", False), "program_config": config}
