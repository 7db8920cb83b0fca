"""A build of the emulator: the right kernel, or a wrong one that a test must reject.

A wrong build is an edit of its kernel's graph, made of the changes of gonogo.faults.changes, or
another option of the program. Names and sentences are for people, and stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from gonogo.emulator.edits import EditsOf, node_of, nothing
from gonogo.emulator.spoiling import Spoiling
from gonogo.faults.sums import summed_axes
from gonogo.graph import Graph
from gonogo.kernels.kernel import Function


@dataclass(frozen=True)
class Build:
    """A build of a kernel.

    Attributes:
        name: the build's name; kernels share it where it means the same.
        sentence: what it does, in one line.
        outputs: those that it changes; none of the right kernel's.
        edits: what it computes instead.
        divisors: what it divides sums by, by their keys: a function of the number of their terms.
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
    edits: EditsOf = nothing
    divisors: Mapping[str, Callable[[int], int]] = field(default_factory=dict)
    narrow_sums: bool = False
    is_stale: bool = False
    groups: int = 1
    spoiling: Spoiling = ""
    way: Function | None = None
    is_fault: bool = False
    fate: Literal["", "hang", "crash"] = ""
    is_wrong: bool = True


def divided(graph: Graph, build: Build) -> dict[int, int]:
    """Return the divisors of a build's sums, by the ids of their nodes."""
    divisors = {}
    for key, divisor in build.divisors.items():
        node = node_of(graph, key)
        if node is not None:
            count = math.prod(node.args[0].shape[axis] for axis in summed_axes(node))
            divisors[node.id] = divisor(count)
    return divisors


def of_any(outputs: tuple[str, ...]) -> dict[str, Build]:
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
