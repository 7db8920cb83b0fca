"""Public bugs as builds of the emulator: what real kernels computed, after the reports about them.

Each is re-created from the cause that its report states, as an edit of its kernel's graph. Reports
that state no cause aren't here. docs/evidence.md says what GoNoGo says of each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gonogo.faults.changes import Change, Edit, Elementwise, Factor, Replaced, Weighted
from gonogo.graph import Graph, Node

Array = Any
Edits = dict[int, Edit | Replaced]
EditsOf = Callable[[Graph], Edits]
Fields = Mapping[str, Any]
TILE = 32
"""Rows and columns of a tile of a Wormhole, and lanes of an Apple GPU's SIMD group."""
BLOCK = 3
"""Tiles that tt-train's layernorm_bw takes at once."""
LARGEST_GRID = 65535
"""Blocks of a CUDA grid along its second axis."""
TT_METAL: Final = "https://github.com/tenstorrent/tt-metal"


def _unchanged(graph: Graph) -> Edits:
    return {}


@dataclass(frozen=True)
class PublicBug:
    """A bug that a public report describes.

    Attributes:
        name: the build's name: the repository and the number of the report.
        kernel: the kernel's name in tests.
        source: the address of the report.
        sentence: what the kernel did.
        values: the values or uses whose faults are a right diagnosis; empty: its place is one.
        test: the fields of a test in which it shows, from the report; rows are fewer.
        gate: the tolerance that it passed; empty: no test ran such a case.
        passed: the fields that differ in a test of the suite in which it doesn't show.
        edits: what it computes instead.
        narrow_sums: whether the sums of a row run in a 16-bit Dst.
    """

    name: str
    kernel: str
    source: str
    sentence: str
    values: tuple[str, ...]
    test: Fields
    gate: Fields = field(default_factory=dict)
    passed: Fields = field(default_factory=dict)
    edits: EditsOf = _unchanged
    narrow_sums: bool = False


def _node(graph: Graph, key: str) -> Node:
    return next(node for node in graph.nodes if node.key == key)


def _value(key: str, change: Change, *others: str) -> EditsOf:
    """Return the edit that a value is another one for all who use it."""

    def edits(graph: Graph) -> Edits:
        node = _node(graph, key)
        return {node.id: Edit(node, change, None, tuple(_node(graph, other) for other in others))}

    return edits


def _use(key: str, user: str, change: Change) -> EditsOf:
    """Return the edit that one user takes another value."""

    def edits(graph: Graph) -> Edits:
        node = _node(graph, user)
        at = tuple(place for place, arg in enumerate(node.args) if arg.key == key)
        return {node.id: Edit(node, change, at)}

    return edits


def _counted(weights: Callable[[int], Array], *sums: str, axis: int = -1) -> EditsOf:
    """Return the edit that sums count places by weights, a function of their number."""

    def edits(graph: Graph) -> Edits:
        nodes = [_node(graph, key) for key in sums]
        return {
            node.id: Edit(node, Weighted(axis, weights(node.args[0].shape[axis]) * 1.0), (0,))
            for node in nodes
        }

    return edits


def _both(*parts: EditsOf) -> EditsOf:
    return lambda graph: {id: edit for part in parts for id, edit in part(graph).items()}


def _padded(count: int) -> int:
    return -(-count // TILE) * TILE


# what the kernels of the reports compute


def _last_block(count: int) -> Array:
    tiles = np.arange(count) // TILE
    return tiles >= tiles[-1] // BLOCK * BLOCK


def _last_two_tiles(count: int) -> Array:
    tiles = np.arange(count) // TILE
    return tiles >= tiles[-1] - 1


def _first_partial_sums(count: int) -> Array:
    """Return the elements that the lanes of the last SIMD group, one partial sum each, take."""
    groups = -(-count // TILE)
    lanes = count - TILE * (groups - 1)
    return np.arange(count) // TILE < min(lanes, groups)


def _whole_blocks(count: int) -> Array:
    return np.arange(count) < count // 8 * 8


def _half_of_each_tile(gamma: Array) -> Array:
    return gamma * (np.arange(gamma.shape[-1]) % TILE < TILE // 2)


def _first_row_of_each_tile(product: Array) -> Array:
    return product * (np.arange(product.shape[-2]) % TILE == 0)[:, None]


def _by_column(xhat: Array, s2: Array) -> Array:
    """Return x^ s2, with the s2 of row j of its block in column j."""
    columns = xhat.shape[-1]
    blocks = s2.reshape(-1, 1, columns)
    return np.asarray(
        xhat * np.broadcast_to(blocks, (len(blocks), columns, columns)).reshape(xhat.shape)
    )


def _nothing_beyond_the_grid(y: Array) -> Array:
    return y * (y.shape[-2] <= LARGEST_GRID)


def _one_element(y: Array) -> Array:
    place = np.arange(y.size).reshape(y.shape) == y.size // 3
    return np.where(place, y - 128.0, y)


def _whole_tiles_of_rows(dx: Array) -> Array:
    return dx * (np.arange(dx.shape[-2]) < dx.shape[-2] // TILE * TILE)[:, None]


def _with_padding(mean: str, variance: str, padding: Callable[[Graph], float]) -> EditsOf:
    """Return the edits that zeros of padding enter a mean's divisor and a variance's sum.

    padding: a function of the graph that returns the share of padding P among L values, P / L. With
    m = mean L / (L + P), the variance is (sum (x - m)^2 + P m^2) / (L + P).
    """

    def edits(graph: Graph) -> Edits:
        share = padding(graph)
        less = Factor(1 / (1 + share) - 1)
        with_zeros = Elementwise(lambda value, m: (value + share * m * m) / (1 + share))
        return _both(_value(mean, less), _value(variance, with_zeros, mean))(graph)

    return edits


def _padding_of_rows(graph: Graph) -> float:
    count = graph.inputs["x"].shape[-1]
    return _padded(count) / count - 1


def _padding_of_positions(graph: Graph) -> float:
    count = math.prod(graph.inputs["x"].shape[2:])
    return _padded(count) / count - 1


def _padding_of_ones(graph: Graph) -> Edits:
    """Return the edits that padding of 1 is taken for zeros, whose share is subtracted again."""
    share = _padding_of_positions(graph)
    shifted = Elementwise(lambda mean: mean + share)
    spread = Elementwise(lambda value, m: value + share * ((1 - m) ** 2 - m * m))
    return _both(_value("mean", shifted), _value("variance", spread, "mean"))(graph)


def _padding_to_a_power_of_two(graph: Graph) -> Edits:
    """Return the edit that the zeros beyond a row are centered, too, and enter its variance."""
    count = graph.inputs["x"].shape[-1]
    share = 2 ** math.ceil(math.log2(count)) / count - 1
    spread = Elementwise(lambda value, mean: value + share * mean * mean)
    return _value("variance", spread, "mean")(graph)


PCC: Final[Fields] = {"pcc": 0.99}
FP32: Final[Fields] = {"input": "fp32", "output": "fp32", "buffers": "fp32"}
PLAIN: Final[Fields] = {
    "gamma": {"regime": "constant", "value": 1},
    "beta": {"regime": "constant", "value": 0},
}
NORMAL: Final[Fields] = {"regime": "normal"}

_BUGS = (
    PublicBug(
        "tt-metal-53204",
        "layernorm_bw",
        f"{TT_METAL}/issues/53204",
        "s1 is subtracted twice, and s2 keeps only its last block of three tiles.",
        ("s1", "s2"),
        {"shape": [1, 8, 1, 8462]},
        {"rtol": 1e-3, "atol": 0.5},
        edits=_both(_use("s1", "P_centered", Factor(1.0)), _counted(_last_block, "s2")),
    ),
    PublicBug(
        "tt-metal-34625",
        "layernorm_bw",
        f"{TT_METAL}/pull/34760",
        "s1 sums only the last two of 265 tiles.",
        ("s1",),
        {"shape": [1, 8, 1, 8462]},
        {"rtol": 1e-3, "atol": 0.5},
        edits=_counted(_last_two_tiles, "s1"),
    ),
    PublicBug(
        "tt-metal-28803",
        "rmsnorm_bw",
        f"{TT_METAL}/pull/28803",
        "gamma isn't broadcast: it reaches only the first row of each tile. The suite's gradients "
        "are those of a mean over all values, far below its atol.",
        ("gamma", "P"),
        {
            "shape": [2, 1, 4, 64],
            "epsilon": 0.0078125,
            "inputs": {
                "gamma": {"regime": "uniform", "low": 0, "high": 1},
                "dy": {"regime": "normal", "std": 2**-8},
            },
        },
        {"rtol": 1e-3, "atol": 3e-2},
        edits=_value("P", Elementwise(_first_row_of_each_tile)),
    ),
    PublicBug(
        "tt-metal-50682",
        "groupnorm_fw",
        f"{TT_METAL}/issues/50682",
        "The mean and the variance of a group count the padding of its positions to whole tiles.",
        ("mean", "variance"),
        {
            "shape": [1, 64, 1, 200],
            "parameters": {"num_groups": 2},
            "inputs": {"x": {"regime": "uniform", "low": 0, "high": 1}, **PLAIN},
        },
        PCC,
        edits=_with_padding("mean", "variance", _padding_of_positions),
    ),
    PublicBug(
        "tt-metal-52685",
        "groupnorm_fw",
        f"{TT_METAL}/issues/52685",
        "The repair of 50682 takes padding for zeros; exp leaves ones there.",
        ("mean", "variance"),
        {
            "shape": [1, 64, 1, 259],
            "parameters": {"num_groups": 2},
            "inputs": {"x": NORMAL, **PLAIN},
        },
        PCC,
        edits=_padding_of_ones,
    ),
    PublicBug(
        "tt-metal-28365",
        "layernorm_fw",
        f"{TT_METAL}/issues/28365",
        "The mean and the variance of a row count its padding to whole tiles.",
        ("mean", "variance"),
        {"shape": [64, 1000], "inputs": {"x": NORMAL, **PLAIN}},
        {"pcc": 0.9999},
        edits=_with_padding("mean", "variance", _padding_of_rows),
    ),
    PublicBug(
        "tt-metal-49902",
        "layernorm_fw",
        f"{TT_METAL}/issues/49902",
        "fp32 gamma in rows is read with the byte counts of bf16: columns 16 to 31 of each tile "
        "are missing.",
        ("gamma",),
        {"shape": [32, 128], "numerics": {"input": {"gamma": "fp32", "beta": "fp32"}}},
        edits=_value("gamma", Elementwise(_half_of_each_tile)),
    ),
    PublicBug(
        "tt-metal-49600",
        "rmsnorm_fw",
        f"{TT_METAL}/issues/49600",
        "Squares of fp32 rows are summed in a 16-bit Dst: the error grows with the row.",
        ("mean_square",),
        {"shape": [64, 2048], "inputs": {"x": NORMAL}, "numerics": FP32},
        PCC,
        narrow_sums=True,
    ),
    PublicBug(
        "apex-411",
        "layernorm_fw",
        "https://github.com/NVIDIA/apex/issues/411",
        "More rows than a grid has blocks: nothing is written.",
        ("y",),
        {"shape": [65536, 8], "inputs": NORMAL, "numerics": {"input": "fp32", "output": "fp32"}},
        passed={"shape": [65535, 8]},
        edits=_value("y", Elementwise(_nothing_beyond_the_grid)),
    ),
    PublicBug(
        "llama.cpp-26708",
        "rmsnorm_fw",
        "https://github.com/ggml-org/llama.cpp/pull/26708",
        "The last SIMD group adds as many partial sums as it has lanes: of 33 values, the last one "
        "is missing.",
        ("mean_square",),
        {"shape": [64, 33], "inputs": {"x": NORMAL}},
        passed={"shape": [64, 64]},
        edits=_counted(_first_partial_sums, "mean_square"),
    ),
    PublicBug(
        "attorch-17",
        "rmsnorm_bw",
        "https://github.com/BobMcDear/attorch/issues/17",
        "s2 is broadcast along the columns: column j of a block takes that of its row j.",
        ("s2",),
        {"shape": [1024, 32], "inputs": NORMAL},
        edits=lambda graph: {_node(graph, "share").id: Replaced(_by_column)},
    ),
    PublicBug(
        "attorch-18",
        "layernorm_bw",
        "https://github.com/BobMcDear/attorch/issues/18",
        "dgamma and dbeta leave out the last block of rows, where it isn't a whole one.",
        ("dgamma", "dbeta"),
        {"shape": [1025, 32], "inputs": NORMAL},
        passed={"shape": [1024, 32]},
        edits=_counted(_whole_blocks, "dgamma", "dbeta", axis=-2),
    ),
    PublicBug(
        "triton-9838",
        "layernorm_fw",
        "https://github.com/triton-lang/triton/issues/9838",
        "The variance counts the padding of a row to a power of two: the square of its mean.",
        ("variance",),
        {"shape": [64, 768], "inputs": {"x": {"regime": "normal", "mean": 1}, **PLAIN}},
        passed={"shape": [64, 1024]},
        edits=_padding_to_a_power_of_two,
    ),
)
PUBLIC_BUGS: Final[Mapping[str, PublicBug]] = {bug.name: bug for bug in _BUGS}
"""Every public bug by the name of its build."""
