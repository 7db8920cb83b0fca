"""Public bugs as builds of the emulator: what real kernels computed, after the reports about them.

Each is re-created from the cause that its report states, as an edit of its kernel's graph. A report
that states none isn't here. docs/evidence.md says what GoNoGo says of each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from gonogo.emulator.edits import (
    TWICE,
    Array,
    Edits,
    EditsOf,
    both,
    counted,
    nothing,
    use,
    value,
)
from gonogo.faults.changes import TILE, Factor
from gonogo.graph import Graph

Fields = Mapping[str, Any]
BLOCK, ROWS, GRID = 3, 8, 65535
"""Tiles that tt-train's layernorm_bw takes at once, rows of a program of attorch's norms where rows
are short, and blocks of a CUDA grid along its second axis."""
OWNERS: Final[Mapping[str, str]] = {
    "apex": "NVIDIA",
    "attorch": "BobMcDear",
    "llama.cpp": "ggml-org",
    "triton": "triton-lang",
    "tt-metal": "tenstorrent",
}


@dataclass(frozen=True)
class PublicBug:
    """A bug that a public report describes.

    Attributes:
        name: the build's name: the repository, and the number of the report there.
        kernel: the kernel's name in tests.
        sentence: what the kernel did.
        values: the values that a right diagnosis names; empty: it says the place.
        test: the fields of a test in which it shows, after the report; with fewer rows.
        gate: the tolerance that it passed there; empty: no test of the suite ran such a case.
        passed: the fields that differ in a test of the suite, in which it doesn't show.
        edits: what it computes instead.
        narrow_sums: whether the sums of a row run in a 16-bit Dst.
    """

    name: str
    kernel: str
    sentence: str
    values: tuple[str, ...]
    test: Fields
    gate: Fields = field(default_factory=dict)
    passed: Fields = field(default_factory=dict)
    edits: EditsOf = nothing
    narrow_sums: bool = False

    @property
    def source(self) -> str:
        """The address of the report, an issue or a pull request."""
        repository, _, number = self.name.rpartition("-")
        return f"https://github.com/{OWNERS[repository]}/{repository}/issues/{number}"


def _padding(count: int) -> int:
    return -count % TILE


def _tiles(count: int) -> Array:
    return np.arange(count) // TILE


# what the kernels of the reports compute


def _last_block_and_s1_twice(graph: Graph) -> Edits:
    last_block = counted(lambda count: _tiles(count) >= _tiles(count)[-1] // BLOCK * BLOCK, "s2")
    return both(last_block, use("s1", "P_centered", TWICE))(graph)


def _first_partial_sums(count: int) -> Array:
    """Return the elements of the partial sums that the lanes of the last SIMD group take."""
    groups = -(-count // TILE)
    lanes = count - TILE * (groups - 1)
    return _tiles(count) < min(lanes, groups)


def _by_column(share: Array, xhat: Array, s2: Array) -> Array:
    """Return x^ s2, with the s2 of row j of a block of rows in column j."""
    columns = xhat.shape[-1]
    blocks = np.broadcast_to(s2.reshape(-1, 1, columns), (len(s2) // columns, columns, columns))
    return np.asarray(xhat * blocks.reshape(xhat.shape))


def _padded_share(graph: Graph) -> float:
    """Return the padding of a row, or of the positions of an image, over their number."""
    shape = graph.inputs["x"].shape
    count = shape[-1] if len(shape) == 2 else math.prod(shape[2:])
    return _padding(count) / count


def _zeros_in_statistics(graph: Graph) -> Edits:
    """Return the edits that zeros of padding, the share p of the values, enter the statistics.

    With m = mean / (1 + p), the variance is (mean of (x - m)^2 + p m^2) / (1 + p).
    """
    p = _padded_share(graph)
    mean = value("mean", Factor(1 / (1 + p) - 1))
    variance = value("variance", lambda v, m: (v + p * m * m) / (1 + p), "mean")
    return mean(graph) | variance(graph)


def _ones_taken_for_zeros(graph: Graph) -> Edits:
    p = _padded_share(graph)
    mean = value("mean", lambda m: m + p)
    variance = value("variance", lambda v, m: v + p * ((1 - m) ** 2 - m * m), "mean")
    return mean(graph) | variance(graph)


def _padded_to_a_power_of_two(graph: Graph) -> Edits:
    count = graph.inputs["x"].shape[-1]
    share = 2 ** math.ceil(math.log2(count)) / count - 1
    return value("variance", lambda v, m: v + share * m * m, "mean")(graph)


def _scaled_bias(graph: Graph) -> Edits:
    return value("bias", Factor(graph.inputs["q"].shape[-1] ** -0.5 - 1))(graph)


def _padded_keys(graph: Graph) -> Edits:
    more = _padding(graph.inputs["k"].shape[-2])
    return value("total", lambda total, largest: total + more * np.exp(-largest), "largest")(graph)


GROUPS: Final[Fields] = {"num_groups": 8}
NORMAL: Final[Fields] = {"regime": "normal"}
PLAIN: Final[Fields] = {
    "gamma": {"regime": "constant", "value": 1},
    "beta": {"regime": "constant", "value": 0},
}
FP32: Final[Fields] = {"input": "fp32", "output": "fp32", "buffers": "fp32"}
PCC: Final[Fields] = {"pcc": 0.99}
NIGHTLY: Final[Fields] = {"rtol": 1e-3, "atol": 0.5}

_BUGS = (
    PublicBug(
        "tt-metal-53204",
        "layernorm_bw",
        "s1 is subtracted twice, and s2 keeps only its last block of three tiles.",
        ("s1", "s2"),
        {"shape": [1, 2, 1, 8462]},
        NIGHTLY,
        edits=_last_block_and_s1_twice,
    ),
    PublicBug(
        "tt-metal-34625",
        "layernorm_bw",
        "s1 sums only the last two of 265 tiles.",
        ("s1",),
        {"shape": [1, 2, 1, 8462]},
        NIGHTLY,
        edits=counted(lambda count: _tiles(count) >= _tiles(count)[-1] - 1, "s1"),
    ),
    PublicBug(
        "tt-metal-28803",
        "rmsnorm_bw",
        "gamma isn't broadcast: it reaches only the first row of each tile. The test's gradients "
        "are those of a mean over all values, far below its atol.",
        ("gamma", "P"),
        {"shape": [2, 1, 4, 64], "inputs": {"dy": {"regime": "normal", "std": 2**-8}}},
        {"rtol": 1e-3, "atol": 3e-2},
        edits=value("P", lambda P: P * (np.arange(P.shape[-2]) % TILE == 0)[:, None]),
    ),
    PublicBug(
        "tt-metal-50682",
        "groupnorm_fw",
        "The statistics of a group count the padding of its positions to whole tiles.",
        ("mean", "variance"),
        {
            "shape": [1, 32, 1, 200],
            "parameters": GROUPS,
            "inputs": {"x": {"regime": "uniform", "low": 0, "high": 1}, **PLAIN},
        },
        {"y": PCC},
        edits=_zeros_in_statistics,
    ),
    PublicBug(
        "tt-metal-52685",
        "groupnorm_fw",
        "The repair of 50682 takes the padding for zeros; exp leaves ones there.",
        ("mean", "variance"),
        {"shape": [1, 32, 1, 259], "parameters": GROUPS, "inputs": {"x": NORMAL, **PLAIN}},
        {"y": PCC},
        edits=_ones_taken_for_zeros,
    ),
    PublicBug(
        "tt-metal-28365",
        "layernorm_fw",
        "The statistics of a row count its padding to whole tiles.",
        ("mean", "variance"),
        {"shape": [8, 1000], "inputs": {"x": NORMAL, **PLAIN}},
        {"y": {"pcc": 0.9999}},
        edits=_zeros_in_statistics,
    ),
    PublicBug(
        "tt-metal-49902",
        "layernorm_fw",
        "fp32 gamma is read by the byte counts of bf16, without columns 16 to 31 of each tile.",
        ("gamma",),
        {"shape": [32, 128], "numerics": {"input": {"gamma": "fp32", "beta": "fp32"}}},
        edits=value("gamma", lambda g: g * (np.arange(g.shape[-1]) % TILE < TILE // 2)),
    ),
    PublicBug(
        "tt-metal-49600",
        "rmsnorm_fw",
        "The squares of fp32 rows are summed in a 16-bit Dst: the error grows with the row.",
        ("mean_square",),
        {"shape": [16, 2048], "inputs": {"x": NORMAL}, "numerics": FP32},
        {"y": PCC},
        narrow_sums=True,
    ),
    PublicBug(
        "tt-metal-53208",
        "softmax_bw",
        "Whole tiles of rows are counted: the rows after them are never computed.",
        ("dx", "y", "dy"),
        {"shape": [59, 197]},
        passed={"shape": [64, 197]},
        edits=value("dx", lambda dx: dx * (np.arange(len(dx)) < len(dx) // TILE * TILE)[:, None]),
    ),
    PublicBug(
        "tt-metal-52045",
        "softmax",
        "The sum of a row runs in a 16-bit Dst: the weights don't sum to 1.",
        ("total",),
        {"shape": [16, 4096], "inputs": NORMAL},
        PCC,
        narrow_sums=True,
    ),
    PublicBug(
        "tt-metal-42891",
        "attention_biased",
        "The bias is scaled with the scores; masks of 0 and -inf can't show it.",
        ("bias",),
        {"shape": [1, 1, 64, 64], "inputs": NORMAL},
        passed={"inputs": {**NORMAL, "bias": {"regime": "constant", "value": 0}}},
        edits=_scaled_bias,
    ),
    PublicBug(
        "tt-metal-54833",
        "attention_biased",
        "The mask's padding is 0: the padding of the keys has weights.",
        ("total", "e", "weights"),
        {"shape": [1, 1, 40, 64], "inputs": NORMAL},
        passed={"shape": [1, 1, 32, 64]},
        edits=_padded_keys,
    ),
    PublicBug(
        "tt-metal-38306",
        "matmul",
        "HiFi4 with fp32 accumulation: one element is off by a power of two.",
        (),
        {"shape": [32, 128], "inputs": NORMAL},
        PCC,
        edits=value("y", lambda y: np.where(np.arange(y.size).reshape(y.shape) == 2730, y - 64, y)),
    ),
    PublicBug(
        "apex-411",
        "layernorm_fw",
        "There are more rows than a grid has blocks: nothing is written.",
        ("y",),
        {"shape": [65536, 2], "inputs": NORMAL},
        passed={"shape": [65535, 2]},
        edits=value("y", lambda y: y * (y.shape[-2] <= GRID)),
    ),
    PublicBug(
        "llama.cpp-26708",
        "rmsnorm_fw",
        "The last SIMD group takes a partial sum a lane: the last of 33 values is missing.",
        ("mean_square",),
        {"shape": [64, 33], "inputs": NORMAL},
        passed={"shape": [64, 64]},
        edits=counted(_first_partial_sums, "mean_square"),
    ),
    PublicBug(
        "attorch-17",
        "rmsnorm_bw",
        "s2 is broadcast along the wrong axis: column j takes that of row j of its block.",
        ("s2",),
        {"shape": [256, 32], "inputs": NORMAL},
        edits=value("share", _by_column, "xhat", "s2"),
    ),
    PublicBug(
        "attorch-18",
        "layernorm_bw",
        "dgamma and dbeta leave out the last block of rows, which isn't a whole one.",
        ("dgamma", "dbeta"),
        {"shape": [257, 32], "inputs": NORMAL},
        passed={"shape": [256, 32]},
        edits=counted(lambda n: np.arange(n) < n // ROWS * ROWS, "dgamma", "dbeta", axis=-2),
    ),
    PublicBug(
        "triton-9838",
        "layernorm_fw",
        "The variance counts the padding of a row to a power of two: the square of its mean.",
        ("variance",),
        {"shape": [16, 768], "inputs": {"x": {"regime": "normal", "mean": 1}, **PLAIN}},
        passed={"shape": [16, 1024]},
        edits=_padded_to_a_power_of_two,
    ),
)
PUBLIC_BUGS: Final[Mapping[str, PublicBug]] = {bug.name: bug for bug in _BUGS}
"""Every public bug by the name of its build."""
