"""Blocks of large outputs: what stays of each beside a replay is small, and is joined.

A block has some groups along the output's first axis, which nothing mixes: rows, or the columns of
a sum down the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from gonogo.arithmetic import Replay
from gonogo.arithmetic.formats import FORMATS, Doubles
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.graph.axes import Cut
from gonogo.judgment.cells import LIMIT, Cells, Mask, rounding_ratio, squares
from gonogo.judgment.common import Samples, samples_of_cells, samples_of_groups
from gonogo.judgment.sample import cut_of
from gonogo.judgment.shared import shared_errors

BlockResult = TypeVar("BlockResult")

LARGE, ELEMENTS = 2**19, 2**17
"""Elements of a kernel's widest value beyond which an output is cut, and about those of a block:
its arrays stay in a cache."""
THREADS = 2
"""Blocks that are replayed at once: NumPy lets other threads run while it computes."""
MIN_ROWS = 8
"""Rows that a share of rows needs, and independent samples that a component needs."""
ALIGNED = max(form.block for form in FORMATS.values())
"""Values along the last axis that may share an exponent: a block takes all or none of them."""


@dataclass(frozen=True)
class Blocks:
    """How an output is cut into blocks.

    Attributes:
        cut: into groups.
        ranges: the first group of each block, and the one behind its last.
    """

    cut: Cut
    ranges: Sequence[tuple[int, int]]


def blocks_of(graph: Graph, output: str) -> Blocks | None:
    """Return the blocks of an output; None if it is small or can't be cut.

    Sums of products have noise that is sampled over the whole: they aren't cut.
    """
    needed = graph.needed(output)
    largest = widest(needed)
    if largest <= LARGE or any(OPERATIONS[node.operation].family == "product" for node in needed):
        return None
    cut = cut_of(graph, output, axis=0)
    if cut is None:
        return None
    is_last = any(cut.axes.get(node.id) == len(node.shape) - 1 for node in needed)
    unit = ALIGNED if is_last else 2  # one group alone would broadcast otherwise
    size = max(ELEMENTS * cut.groups // largest // unit, 1) * unit
    edges = [*range(0, cut.groups - 1, size), cut.groups]
    return Blocks(cut, list(pairwise(edges)))


def widest(nodes: Iterable[Node]) -> int:
    """Return the elements of the widest value of some nodes."""
    return max(math.prod(node.shape) for node in nodes)


def in_threads(function: Callable[[int], BlockResult], count: int) -> list[BlockResult]:
    """Return a function's result for each block."""

    def quiet(at: int) -> BlockResult:
        with np.errstate(all="ignore"):  # each thread has its own
            return function(at)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(quiet, range(count)))


@dataclass(frozen=True)
class BlockComparison:
    """An output, or a block of it, beside a replay and its exact values.

    Attributes:
        outside: which elements are no rounding of the replay.
        largest: the largest distance.
        misfit: the sum by which explanations compete.
        ratio: the largest error; see rounding_ratio.
        squares: sums of squares of the errors and of the exact values.
        projections: of the errors onto the exact values; see projected.
        shared: the largest error that a group shares, in its deviations.
        samples: what groups or cells say about common factors.
        overflows: whether the program stores a value as inf.
    """

    outside: Mask
    largest: float
    misfit: float
    ratio: float
    squares: Doubles
    projections: Samples
    shared: float
    samples: Mapping[str, Samples]
    overflows: bool


def compared(
    replay: Replay, cells: Cells, exact: Doubles, is_by_cells: bool, is_by_row: bool, block: int = 0
) -> BlockComparison:
    """Return the comparison of an output with a replay; block: its number.

    is_by_cells: whether cells say what elements share, not the estimates of groups. Neither is
    needed where elements are far outside. is_by_row: whether rows are samples, or elements.
    """
    samples: dict[str, Samples] = {}
    shared = 0.0
    with np.errstate(all="ignore"):
        if cells.largest <= 2 * LIMIT and cells.replay.shared:
            if is_by_cells:
                samples = samples_of_cells(replay, cells, block)
            else:
                estimates = shared_errors(cells)
                shared = max((estimate.largest for estimate in estimates), default=0.0)
                samples = samples_of_groups(replay, estimates)
        axes = tuple(range(1, exact.ndim)) if is_by_row else ()
        return BlockComparison(
            cells.outside,
            cells.largest,
            cells.misfit,
            rounding_ratio(cells, exact),
            np.array(squares(cells, exact)),
            projected(cells.error, exact, cells.precision, axes),
            shared,
            samples,
            replay.has_overflow,
        )


def joined(parts: Sequence[BlockComparison]) -> BlockComparison:
    """Return the comparison of an output from those of its blocks."""
    largest = max(part.largest for part in parts)
    samples = [part.samples for part in parts if largest <= 2 * LIMIT]
    return BlockComparison(
        np.concatenate([part.outside for part in parts]),
        largest,
        math.fsum(part.misfit for part in parts),
        max(part.ratio for part in parts),
        np.sum([part.squares for part in parts], axis=0),
        _joined([part.projections for part in parts]),
        max(part.shared for part in parts) if samples else 0.0,
        {
            key: _joined([part[key] for part in samples if key in part])
            for key in dict.fromkeys(key for part in samples for key in part)
        },
        any(part.overflows for part in parts),
    )


def _joined(parts: Sequence[Samples]) -> Samples:
    return tuple(np.concatenate(arrays) for arrays in zip(*parts, strict=True))


def projected(error: Doubles, direction: Doubles, weights: Doubles, axes: Sequence[int]) -> Samples:
    """Return how much samples of an error lie along a direction, summed over axes, (samples,) each.

    That is the information about it, that times the component, and the mean square of what the
    direction moves.
    """
    direction = np.where(weights > 0, direction, 0.0)
    square, summed = np.square(direction), tuple(axes)
    information = (weights * square).sum(summed).ravel()
    along = (weights * direction * error).sum(summed).ravel()
    return information, along, square.mean(summed).ravel()
