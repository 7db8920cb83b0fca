"""The builds of the emulator: the right kernel, and wrong ones that a test must reject.

A wrong build is an edit of its kernel's graph, made of the changes of gonogo.faults.changes, or
another option of the program. Names and sentences are for people, and stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from gonogo.arithmetic.matrix_unit import TILE
from gonogo.emulator.public_bugs import PUBLIC_BUGS, PublicBug
from gonogo.emulator.spoiling import Spoiling
from gonogo.faults.changes import (
    Edit,
    Elementwise,
    Factor,
    Moved,
    Replaced,
    ValueChange,
    Weighted,
    shift,
)
from gonogo.faults.table import BLOCK, summed_axes
from gonogo.graph import Graph, Node
from gonogo.kernels.kernel import Function, sentence_of
from gonogo.kernels.registry import KERNELS
from gonogo.workloads import fault_names, fault_of

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Array = Any
Edits = dict[int, Edit | Replaced]
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


def _nothing(graph: Graph, kind: Kind) -> Edits:
    return {}


@dataclass(frozen=True)
class Build:
    """A build of a kernel.

    Attributes:
        name: the build's name; kernels share it where it means the same.
        sentence: what it does, in one line.
        outputs: those that it changes; none of the right kernel's.
        edits: what it computes instead.
        divisors: what it divides sums by, a function of the number of their terms: by "first",
            "second", or their keys.
        narrow_sums: whether the sums over the tiles of a row run in a 16-bit Dst.
        is_stale: whether a row's first sum starts from what the run before left in the register.
        groups: how many times as many groups it makes of the channels.
        spoiling: how its first output is spoiled.
        way: the wrong function that it computes.
        is_fault: whether it has the fault of gonogo.faults.table that it is named after.
        fate: whether the process hangs or crashes.
        is_wrong: whether its numbers are.
    """

    name: str
    sentence: str
    outputs: tuple[str, ...] = ()
    edits: Callable[[Graph, Kind], Edits] = _nothing
    divisors: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    narrow_sums: bool = False
    is_stale: bool = False
    groups: int = 1
    spoiling: Spoiling = ""
    way: Function | None = None
    is_fault: bool = False
    fate: Literal["", "hang", "crash"] = ""
    is_wrong: bool = True


# edits: each is a function of a graph and its kind; what a graph doesn't have stays as it is


def _node(graph: Graph, key: str) -> Node | None:
    return next((node for node in graph.nodes if node.key == key), None)


def value(key: str, change: ValueChange) -> Callable[[Graph, Kind], Edits]:
    """Return the edit that changes a value for all who use it."""

    def edits(graph: Graph, kind: Kind) -> Edits:
        node = _node(graph, key)
        return {} if node is None else {node.id: Edit(node, change)}

    return edits


def use(key: str, user: str, change: ValueChange) -> Callable[[Graph, Kind], Edits]:
    """Return the edit that changes a value where one user takes it."""

    def edits(graph: Graph, kind: Kind) -> Edits:
        node = _node(graph, user)
        at = tuple(k for k, arg in enumerate(node.args) if arg.key == key) if node else ()
        return {node.id: Edit(node, change, at)} if node is not None and at else {}

    return edits


def counted(
    weights: Callable[[int], Array], *sums: str, axis: int = -1
) -> Callable[[Graph, Kind], Edits]:
    """Return the edit that sums count places as often as weights say, a function of their number.

    sums: "first" or "second", or their keys.
    """

    def edits(graph: Graph, kind: Kind) -> Edits:
        keys = [key for name in sums for key in (getattr(kind, name, name),) if key]
        nodes = [node for key in keys if (node := _node(graph, key)) is not None]
        return {
            node.id: Edit(node, Weighted(axis, weights(node.args[0].shape[axis])), (0,))
            for node in nodes
        }

    return edits


def both(*parts: Callable[[Graph, Kind], Edits]) -> Callable[[Graph, Kind], Edits]:
    """Return the edits of all parts."""

    def edits(graph: Graph, kind: Kind) -> Edits:
        return {id: edit for part in parts for id, edit in part(graph, kind).items()}

    return edits


def tiles(summed: Callable[[int], slice]) -> Callable[[int], Array]:
    """Return the weights of places by the tiles that are summed; a single one always is."""

    def weights(count: int) -> Array:
        total = -(-count // TILE)
        chosen = np.zeros(total)
        chosen[summed(total) if total > 1 else slice(None)] = 1.0
        return np.repeat(chosen, TILE)[:count]

    return weights


def _without_middle(count: int) -> Array:
    total = -(-count // TILE)
    return np.where((np.arange(count) // TILE == total // 2) & (total > 1), 0.0, 1.0)


def _unmasked(count: int) -> Array:
    again, rest = divmod(_padded(count), count)
    return again + (np.arange(count) < rest) * 1.0


def divided(graph: Graph, kind: Kind, build: Build) -> dict[int, int]:
    """Return the divisors of a build's sums, by the ids of their nodes."""
    divisors = {}
    for name, divisor in build.divisors.items():
        node = _node(graph, getattr(kind, name, name))
        if node is not None:
            count = math.prod(node.args[0].shape[axis] for axis in summed_axes(node))
            divisors[node.id] = divisor(count)
    return divisors


def _less_one(count: int) -> int:
    return max(count - 1, 1)


def _padded(count: int) -> int:
    return -(-count // TILE) * TILE


def _from_row_before(graph: Graph, kind: Kind) -> Edits:
    node = _node(graph, kind.second)
    assert node is not None
    source = np.arange(node.shape[-2])
    source[STALE_ROWS - 1 :: STALE_ROWS] -= 1
    return {node.id: Edit(node, Moved(-2, source))}


def _boundaries(graph: Graph, kind: Kind) -> Edits:
    """Return the edits that statistics are those of channels one further on."""
    x = graph.inputs["x"]

    def further(rows: Array) -> Array:
        samples = rows.reshape(x.shape[0], -1)
        return np.roll(samples, -math.prod(x.shape[2:]), axis=1).reshape(rows.shape)

    users = [_node(graph, key) for key in ("mean", "deviation")]
    change = Elementwise(further)
    return {user.id: Edit(user, change, (0,)) for user in users if user is not None}


def started(lanes: Array) -> Callable[[Graph, Kind], Edits]:
    """Return the edit that a row's first sum starts from these lanes."""

    def with_start(value: Array, *others: Array) -> Array:
        start = np.broadcast_to(lanes.astype(value.dtype), (*value.shape[:-1], TILE))
        return np.concatenate([start, value], axis=-1)

    def edits(graph: Graph, kind: Kind) -> Edits:
        node = _node(graph, kind.sums[0])
        assert node is not None
        return {node.id: Edit(node, with_start, (0,))}

    return edits


def _rolled(key: str, by: int) -> Callable[[Graph, Kind], Edits]:
    def edits(graph: Graph, kind: Kind) -> Edits:
        return value(key, Moved(-1, shift(graph.inputs[key].shape[-1], by)))(graph, kind)

    return edits


def _centered(rows: Array) -> Array:
    return rows - rows.mean(-1, keepdims=True)


LAST, LAST_TWO = tiles(lambda n: slice(n - 1, n)), tiles(lambda n: slice(n - 2, n))
LAST_BLOCK = tiles(lambda n: slice((n - 1) // BLOCK * BLOCK, n))
NOT_LAST = tiles(lambda n: slice(0, n - 1))
ZERO, TWICE = Factor(-1.0), Factor(1.0)
OFF = Factor(1e-3)


def _of_any(outputs: tuple[str, ...]) -> dict[str, Build]:
    """Return the builds that all kernels have. outputs: theirs."""
    every = (
        Build("correct", "The right kernel.", is_wrong=False),
        Build(
            "power-of-two-outliers",
            "A few isolated values are twice too large: "
            "the Wormhole HiFi4 with fp32 accumulate erratum.",
            outputs[:1],
            spoiling="outliers",
        ),
        Build("nan-tile", "One 32x32 tile is NaN.", outputs[:1], spoiling="nan-tile"),
        Build("hang", "The kernel never returns.", outputs, fate="hang", is_wrong=False),
        Build(
            "crash",
            "The process dies of a segmentation fault.",
            outputs,
            fate="crash",
            is_wrong=False,
        ),
    )
    return {build.name: build for build in every}


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
            divisors={"first": _padded, "second": _padded},
        ),
        Build(
            "last-tile-only",
            f"Only the last tile of a row enters {total}.",
            outputs,
            counted(LAST, "first", "second"),
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
            counted(_without_middle, kind.sums[0]),
        ),
        Build(
            "mask-missing",
            "The last tile isn't masked: its padding, which holds the row's first values again, "
            "enters the sums.",
            outputs,
            counted(_unmasked, "first", "second"),
        ),
        Build(
            "stale-partial",
            f"Every 8th row has {total} of the row before it.",
            scaled,
            _from_row_before,
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
            _rolled("gamma", TILE),
        ),
        Build("gamma-neighbour", "gamma is that of the next column.", rows, _rolled("gamma", -1)),
        Build(
            "gamma-missing", "gamma is left out.", rows, value("gamma", Elementwise(np.ones_like))
        ),
    )
    return {build.name: build for build in every}


_TWO_FAULTS = both(use("s1", "P_centered", TWICE), counted(LAST_BLOCK, "s2"))
_ROWS_MISSING = counted(
    lambda count: (np.arange(count) < (count - 1) // TILE * TILE) * 1.0, "dgamma", axis=-2
)


def _uncentered(graph: Graph, kind: Kind) -> Edits:
    # of a kernel with statistics of its own, the first x - mean is their own
    users = [key for key in ("centered[2]", "centered") if _node(graph, key)]
    return use("mean", users[0], ZERO)(graph, kind)


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
                Build(
                    "beta-neighbour",
                    "beta is that of the next channel.",
                    y,
                    _rolled("beta", -1),
                ),
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
                    value("x", Elementwise(_centered)),
                )
            ]
        case _:
            return [
                Build(
                    "drop-s2",
                    "x^ s2 is not subtracted at all.",
                    ("dx",),
                    use("s2", "share", ZERO),
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


def kind_of(kernel: str) -> Kind:
    """Return the values of a kernel that builds make wrong; others than norms name none."""
    return KINDS.get(kernel) or Kind(KERNELS[kernel].outputs, "", "", "")


OTHER_PASS = {"layernorm_fw": "layernorm_bw", "layernorm_bw": "layernorm_fw"}
"""The passes of a kernel that have one list of builds."""


@cache
def builds_of(kernel: str) -> Mapping[str, Build]:
    """Return the builds of a kernel that have names of their own, in the order of its list.

    A build of the other pass is the right kernel here. See build_of for others.
    """
    outputs, mistakes = KERNELS[kernel].outputs, KERNELS[kernel].mistakes
    known = {
        name: Build(name, f"{sentence_of(name, wrong)}.", outputs, way=wrong)
        for name, wrong in mistakes.items()
    }
    known |= _of_any(outputs)
    if kernel in KINDS:
        others = _known(OTHER_PASS[kernel]) if kernel in OTHER_PASS else {}
        known |= {
            name: Build(name, build.sentence, build.outputs, is_wrong=False)
            for name, build in others.items()
        } | _known(kernel)
    known |= {bug.name: _of_report(bug) for bug in PUBLIC_BUGS.values() if bug.kernel == kernel}
    names = (*KERNELS[kernel].listed_builds, *KERNELS[kernel].public_bugs)
    return {name: known.get(name) or _of_fault(name, outputs) for name in names}


def build_of(test: TestSpec, name: str) -> Build:
    """Return a build of a test's kernel: one of its list, or the fault of that name.

    "missing/gamma@y" has the fault missing:gamma@y of gonogo.faults.table. Raises FieldError.
    """
    known = builds_of(test.kernel).get(name)
    if known is None:
        fault_of(test, name)
    return known or _of_fault(name, test.outputs)


def has_build(test: TestSpec, name: str) -> bool:
    """Return whether a test's kernel has a build."""
    return name in builds_of(test.kernel) or name in fault_names(test)


def _of_fault(name: str, outputs: tuple[str, ...]) -> Build:
    return Build(name, f"The fault {name} of its reference.", outputs, is_fault=True)


def _of_report(bug: PublicBug) -> Build:
    def edits(graph: Graph, kind: Kind) -> Edits:
        return bug.edits(graph)

    sentence, outputs = f"{bug.sentence} {bug.source}", KERNELS[bug.kernel].outputs
    return Build(bug.name, sentence, outputs, edits, narrow_sums=bug.narrow_sums)


def _known(kernel: str) -> dict[str, Build]:
    kind = KINDS[kernel]
    epsilon = ("dx", "dgamma") if kernel.endswith("_bw") else ("y", "rstd")
    few = {build.name: build for build in _of_kernel(kernel)}
    return _of_any(KERNELS[kernel].outputs) | _of_norms(kind, epsilon) | few
