"""The wrong builds of norms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from gonogo.arithmetic.matrix_unit import TILE
from gonogo.emulator.build import Build, of_any
from gonogo.emulator.edits import (
    LAST,
    LAST_BLOCK,
    LAST_TWO,
    NOT_LAST,
    TWICE,
    ZERO,
    Array,
    Edits,
    EditsOf,
    both,
    counted,
    node_of,
    padded,
    rolled,
    unmasked,
    use,
    use_of_first,
    value,
    without_middle,
)
from gonogo.faults.changes import Edit, Elementwise, Factor, Moved
from gonogo.graph import Graph
from gonogo.kernels.registry import KERNELS

STALE_ROWS = 8
"""Every so many rows use what the row before them left."""


@dataclass(frozen=True)
class Kind:
    """The values of a kernel that builds make wrong.

    Attributes:
        outputs: those that a wrong sum of squares, or s2, changes; the first has rows.
        first: the first sum of a row: the mean, or s1; "": it has none.
        second: the mean of the squares, or s2.
        total: what sentences call the second one.
    """

    outputs: tuple[str, ...]
    first: str
    second: str
    total: str

    @property
    def sums(self) -> tuple[str, ...]:
        """Both sums."""
        return tuple(name for name in (self.first, self.second) if name)


KINDS: Final[Mapping[str, Kind]] = {
    "layernorm_fw": Kind(("y", "mean", "rstd"), "mean", "variance", "the sum"),
    "groupnorm_fw": Kind(("y", "mean", "rstd"), "mean", "variance", "the sum"),
    "rmsnorm_fw": Kind(("y", "rstd"), "", "mean_square", "the sum"),
    "layernorm_bw": Kind(("dx",), "s1", "s2", "s2"),
    "rmsnorm_bw": Kind(("dx",), "", "s2", "s2"),
}


def _less_one(count: int) -> int:
    return max(count - 1, 1)


def _from_row_before(key: str) -> EditsOf:
    def edits(graph: Graph) -> Edits:
        node = node_of(graph, key)
        assert node is not None
        source = np.arange(node.shape[-2])
        source[STALE_ROWS - 1 :: STALE_ROWS] -= 1
        return {node.id: Edit(node, Moved(-2, source))}

    return edits


def _boundaries(graph: Graph) -> Edits:
    """Return the edits that statistics are those of channels one further on."""
    x = graph.inputs["x"]

    def further(rows: Array) -> Array:
        samples = rows.reshape(x.shape[0], -1)
        return np.roll(samples, -math.prod(x.shape[2:]), axis=1).reshape(rows.shape)

    change = Elementwise(further)
    return both(use_of_first("mean", change), use_of_first("deviation", change))(graph)


def _centered(rows: Array) -> Array:
    return rows - rows.mean(-1, keepdims=True)


OFF = Factor(1e-3)


def _of_norms(kind: Kind, epsilon: tuple[str, ...]) -> dict[str, Build]:
    """Return the builds that all norms have. epsilon: the outputs that a wrong one changes."""
    outputs, total = kind.outputs, kind.total
    is_backward = outputs == ("dx",)
    rstd = use("rstd", "dx", OFF) if is_backward else value("rstd", OFF)
    rows = outputs[:1]
    scaled = tuple(name for name in outputs if name != "mean")
    every = (
        Build(
            "bf16-accumulate",
            "The sums over the tiles of a row run in a 16-bit Dst: a loss of precision, not of"
            " logic.",
            epsilon if is_backward else outputs,
            narrow_sums=True,
        ),
        Build(
            "wrong-epsilon",
            "epsilon is a thousand times too large where the kernel makes its own rstd.",
            epsilon,
            value("epsilon", Factor(999.0)),
        ),
        Build("epsilon-dropped", "epsilon is not added.", scaled, value("epsilon", ZERO)),
        Build(
            "unbiased-variance",
            "The variance divides by N - 1 where the kernel makes its own rstd.",
            epsilon,
            divisors={"variance": _less_one},
        ),
        Build(
            "padded-count",
            f"The divisor of {total} is N with its padding to whole tiles.",
            outputs,
            divisors=dict.fromkeys(kind.sums, padded),
        ),
        Build(
            "last-tile-only",
            f"Only the last tile of a row enters {total}.",
            outputs,
            counted(LAST, *kind.sums),
        ),
        Build(
            "last-tile-missing",
            f"The last tile of a row doesn't enter {total}.",
            outputs,
            counted(NOT_LAST, kind.sums[0]),
        ),
        Build(
            "tile-missing",
            "The row's middle tile is missing from its first sum.",
            outputs,
            counted(without_middle, kind.sums[0]),
        ),
        Build(
            "mask-missing",
            "The last tile isn't masked: its padding, which holds the row's first values again, "
            "enters the sums.",
            outputs,
            counted(unmasked, *kind.sums),
        ),
        Build(
            "stale-partial",
            f"Every 8th row has {total} of the row before it.",
            scaled,
            _from_row_before(kind.second),
        ),
        Build(
            "stale-register",
            "A row's first sum starts from what the previous run in the same process left in the "
            "register: right when run first, then different from run to run.",
            outputs,
            is_stale=True,
        ),
        Build(
            "rstd-off-1e-3",
            "rstd is 1.001 times too large where it scales the result.",
            scaled,
            rstd,
        ),
        Build(
            "gamma-shifted-tile",
            "gamma is read one tile (32 columns) too early.",
            rows,
            rolled("gamma", TILE),
        ),
        Build("gamma-neighbour", "gamma is that of the next column.", rows, rolled("gamma", -1)),
        Build("gamma-missing", "gamma is left out.", rows, value("gamma", np.ones_like)),
    )
    return {build.name: build for build in every}


_TWO_FAULTS = both(use("s1", "P_centered", TWICE), counted(LAST_BLOCK, "s2"))
_ROWS_MISSING = counted(
    lambda count: np.arange(count) < (count - 1) // TILE * TILE, "dgamma", axis=-2
)


def _uncentered(graph: Graph) -> Edits:
    # of a kernel with statistics of its own, the first x - mean is their own
    users = [key for key in ("centered[2]", "centered") if node_of(graph, key)]
    return use("mean", users[0], ZERO)(graph)


def _of_kernel(kernel: str) -> list[Build]:
    """Return the builds that few kernels have."""
    last_block = "s2 keeps only its last block of three tiles."
    rows_missing = Build(
        "dgamma-last-row-tile-missing",
        "dgamma leaves out the last tile of rows.",
        ("dgamma",),
        _ROWS_MISSING,
    )
    match kernel:
        case "layernorm_fw":
            return [
                Build(
                    "mean-last-tile-missing",
                    "The mean leaves out the row's last tile.",
                    ("y", "mean", "rstd"),
                    counted(NOT_LAST, "mean"),
                ),
                Build(
                    "mean-not-subtracted",
                    "x^ is x rstd: the mean is not subtracted.",
                    ("y",),
                    use("mean", "centered", ZERO),
                ),
            ]
        case "groupnorm_fw":
            every, y = ("y", "mean", "rstd"), ("y",)
            return [
                Build(
                    "mean-square",
                    "The variance is the mean square: the mean isn't subtracted from it.",
                    ("y", "rstd"),
                    use("mean", "deviation", ZERO),
                ),
                Build(
                    "mean-not-subtracted",
                    "x^ is x rstd: the mean is not subtracted.",
                    y,
                    use("mean", "centered", ZERO),
                ),
                Build(
                    "group-boundaries",
                    "The statistics of a group are those of channels one further on.",
                    every,
                    _boundaries,
                ),
                Build(
                    "half-groups",
                    "There are twice as many groups of half the channels.",
                    every,
                    groups=2,
                ),
                Build("beta-neighbour", "beta is that of the next channel.", y, rolled("beta", -1)),
                Build("beta-missing", "beta is left out.", y, value("beta", ZERO)),
            ]
        case "layernorm_bw":
            return [
                Build(
                    "last-two-tiles",
                    "s1 sums only the last two tiles of a row.",
                    ("dx",),
                    counted(LAST_TWO, "s1"),
                ),
                Build(
                    "double-subtract",
                    "s1 is subtracted twice.",
                    ("dx",),
                    use("s1", "P_centered", TWICE),
                ),
                Build("last-block-only", last_block, ("dx",), counted(LAST_BLOCK, "s2")),
                Build(
                    "tt-train-2025",
                    "s1 is subtracted twice and s2 keeps only its last block of three tiles: "
                    "what was really wrong in tt-train.",
                    ("dx",),
                    _TWO_FAULTS,
                ),
                Build(
                    "drop-s1",
                    "s1 is not subtracted at all.",
                    ("dx",),
                    use("s1", "P_centered", ZERO),
                ),
                Build(
                    "mean-not-subtracted",
                    "x^ is x rstd: the mean is not subtracted.",
                    ("dx", "dgamma"),
                    _uncentered,
                ),
                rows_missing,
            ]
        case "rmsnorm_fw":
            return [
                Build(
                    "mean-subtracted",
                    "The mean is subtracted first, as in LayerNorm.",
                    ("y", "rstd"),
                    value("x", _centered),
                )
            ]
        case _:
            return [
                Build(
                    "drop-s2", "x^ s2 is not subtracted at all.", ("dx",), use("s2", "share", ZERO)
                ),
                Build(
                    "s2-sign",
                    "x^ s2 is added instead of subtracted.",
                    ("dx",),
                    use("s2", "share", Factor(-2.0)),
                ),
                Build("last-block-only", last_block, ("dx",), counted(LAST_BLOCK, "s2")),
                Build(
                    "mean-subtracted",
                    "x^ is (x - mean) rstd, as in LayerNorm.",
                    ("dx", "dgamma"),
                    use("x", "xhat", Elementwise(_centered)),
                ),
                rows_missing,
            ]


def builds_of_norm(kernel: str) -> dict[str, Build]:
    """Return the builds of a norm by name."""
    kind = KINDS[kernel]
    epsilon = ("dx", "dgamma") if kernel.endswith("_bw") else ("y", "rstd")
    few = {build.name: build for build in _of_kernel(kernel)}
    return of_any(KERNELS[kernel].outputs) | _of_norms(kind, epsilon) | few
