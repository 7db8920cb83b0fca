"""Fits: an output beside what one arithmetic gives for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from gonogo.arithmetic import Inputs, Program, Quantity, Replay, exact
from gonogo.arithmetic.evaluation import Array
from gonogo.arithmetic.formats import Doubles
from gonogo.graph import OPERATIONS, Graph
from gonogo.judgment.cells import LIMIT, Cells
from gonogo.judgment.common import MAX_COMMON, Common, common_of_cells, common_of_groups
from gonogo.judgment.shared import shared_errors

PLAIN = Program()


@dataclass(frozen=True)
class Candidate:
    """An arithmetic: a way to compute a kernel, and a program."""

    graph: Graph
    program: Program = PLAIN


@dataclass
class Kernel:
    """A kernel: its inputs, and how it may have computed.

    Attributes:
        graphs: the reference, then other ways to compute the same.
        inputs: its tensors by name.
        narrow: the 16-bit formats of its tensors, in which it may store.
        programs: those that the build declares, of the reference; then nothing else explains it.
    """

    graphs: Sequence[Graph]
    inputs: Inputs
    narrow: Sequence[str] = ()
    programs: Sequence[Program] = ()
    _replays: dict[tuple[int, str], Replay] = field(default_factory=dict, repr=False)
    _exact: dict[tuple[int, str], Mapping[int, Array]] = field(default_factory=dict, repr=False)

    def replay(self, candidate: Candidate) -> Replay:
        """Return a replay; those in which nothing is stored are kept, for other outputs too."""
        graph, program = candidate.graph, candidate.program
        key = id(graph), program.order
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
    """An output that a kernel gave: its name, its values as float64, and their format."""

    kernel: Kernel
    name: str
    values: Doubles
    form: str

    @property
    def reference(self) -> Graph:
        """The graph of the reference."""
        return self.kernel.graphs[0]

    @property
    def ways(self) -> list[Graph]:
        """The graphs that have this output."""
        return [graph for graph in self.kernel.graphs if self.name in graph.outputs]

    @cached_property
    def exact(self) -> Doubles:
        """The reference's value."""
        node = self.reference.outputs[self.name]
        return self.kernel.exact(self.reference, self.name)[node.id].astype(np.float64)

    def quantity(self, candidate: Candidate) -> Quantity:
        """Return an arithmetic's quantity of the output."""
        return self.kernel.replay(candidate).run(self.name)

    def cells(self, candidate: Candidate) -> Cells:
        """Return the cells beside an arithmetic's quantity."""
        quantity = self.quantity(candidate)
        return Cells(self.values, quantity, self.form, candidate.program.flush)

    def fit(self, candidate: Candidate) -> Fit:
        """Return how well an arithmetic explains the output.

        What groups share is looked at where no element decides: in fp32, and under unknown orders,
        by groups; in 16 bits, where an element says little, by all cells.
        """
        replay = self.kernel.replay(candidate)
        quantity = replay.run(self.name)
        cells = Cells(self.values, quantity, self.form, candidate.program.flush)
        if cells.largest > 2 * LIMIT or not quantity.shared:
            return Fit(candidate, cells)
        with np.errstate(all="ignore"):
            if self.form != "fp32" and not candidate.program.narrow:
                return Fit(candidate, cells, common=tuple(common_of_cells(replay, cells)))
            estimates = shared_errors(cells)
            shared = max((estimate.largest for estimate in estimates), default=0.0)
            return Fit(candidate, cells, shared, tuple(common_of_groups(replay, estimates)))


@dataclass(frozen=True)
class Fit:
    """How well an arithmetic explains an output.

    Attributes:
        candidate: the arithmetic.
        cells: the output beside its replay.
        shared: the largest error that a group shares, in its deviations.
        common: the factors that all groups share.
    """

    candidate: Candidate
    cells: Cells
    shared: float = 0.0
    common: tuple[Common, ...] = ()

    @property
    def size(self) -> float:
        """The largest of distance, shared error and common factor, in units of LIMIT's deviations.

        It is no size of an error: where a program leaves no noise, it is 0 or huge.
        """
        largest = max((factor.size for factor in self.common), default=0.0)
        return max(self.cells.largest, self.shared, LIMIT / MAX_COMMON * largest)

    @property
    def is_explained(self) -> bool:
        """Whether the arithmetic explains the output."""
        return self.size <= LIMIT


def has_sums(graph: Graph, output: str) -> bool:
    """Return whether the order of sums matters to an output."""
    families = {OPERATIONS[node.operation].family for node in graph.needed(output)}
    return bool(families & {"sum", "scan"})
