"""Fits: an output beside what one arithmetic gives for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from gonogo.arithmetic import Inputs, Program, Quantity, Replay, exact
from gonogo.arithmetic.formats import Doubles
from gonogo.arithmetic.program import NOTHING_STORED
from gonogo.arithmetic.quantity import concatenated
from gonogo.arithmetic.values import Array
from gonogo.graph import OPERATIONS, Graph
from gonogo.judgment.blocks import (
    LARGE,
    MIN_ROWS,
    BlockComparison,
    BlockResult,
    Blocks,
    blocks_of,
    compared,
    in_threads,
    joined,
    widest,
)
from gonogo.judgment.cells import LIMIT, Cells, Mask
from gonogo.judgment.common import MAX_COMMON, Common, common_of_cells, common_of_groups
from gonogo.judgment.sample import Sample, cut_of, with_worst
from gonogo.judgment.tolerance import Tolerance

SCREENED, MIN_SCREENED = 8, 4
"""Groups of a screen, and the times that an output has so many groups from which there is one."""
WIDE = 32.0
"""How much noisier than the reference a way is before which the faults of sharper ones are tried:
E[x^2] - mean^2 at a mean of some deviations, where it still has most of its digits."""


@dataclass(frozen=True)
class Candidate:
    """An arithmetic: a way to compute a kernel, and a program."""

    graph: Graph
    program: Program = NOTHING_STORED


@dataclass
class TracedKernel:
    """A kernel: its inputs, and how it may have computed.

    Attributes:
        graphs: the reference, then other ways to compute the same.
        inputs: its tensors by name.
        narrow: the 16-bit formats of its tensors, in which it may store.
        declared: the arithmetics that the build declares; then nothing else explains it.
        known: other arithmetics that are tried, of graphs of their own.
        proven: arithmetics that explain another output of it, by what they store.
    """

    graphs: Sequence[Graph]
    inputs: Inputs
    narrow: Sequence[str] = ()
    declared: Sequence[Candidate] = ()
    known: Sequence[Candidate] = ()
    proven: list[Candidate] = field(default_factory=list)
    _replays: dict[tuple[int, str], Replay] = field(default_factory=dict, repr=False)
    _exact: dict[tuple[int, str], Mapping[int, Array]] = field(default_factory=dict, repr=False)

    @property
    def every(self) -> list[Graph]:
        """All graphs, those of known arithmetics last."""
        return [*self.graphs, *(candidate.graph for candidate in self.known)]

    def replay(self, candidate: Candidate) -> Replay:
        """Return a replay; those in which nothing is stored are kept, for other outputs too."""
        graph, program = candidate.graph, candidate.program
        key = id(graph), program.order
        if widest(graph.nodes) > LARGE:  # the quantities of many replays would fill the memory
            return Replay(graph, self.inputs, program)
        if program != Program(order=program.order):
            return Replay(graph, self.inputs, program, self._replays.get(key))
        if key not in self._replays:
            self._replays[key] = Replay(graph, self.inputs, program)
        return self._replays[key]

    def exact(self, graph: Graph, output: str) -> Mapping[int, Array]:
        """Return the exact value of each node that an output needs, by its id."""
        key = id(graph), output
        if key not in self._exact:
            self._exact[key] = exact(graph, self.inputs, outputs=[output])
        return self._exact[key]


@dataclass(frozen=True, eq=False)
class Output:
    """An output that a kernel gave: its name, its values as float64, and their format.

    tolerance: that of its test; None: nobody says. given: what it is measured from; None: exact.
    """

    kernel: TracedKernel
    name: str
    values: Doubles
    form: str
    tolerance: Tolerance | None = None
    given: Doubles | None = None
    _fits: dict[tuple[int, Program], Fit] = field(default_factory=dict, repr=False)
    _last: dict[tuple[int, Program], Quantity] = field(default_factory=dict, repr=False)
    """The quantity that was last joined from blocks; those of others are forgotten."""

    @property
    def reference(self) -> Graph:
        """The graph of the reference."""
        return self.kernel.graphs[0]

    @property
    def ways(self) -> list[Graph]:
        """The graphs that have this output."""
        return [graph for graph in self.kernel.graphs if self.name in graph.outputs]

    @cached_property
    def screen(self) -> Screen:
        """Some groups, on which most arithmetics fail that can't explain the whole."""
        return Screen(self)

    @property
    def usual_ways(self) -> Iterator[Graph]:
        """The ways that are about as exact as the reference on these inputs, which is the first."""
        return (graph for graph in self.ways if self.is_usual(graph))

    def is_usual(self, graph: Graph) -> bool:
        """Return whether a way is about as exact as the reference on these inputs."""
        if graph is self.reference:
            return True
        return not self.screen.noise(graph) > WIDE * self.screen.noise(self.reference)

    @cached_property
    def exact(self) -> Doubles:
        """The reference's value."""
        blocks = blocks_of(self.reference, self.name)
        if not blocks:
            return self.exact_whole()

        def right(at: int) -> Doubles:
            return self._block(self.reference, blocks, at).exact_whole()

        return np.concatenate(in_threads(right, len(blocks.ranges)))

    @property
    def expected(self) -> Doubles:
        """The values from which the tolerance is measured."""
        return self.exact if self.given is None else self.given

    def exact_whole(self) -> Doubles:
        """Return the reference's value, not by blocks."""
        # no cached property: Python 3.11 locks it for all outputs, those of other threads too
        node = self.reference.outputs[self.name]
        return self.kernel.exact(self.reference, self.name)[node.id].astype(np.float64)

    def quantity(self, candidate: Candidate) -> Quantity:
        """Return an arithmetic's quantity of the output.

        In that of a large one, what elements share is noise of each.
        """
        key = id(candidate.graph), candidate.program
        if key not in self._last:
            parts = self._by_block(candidate, _without_shared)
            if not parts:
                return self.kernel.replay(candidate).run(self.name)
            values = np.concatenate([part.values for part in parts])
            self._last.clear()
            self._last[key] = concatenated(parts, values, 0)
        return self._last[key]

    def cells(self, candidate: Candidate) -> Cells:
        """Return the cells beside an arithmetic's quantity."""
        return Cells(self.values, self.quantity(candidate), self.form, candidate.program.flush)

    def fit(self, candidate: Candidate) -> Fit:
        """Return how well an arithmetic explains the output."""
        key = id(candidate.graph), candidate.program
        if key not in self._fits:
            self._fits[key] = self._fit(candidate)
        return self._fits[key]

    def is_by_cells(self, candidate: Candidate) -> bool:
        """Return whether all cells together say what elements share, not groups one by one.

        They do in 16 bits, where an element says little, but not under unknown orders.
        """
        return self.form != "fp32" and not candidate.program.narrow

    def _fit(self, candidate: Candidate) -> Fit:
        is_by_cells = self.is_by_cells(candidate)
        is_by_row = self.values.ndim > 1 and len(self.values) >= MIN_ROWS

        def beside(replay: Replay, cells: Cells, right: Output, block: int) -> BlockComparison:
            exact = right.exact_whole()
            return compared(replay, cells, exact, is_by_cells, is_by_row, block)

        parts = self._by_block(candidate, beside)
        if parts is not None:
            return Fit(self, candidate, joined(parts))
        replay, cells = self._beside(candidate)
        comparison = compared(replay, cells, self.exact, is_by_cells, is_by_row)
        return Fit(self, candidate, comparison, cells)

    def _beside(self, candidate: Candidate) -> tuple[Replay, Cells]:
        replay = self.kernel.replay(candidate)
        quantity = replay.run(self.name)
        return replay, Cells(self.values, quantity, self.form, candidate.program.flush)

    def _by_block(
        self, candidate: Candidate, function: Callable[[Replay, Cells, Output, int], BlockResult]
    ) -> list[BlockResult] | None:
        """Return a function's result for each block; None where the output isn't cut.

        The function takes an arithmetic's replay of a block, the cells beside it, the block as an
        output of the reference, and its number.
        """
        graphs = candidate.graph, self.reference
        blocks, others = (blocks_of(graph, self.name) for graph in graphs)
        if not blocks or not others or blocks.ranges != others.ranges:
            return None

        def of_block(at: int) -> BlockResult | None:
            block = right = self._block(graphs[0], blocks, at)
            if graphs[0] is not graphs[1]:
                right = self._block(graphs[1], others, at)
            replay, cells = block._beside(replace(candidate, graph=block.reference))
            if cells.replay.shared.keys() <= blocks.cut.axes.keys():
                return function(replay, cells, right, at)
            return None  # other blocks share its errors

        if in_threads(of_block, 1) == [None]:
            return None
        parts = [part for part in in_threads(of_block, len(blocks.ranges)) if part is not None]
        return parts if len(parts) == len(blocks.ranges) else None

    def _block(self, graph: Graph, blocks: Blocks, at: int) -> Output:
        """Return a block as an output of a way alone."""
        cut, limits, given = blocks.cut, blocks.ranges[at], self.kernel.inputs
        inputs = {
            name: cut.part(np.asarray(given[name]), axis, *limits)
            for name, axis in cut.inputs.items()
            if name in given
        }
        kernel = TracedKernel([cut.part_graph(graph, np.arange(*limits))], inputs)
        return Output(kernel, self.name, cut.part(self.values, 0, *limits), self.form)


def _without_shared(_: Replay, cells: Cells, __: Output, ___: int) -> Quantity:
    """Return a block's quantity, in which what elements share is noise of each."""
    quantity = cells.replay
    return Quantity(quantity.values, quantity.variance, slack=quantity.slack)


@dataclass(frozen=True)
class Fit:
    """How well an arithmetic explains an output.

    Attributes:
        output: the output.
        candidate: the arithmetic.
        comparison: what stays of the output beside its replay.
    """

    output: Output = field(repr=False)
    candidate: Candidate
    comparison: BlockComparison
    _cells: Cells | None = None

    @cached_property
    def cells(self) -> Cells:
        """The whole output beside its replay: that of a large one takes time and memory."""
        return self._cells or self.output.cells(self.candidate)

    @property
    def outside(self) -> Mask:
        """Which elements are no rounding of the replay."""
        return self.comparison.outside

    @property
    def cancels(self) -> bool:
        """Whether a kernel's own rounding has left nothing of an output: errors are larger."""
        errors, sizes = self.comparison.squares
        return bool(errors > sizes)

    @cached_property
    def common(self) -> tuple[Common, ...]:
        """The factors that all groups share."""
        is_by_cells = self.output.is_by_cells(self.candidate)
        common = common_of_cells if is_by_cells else common_of_groups
        with np.errstate(all="ignore"):
            return tuple(common(self.comparison.samples))

    @property
    def size(self) -> float:
        """The largest of distance, shared error and common factor, in units of LIMIT's deviations.

        It is no size of an error: where a program leaves no noise, it is 0 or huge.
        """
        largest = max((factor.size for factor in self.common), default=0.0)
        comparison = self.comparison
        return max(comparison.largest, comparison.shared, LIMIT / MAX_COMMON * largest)

    @property
    def is_explained(self) -> bool:
        """Whether the arithmetic explains the output.

        No arithmetic does in which a stored value overflows: a kernel that has inf there is wrong.
        """
        return self.size <= LIMIT and not self.comparison.overflows


class Screen:
    """Some groups of an output: what fails there can't explain the whole.

    Half of the groups are those in which the reference misses most, where it misses any.
    """

    def __init__(self, output: Output) -> None:
        self._output = output
        self._parts: dict[int, Output | None] = {}
        self._noises: dict[int, float] = {}
        self._cut = cut_of(output.reference, output.name)
        if self._cut is None or self._cut.groups < MIN_SCREENED * SCREENED:
            self._groups = None
            return
        groups = np.linspace(0, self._cut.groups - 1, SCREENED).astype(np.intp)
        cells = output.cells(Candidate(output.reference))
        axis = self._cut.outputs[output.name]
        self._groups = with_worst(cells.distance, axis, self._cut.groups, groups)

    def fit(self, candidate: Candidate) -> Fit:
        """Return how well an arithmetic explains the groups: the whole, if it stores values."""
        part = self._part(candidate.graph)
        if part is None or candidate.program.stored:
            return self._output.fit(candidate)
        return part.fit(replace(candidate, graph=part.reference))

    def noise(self, graph: Graph) -> float:
        """Return the usual deviation of the elements of a way in which nothing is stored."""
        if id(graph) not in self._noises:
            output = self._part(graph) or self._output
            candidate = Candidate(graph if output is self._output else output.reference)
            variance = output.quantity(candidate).variance
            self._noises[id(graph)] = float(np.sqrt(np.median(variance))) if variance.size else 0.0
        return self._noises[id(graph)]

    def _part(self, graph: Graph) -> Output | None:
        """Return the groups as an output of a way alone; None where that can't be cut alike."""
        if self._groups is None or self._cut is None:
            return None
        if id(graph) not in self._parts:
            name, cut = self._output.name, cut_of(graph, self._output.name)
            self._parts[id(graph)] = None
            if cut and (cut.groups, cut.outputs[name]) == (
                self._cut.groups,
                self._cut.outputs[name],
            ):
                sample = Sample(graph, self._output.kernel.inputs, name, cut, self._groups)
                values = sample.part_of(self._output.values)
                kernel = TracedKernel([sample.part], sample.inputs)
                self._parts[id(graph)] = Output(kernel, name, values, self._output.form)
        return self._parts[id(graph)]


def has_sums(graph: Graph, output: str) -> bool:
    """Return whether the order of sums matters to an output."""
    families = {OPERATIONS[node.operation].family for node in graph.needed(output)}
    return bool(families & {"sum", "scan"})
