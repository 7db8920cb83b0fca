"""LayerNorm by ttnn's own operations: ttnn.layer_norm, and moreh's forward and backward.

Every function takes the canonical test and its inputs, and returns outputs in the shapes of the
executor contract. It raises Unsupported with the reason where the operation can't do what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ttnn
from ttnn_device import (
    Array,
    Device,
    Unsupported,
    blank,
    compute_config,
    download,
    format_of,
    numerics,
    same_format,
    shape4,
    upload,
)

TILE = 32
PROGRAMS = ("default", "legacy", "welford")
EPSILON = 1e-6
"""The test's epsilon where the canonical spec leaves it out."""


def program_of(test: Mapping[str, Any], forced: str | None) -> str:
    """Return the reduction to use: the build's where it names one, else the test's.

    Raises Unsupported when the two differ.
    """
    requested = str(test.get("program", "default"))
    if forced is None or requested in (forced, "default"):
        return forced or requested
    raise Unsupported(
        f"the test asks for program {requested!r}, but this build is the {forced!r} one"
    )


def interleaved_only(test: Mapping[str, Any], operation: str) -> None:
    """Raise Unsupported for a sharded test or another program than the default.

    For operations that only accept interleaved tensors.
    """
    if test.get("memory", "interleaved") != "interleaved":
        raise Unsupported(f"{operation} takes interleaved tensors only")
    if test.get("program", "default") != "default":
        raise Unsupported(
            f"{operation} has one program only; the test asks for {test['program']!r}"
        )


def bf16_only(chosen: Mapping[str, Any], tensors: Sequence[str], operation: str) -> None:
    """Raise Unsupported unless every input and output is bf16."""
    for name in tensors:
        if format_of(chosen, name) != "bf16":
            raise Unsupported(f"{name} in {format_of(chosen, name)}: {operation} takes bf16 only")
    if chosen["output"] != "bf16":
        raise Unsupported(f"numerics.output = {chosen['output']!r}: {operation} gives bf16 only")


def layer_norm(
    test: Mapping[str, Any], inputs: Mapping[str, Array], forced: str | None
) -> dict[str, Array]:
    """Return y from ttnn.layer_norm."""
    chosen = numerics(test)
    same_format(chosen, "x")
    shape = shape4(test["shape"])
    program = program_of(test, forced)
    memory, config = _placement(test, shape, program)
    weights = {}
    for name in ("gamma", "beta"):
        if format_of(chosen, name) == "bfp8_b":
            instead = 'bf16 and fp32, as with numerics.input = {"x": "bfp8_b"}'
            raise Unsupported(
                f"{name} in bfp8_b can't be given to ttnn.layer_norm; it takes {instead}"
            )
        weights[name] = upload(inputs[name].reshape(1, 1, 1, -1), format_of(chosen, name))
    y = ttnn.layer_norm(
        upload(inputs["x"].reshape(shape), format_of(chosen, "x"), memory),
        epsilon=test.get("epsilon", EPSILON),
        weight=weights["gamma"],
        bias=weights["beta"],
        memory_config=memory,
        program_config=config,
        compute_kernel_config=compute_config(chosen),
    )
    return {"y": download(y, test["shape"])}


def moreh_forward(test: Mapping[str, Any], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return y, mean and rstd from ttnn.operations.moreh.layer_norm."""
    operation = "moreh.layer_norm"
    interleaved_only(test, operation)
    chosen = numerics(test)
    bf16_only(chosen, tuple(inputs), operation)
    shape = shape4(test["shape"])
    outputs = {
        "y": blank(shape, "bf16"),
        "mean": blank(shape[:-1], "bf16"),
        "rstd": blank(shape[:-1], "bf16"),
    }
    ttnn.operations.moreh.layer_norm(
        upload(inputs["x"].reshape(shape), "bf16"),
        1,
        test.get("epsilon", EPSILON),
        upload(inputs["gamma"], "bf16"),
        upload(inputs["beta"], "bf16"),
        output=outputs["y"],
        mean=outputs["mean"],
        rstd=outputs["rstd"],
        compute_kernel_config=compute_config(chosen),
    )
    per_row = test["shape"][:-1]
    return {
        "y": download(outputs["y"], test["shape"]),
        "mean": download(outputs["mean"], per_row),
        "rstd": download(outputs["rstd"], per_row),
    }


def moreh_backward(test: Mapping[str, Any], inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Return dx, dgamma and dbeta from ttnn.operations.moreh.layer_norm_backward."""
    operation = "moreh.layer_norm_backward"
    interleaved_only(test, operation)
    chosen = numerics(test)
    if "mean" not in inputs:
        raise Unsupported(
            f"{operation} is given mean and rstd; it can't make its own "
            "(numerics.statistics must be 'given')"
        )
    bf16_only(chosen, tuple(inputs), operation)
    shape = shape4(test["shape"])
    outputs = {
        "dx": blank(shape, "bf16"),
        "dgamma": blank(shape[-1:], "bf16"),
        "dbeta": blank(shape[-1:], "bf16"),
    }
    ttnn.operations.moreh.layer_norm_backward(
        upload(inputs["dy"].reshape(shape), "bf16"),
        upload(inputs["x"].reshape(shape), "bf16"),
        upload(inputs["mean"].reshape(shape[:-1]), "bf16"),
        upload(inputs["rstd"].reshape(shape[:-1]), "bf16"),
        1,
        gamma=upload(inputs["gamma"], "bf16"),
        input_grad=outputs["dx"],
        gamma_grad=outputs["dgamma"],
        beta_grad=outputs["dbeta"],
        compute_kernel_config=compute_config(chosen),
    )
    columns = test["shape"][-1:]
    return {
        "dx": download(outputs["dx"], test["shape"]),
        "dgamma": download(outputs["dgamma"], columns),
        "dbeta": download(outputs["dbeta"], columns),
    }


def _placement(test: Mapping[str, Any], shape: tuple[int, ...], program: str) -> tuple[Any, Any]:
    """Return the memory and program configuration of ttnn.layer_norm.

    Tensors are interleaved, or block-sharded over a grid of cores.
    """
    if program not in PROGRAMS:
        raise Unsupported(
            f"ttnn.layer_norm has no program {program!r}; allowed: {', '.join(PROGRAMS)}"
        )
    reduction = {"legacy_reduction": program == "legacy", "use_welford": program == "welford"}
    memory = test.get("memory", "interleaved")
    if memory == "interleaved":
        return ttnn.DRAM_MEMORY_CONFIG, ttnn.LayerNormDefaultProgramConfig(**reduction)
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
    sharded = ttnn.create_sharded_memory_config(
        shape,
        ttnn.CoreGrid(y=rows, x=columns),
        ttnn.ShardStrategy.BLOCK,
        ttnn.ShardOrientation.ROW_MAJOR,
    )
    config = ttnn.LayerNormShardedMultiCoreProgramConfig(
        compute_with_storage_grid_size=ttnn.CoreCoord(columns, rows),
        subblock_w=1,
        block_h=height // rows,
        block_w=width // columns,
        inplace=False,
        **reduction,
    )
    return sharded, config
