"""Diagnosis: the fault of a kernel that takes away most of the misfit between output and replay.

All faults of the table are tried on a few groups, the best ones again on more groups. Where none
takes away most of the misfit, no term is named, and the places of the wrong values are said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gonogo.arithmetic import Inputs, Quantity
from gonogo.arithmetic.program import NOTHING_STORED, Program
from gonogo.faults.changes import SMALL, Array, Edit, Fault, Moved
from gonogo.faults.table import faults, is_of_input
from gonogo.graph import Graph
from gonogo.judgment import tiles
from gonogo.judgment.cells import Cells
from gonogo.judgment.effects import Effects
from gonogo.judgment.places import Places, places_of
from gonogo.judgment.pooling import NAMED
from gonogo.judgment.sample import Sample, some_groups, with_worst

CERTAIN = 0.97
"""The share from which on nothing else is tried."""
PAIRED = 0.9
"""The share that two faults at once must take away to be named: there are many pairs."""
FITTED_PENALTY = 0.02
"""The share that a fault loses because its size is fitted: a number explains some misfit."""
TIE = 0.003
"""Shares that differ by less are a tie."""
DIGITS = 4
"""Digits of a share that count: in further ones, processors differ."""
MAX_REGION = 0.5
"""The share of an output up to which its wrong values are a region of their own."""
MIN_MOVED = 16
"""Values that a fitted fault must move: one number explains one number."""
SCREENED, CONFIRMED = 2**13, 2**15
"""Elements of the widest value of a sample on which all faults are tried, and the best ones."""
MIN_VALUES = 16
"""Values of the output that a sample has at least."""
CONFIRMED_FAULTS, ALIGNED_FAULTS = 64, 32
"""Faults that are tried on the larger sample and in pairs, by share and by direction."""
TRIED_PAIRS = 32
"""Pairs whose share is computed: those that leave the least error, in squares."""
BEST = 3
"""The best faults that a seed keeps, by which seeds are pooled."""
STEPS = 4
"""Refinements of a fitted size on the real effect."""
WORTH = 0.02
"""The share that a fitted fault's first size must take away for it to be refined."""


@dataclass(frozen=True)
class RankedFault:
    """A fault that may be the reason.

    Attributes:
        fault: with its size, if it is fitted.
        size: that size; 1 for other faults.
        share: of the misfit, that it takes away.
        moved: the share of the output's values that it moves.
        width: elements of the value that is wrong.
        is_fitted: whether the size is fitted.
        is_refuted: whether values that are right say that it isn't the reason; not alone.
    """

    fault: Fault
    size: float
    share: float
    moved: float
    width: int
    is_fitted: bool = False
    is_refuted: bool = False

    @property
    def rank(self) -> float:
        """The share, less what a fitted number may explain; half of it where it is refuted."""
        return (self.share - FITTED_PENALTY * self.is_fitted) / (1 + self.is_refuted)


@dataclass(frozen=True)
class Diagnosis:
    """The answer to what is wrong with an output.

    Attributes:
        fault: the fault that is named; None if none takes away enough of the misfit.
        size: its fitted size; 1 for other faults.
        share: of the misfit, that the best fault takes away, or both faults; 0 if there is none.
        message: for people: the fault and its share, else the places.
        best: the best faults alone, with their shares, whether one is named or not.
        second: a second fault, which the output has at the same time.
        places: where the wrong values lie.
        graph: whose faults they are.
    """

    fault: Fault | None
    size: float
    share: float
    message: str
    best: tuple[RankedFault, ...]
    second: Fault | None
    places: Places
    graph: Graph


def diagnose(
    graph: Graph,
    inputs: Inputs,
    output: str,
    values: Array,
    form: str,
    quantity: Quantity,
    program: Program = NOTHING_STORED,
) -> Diagnosis:
    """Return the diagnosis of an output.

    Args:
        graph: the kernel.
        inputs: its tensors by name.
        output: the output's name.
        values: the output.
        form: the format of the values.
        quantity: the replay's quantity of the output.
        program: the program that was replayed: a wrong kernel stores the same values.
    """
    cells = Cells(np.asarray(values, np.float64), quantity, form, program.flush)
    places = places_of(cells.outside, cells.values, quantity.values)
    search = _Search(graph, inputs, output, cells, program)
    ranked_faults = search.ranked()
    pair = search.pair(ranked_faults)
    if pair is not None:
        (first, second), share = pair
        message = f"{first.fault.label}, and {second.fault.label}: explains {_percent(share)}."
        return Diagnosis(
            first.fault,
            first.size,
            share,
            message,
            tuple(ranked_faults[:BEST]),
            second.fault,
            places,
            graph,
        )
    best = ranked_faults[0] if ranked_faults else None
    share = max(best.rank if best.is_refuted else best.share, 0.0) if best else 0.0
    if best is not None and share >= NAMED and not best.is_refuted:
        message = f"{best.fault.label}: explains {_percent(share)}."
        return Diagnosis(
            best.fault, best.size, share, message, tuple(ranked_faults[:BEST]), None, places, graph
        )
    if not search.factors() and not places.content:
        within = search.within(places)
        if within is not None:
            message = f"{within.fault.label}, {places.where}: explains {_percent(within.share)}."
            return Diagnosis(
                within.fault, within.size, within.share, message, (within,), None, places, graph
            )
    message = " ".join([search.factors(), places.sentence]).strip()
    return Diagnosis(None, 1.0, share, message, tuple(ranked_faults[:BEST]), None, places, graph)


def _percent(share: float) -> str:
    return f"{100 * min(share, 0.9999):.3g} % of the misfit"


class _Search:
    """The search of an output's faults."""

    def __init__(
        self, graph: Graph, inputs: Inputs, output: str, cells: Cells, program: Program
    ) -> None:
        self.graph, self.output, self.cells = graph, output, cells

        def effects(elements: int) -> Effects:
            cut, groups = some_groups(graph, output, elements, MIN_VALUES)
            if cut is not None and groups is not None:
                groups = with_worst(cells.distance, cut.outputs[output], cut.groups, groups)
            return Effects(Sample(graph, inputs, output, cut, groups, program), cells)

        self.few, self.more = effects(SCREENED), effects(CONFIRMED)
        self.sums: list[tiles.SumErrors] = []

    def ranked(self) -> list[RankedFault]:
        """Return faults by what they take away, the best one first."""
        table = faults(self.graph, self.output)
        ranked_faults = _sorted(self._tried(table, self.few))
        if not ranked_faults or ranked_faults[0].share < CERTAIN:
            self.sums = tiles.sum_errors(self.graph, self.few)
            proposed = [fault for errors in self.sums for fault in errors.faults()]
            ranked_faults = _sorted([*ranked_faults, *self._tried(proposed, self.few)])
        chosen = self._chosen(ranked_faults)
        if self.more.size == self.few.size:
            return _sorted(chosen)
        return _sorted(self._tried([one.fault for one in chosen], self.more, chosen))

    def within(self, places: Places) -> RankedFault | None:
        """Return the fault that a kernel has where its wrong values lie, and nowhere else."""
        shape = self.cells.values.shape
        if len(shape) < 2 or len(places.rows) * len(places.columns) > MAX_REGION * places.total:
            return None
        region = np.zeros((places.total // shape[-1], shape[-1]), bool)
        region[np.ix_(places.rows, places.columns)] = True
        effects = Effects(self.few.sample, self.cells, region.reshape(shape))
        ranked_faults = _sorted(self._tried(faults(self.graph, self.output), effects))
        if not ranked_faults or ranked_faults[0].share < NAMED or ranked_faults[0].is_refuted:
            return None
        return ranked_faults[0]

    def _chosen(self, ranked_faults: list[RankedFault]) -> list[RankedFault]:
        """Return the faults that are best, and those that point best to what the best one leaves.

        Of two faults that a kernel has, one may take away nothing alone.
        """
        best, others = ranked_faults[:CONFIRMED_FAULTS], ranked_faults[CONFIRMED_FAULTS:]
        if not others or best[0].share >= CERTAIN:
            return best
        effect = self.few.of
        left = self.few.error - effect(best[0].fault)
        others.sort(key=lambda one: self.few.alignment(effect(one.fault), left), reverse=True)
        return [*best, *others[:ALIGNED_FAULTS]]

    def _tried(
        self, table: Iterable[Fault], effects: Effects, sized: Sequence[RankedFault] = ()
    ) -> list[RankedFault]:
        """Return the faults of a table that move the output."""
        known = {id(candidate.fault): candidate for candidate in sized}
        ranked_faults = []
        for fault in table:
            before = known.get(id(fault))
            if before is not None and before.is_fitted:
                fault = fault.sized(before.size)
            candidate = self._of_fault(fault, effects)
            if candidate is not None:
                fitted = before is not None and before.is_fitted
                size = before.size if before is not None else candidate.size
                candidate = replace(candidate, size=size, is_fitted=fitted) if fitted else candidate
                if candidate.share > WORTH and effects.refutes(effects.of(candidate.fault)):
                    candidate = replace(candidate, is_refuted=True)
                ranked_faults.append(candidate)
        return ranked_faults

    def _of_fault(self, fault: Fault, effects: Effects) -> RankedFault | None:
        effect = effects.of(fault)
        moved = float(np.count_nonzero(effect) / max(effect.size, 1))
        if not moved:
            return None
        width = min(
            int(np.prod((edit.changed if isinstance(edit, Edit) else self.graph.nodes[at]).shape))
            for at, edit in fault.edits.items()
        )
        if not fault.is_fitted:
            return RankedFault(fault, 1.0, effects.share(effect), moved, width)
        if moved * int(np.prod(self.graph.outputs[self.output].shape)) < MIN_MOVED:
            return None
        size = effects.multiple(effect) * SMALL
        if not np.isfinite(size) or not size:
            return None
        best = RankedFault(fault.sized(size), size, -np.inf, moved, width, is_fitted=True)
        for _ in range(STEPS):
            sized = fault.sized(size)
            effect = effects.computed(sized)
            share = effects.share(effect)
            if not share > best.share + TIE / 10:
                break
            best = replace(best, fault=sized, size=size, share=share)
            size *= effects.multiple(effect)
            if share < WORTH and abs(size) < WORTH:
                break
        return best

    def pair(
        self, ranked_faults: Sequence[RankedFault]
    ) -> tuple[tuple[RankedFault, RankedFault], float] | None:
        """Return two faults that together take away what none does alone, and their share."""
        if not ranked_faults or ranked_faults[0].rank >= CERTAIN - FITTED_PENALTY:
            return None
        effects = self.more
        moves = [effects.of(candidate.fault) for candidate in ranked_faults]
        left = effects.left_by_pairs(moves)
        firsts, seconds = np.triu_indices(
            len(moves) if ranked_faults[0].rank < NAMED else 1, 1, len(moves)
        )
        order = left[firsts, seconds].argsort()
        tried = []
        for first, second in zip(firsts[order], seconds[order], strict=True):
            if not set(ranked_faults[first].fault.edits) & set(ranked_faults[second].fault.edits):
                with np.errstate(invalid="ignore"):  # what is infinite in both
                    share = effects.share(moves[first] + moves[second])
                tried.append((share, ranked_faults[first], ranked_faults[second]))
            if len(tried) == TRIED_PAIRS:
                break
        tried.sort(
            key=lambda one: (-round(one[0], DIGITS), _order_of_tie(one[1]), _order_of_tie(one[2]))
        )
        for _, first, second in tried[:3]:
            both = Fault("", "", {**first.fault.edits, **second.fault.edits})
            effect = effects.of(both)
            share = 0.0 if effects.refutes(effect) else effects.share(effect)
            alone = ranked_faults[0].share
            if share >= PAIRED and 1 - share <= (1 - NAMED) * (1 - alone):
                first, second = sorted((first, second), key=lambda candidate: -candidate.share)
                return (first, second), share
        return None

    def factors(self) -> str:
        """Return which sum is wrong by another factor in each group, if that is so."""
        fits = [errors for errors in self.sums if errors.is_free and errors.share >= PAIRED]
        return max(fits, key=lambda errors: errors.share).sentence if fits else ""


def _sorted(ranked_faults: Iterable[RankedFault]) -> list[RankedFault]:
    """Return faults from the best to the worst.

    Of a tie, the first is that which moves fewer values, then that of the smaller value, then that
    which is closest to the output: rstd comes before root and before xhat. But where elements stand
    in the place of others, it is an input: it was read there.
    """
    ranked = sorted(ranked_faults, key=lambda one: (-round(one.rank, DIGITS), *_order_of_tie(one)))
    if not ranked:
        return []
    top = [candidate for candidate in ranked if candidate.rank >= ranked[0].rank - TIE]
    return sorted(top, key=_order_of_tie) + ranked[len(top) :]


def _order_of_tie(candidate: RankedFault) -> tuple[float, int, bool, int]:
    fault = candidate.fault
    is_moved = any(
        isinstance(e, Edit) and isinstance(e.change, Moved) for e in fault.edits.values()
    )
    is_read = is_moved and is_of_input(fault)
    return round(candidate.moved, 2), candidate.width, not is_read, -max(fault.edits)
