"""The arithmetic model of each output by replay: found, or one of the programs that are named."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.few_rows import STEP, hides_step
from gonogo.judging.limits.detection import DetectionLimits, detection_limits
from gonogo.judging.limits.epsilon import Sight
from gonogo.judging.limits.stand_ins import simpler_program
from gonogo.judging.named import programs
from gonogo.judging.other_programs import other_programs
from gonogo.judging.term_shares import TermShare, diagnose
from gonogo.judging.tolerance_advice import ToleranceAdvice, advise
from gonogo.kernels import registry
from gonogo.numerics.formats import NARROW
from gonogo.numerics.replay import ladder
from gonogo.numerics.replay.cells import on_grid
from gonogo.numerics.replay.graph import ALL_COLUMNS, Graph
from gonogo.numerics.replay.missed import find_missed, has_rows, known_programs
from gonogo.numerics.replay.program import Program
from gonogo.numerics.replay.walks import Summed, is_walk
from gonogo.spec import arithmetic_words, missed_rows
from gonogo.spec.arithmetic_names import NamedArithmetic
from gonogo.spec.arithmetic_words import UNKNOWN
from gonogo.spec.missed_rows import MissedRows
from gonogo.spec.program_name import ProgramName, same
from gonogo.spec.test_spec import TestSpec

REPLAYABLE = frozenset({"fp32", *NARROW})
ADVISED_ELEMENTS = 2**16
"""Elements from which the advice on a tolerance is computed, in whole rows."""
ADVISED_COLUMNS = 256
"""The most columns of an output of one row from which it is computed, spread evenly."""
MIN_RED_RATE = 1e-6
"""A lower rate of red seeds needs no advice."""


@dataclass(frozen=True)
class Ruling:
    """The ruling of the replay on an output.

    Attributes:
        finding: the nearest program, of those that are named.
        fault: the fault that explains most of the error, where no program explains the output.
        reproduced_by: another program than the named ones, which reproduces the output where they
            don't.
        limits: the faults that could not have shown; None where no program explains the output.
        missed: the rows that the nearest storing program misses; None where no such program
            reproduces most of the rows.
        others: the names of other programs that explain the output, where it is small.
        advice: the tolerance to take; None where today's is never in a right kernel's way.
    """

    finding: ladder.Finding
    fault: TermShare | None = None
    reproduced_by: str | None = None
    limits: DetectionLimits | None = None
    advice: ToleranceAdvice | None = None
    missed: MissedRows | None = None
    others: tuple[str, ...] = ()

    @property
    def is_open(self) -> bool:
        """Return whether no program reproduces the output, named or not."""
        return not self.finding.explained and self.reproduced_by is None

    @property
    def is_loose(self) -> bool:
        """Return whether it is open, or explained by an order of sums that nobody knows."""
        return self.is_open or (self.finding.explained and is_walk(self.finding.program))

    @property
    def name(self) -> str:
        """Return the program that reproduces the output, named or not; "unknown": there is none."""
        if self.finding.explained:
            return self.finding.program.name
        return self.reproduced_by or UNKNOWN

    def statistics(self) -> dict[str, Any]:
        """Return it as statistics of the output."""
        numbers = self.finding.statistics()
        if self.reproduced_by is not None:
            numbers["reproduced_by"] = self.reproduced_by
        if self.fault is not None:
            numbers["fault"] = self.fault.sentence
            if self.fault.is_coherent:
                numbers["fault_share"] = self.fault.share
        if self.limits is not None:
            numbers |= self.limits.statistics()
        if self.advice is not None:
            numbers |= {"red_rate": self.advice.red_rate, "advice": self.advice.sentence}
        if self.missed is not None:
            rows = asdict(self.missed)
            del rows["seeds"]  # these are one seed's statistics
            numbers[missed_rows.NAME] = rows
        if self.others:
            numbers[arithmetic_words.OTHERS] = list(self.others)
        return numbers


def rulings(
    test: TestSpec,
    raw: Mapping[str, NDArray[Any]],
    given: Mapping[str, NDArray[Any]],
    outputs: Mapping[str, NDArray[np.float32]],
    named: NamedArithmetic | None,
) -> dict[str, Ruling]:
    """Return the ruling on each output that can be replayed.

    Left out are outputs that hold NaN or Inf, and tests with block formats, which only a Wormhole
    has.

    Args:
        test: the test.
        raw: as for judging.judge.
        given: as for judging.judge.
        outputs: as matrices (see judging.matrix).
        named: the programs that may explain an output; None: any that the ladder finds.
    """
    formats = {test.numerics.output, *_inputs(test)}
    if not formats <= REPLAYABLE:
        return {}
    narrow = [form for form in NARROW if form in formats]
    numerics = registry.numerics(test)
    graphs = numerics.graphs(test, given)

    @cache
    def exact_graphs() -> Mapping[str, Graph]:
        if _inputs(test) == {"fp32"} and all(
            np.array_equal(raw[name], given[name]) for name in raw
        ):
            return graphs  # rounding changed nothing; the sums of these inputs are known by now
        return numerics.graphs(test, raw)

    ruled: dict[str, Ruling] = {}
    # sums down the columns last: the program of another output says what the kernel stores
    for name in sorted(outputs, key=lambda name: isinstance(graphs.get(name), Summed)):
        output = outputs[name]
        if name not in graphs or not np.isfinite(output).all():
            continue
        matrix = output.reshape(-1, 1) if test.is_per_row(name) else output
        form = _format(matrix, test.numerics.output)
        permitted = () if named is None else named.permitted(name)
        finding, other = (
            _by_name(graphs[name], matrix, form, narrow, permitted)
            if permitted
            else (_climb(graphs[name], matrix, form, narrow, _likely(graphs, ruled, name)), None)
        )
        if other is not None:
            ruled[name] = Ruling(finding, reproduced_by=other)
        else:
            ruled[name] = replace(
                _ruling(test, name, graphs[name], exact_graphs, matrix, finding, form, narrow),
                missed=_missed(graphs[name], matrix, form, finding, permitted, narrow),
                others=_others(test, graphs[name], matrix, form, finding, narrow),
            )
    ruled = {name: ruled[name] for name in outputs if name in ruled}
    if any(ruling.finding.is_at_random for ruling in ruled.values()):
        for name in [name for name, ruling in ruled.items() if ruling.is_loose]:
            matrix = outputs[name].reshape(-1, 1) if test.is_per_row(name) else outputs[name]
            form = _format(matrix, test.numerics.output)
            too = ladder.at_random_too(graphs[name], matrix, form)
            if too is not None:
                ruled[name] = _ruling(
                    test, name, graphs[name], exact_graphs, matrix, too, form, narrow
                )
    # a kernel computes rstd once: the output that shows its epsilon shows that of all outputs
    known = {name: ruling.limits for name, ruling in ruled.items() if ruling.limits is not None}
    if all(limits.sight is not Sight.seen for limits in known.values()):
        for name, limits in known.items():
            ruled[name] = replace(ruled[name], limits=limits.with_epsilon())
    return ruled


def _climb(
    graph: Graph,
    output: NDArray[np.float32],
    form: str,
    narrow: Sequence[str],
    likely: Sequence[Program],
) -> ladder.Finding:
    """Return what the ladder finds, unless that program stands in for a fault."""
    finding = ladder.climb(graph, output, form, narrow, likely)
    if not finding.explained or finding.program.stored:
        return finding
    simpler = simpler_program(graph, output, finding.program, form)
    return finding if simpler is None else ladder.nearest(graph, output, form, [simpler])


def _likely(
    graphs: Mapping[str, Graph], ruled: Mapping[str, Ruling], name: str
) -> tuple[Program, ...]:
    """Return the programs that an output has if it is computed as those before it are."""
    graph = graphs[name]
    if not isinstance(graph, Summed):
        return ()
    return tuple(
        program
        for ruling in ruled.values()
        if ruling.finding.explained
        for program in graph.of_same_kernel(ruling.finding.program)
    )


def _others(
    test: TestSpec,
    graph: Graph,
    output: NDArray[np.float32],
    form: str,
    finding: ladder.Finding,
    narrow: Sequence[str],
) -> tuple[str, ...]:
    if not finding.explained:
        return ()
    elements = test.rows * test.features
    return other_programs(graph, output, form, narrow, finding.program, elements)


def _missed(
    graph: Graph,
    output: NDArray[np.float32],
    form: str,
    finding: ladder.Finding,
    permitted: Sequence[ProgramName],
    narrow: Sequence[str],
) -> MissedRows | None:
    """Return the rows that the nearest storing program misses, of the permitted ones if any are."""
    if finding.explained:
        is_counted = finding.program.stored and has_rows(graph)
        nearest = (finding.program, 0) if is_counted else None
    elif permitted:
        allowed = (program for name in permitted for program in programs(graph, name, narrow))
        nearest = find_missed(graph, output, form, allowed)
    else:
        tried = chain([finding.program], known_programs(graph, narrow))
        nearest = find_missed(graph, output, form, tried)
    return None if nearest is None else MissedRows(nearest[0].name, nearest[1], graph.shape[0])


def _by_name(
    graph: Graph,
    output: NDArray[np.float32],
    form: str,
    narrow: Sequence[str],
    permitted: Sequence[ProgramName],
) -> tuple[ladder.Finding, str | None]:
    """Return the nearest of the permitted programs, and another one that reproduces the output.

    One that the output can't tell from a permitted one is permitted, too.
    """
    allowed = [program for name in permitted for program in programs(graph, name, narrow)]
    finding = ladder.nearest(graph, output, form, allowed)
    if finding.explained:
        return finding, None
    other = ladder.climb(graph, output, form, narrow)
    if not other.explained:
        return finding, None
    if any(same(other.program.name, program.name) for program in allowed):
        return other, None
    return finding, other.program.name


def _ruling(
    test: TestSpec,
    name: str,
    graph: Graph,
    exact_graphs: Callable[[], Mapping[str, Graph]],
    output: NDArray[np.float32],
    finding: ladder.Finding,
    form: str,
    narrow: Sequence[str],
) -> Ruling:
    if not finding.explained:
        return Ruling(finding, fault=diagnose(graph, output, form, finding.program))
    limits = detection_limits(graph, output, finding.program, form)
    if hides_step(graph, finding.program, narrow):
        limits = replace(limits, terms=(*limits.terms, STEP))
    tolerance = test.tolerance_for(name)
    is_random = finding.program.output_rounding == "random"  # the advice knows half steps only
    if tolerance is None or tolerance.allclose is None or is_random:
        return Ruling(finding, limits=limits)
    rows, features = output.shape
    count = max(1, min(rows, ADVISED_ELEMENTS // features))
    chosen = np.unique(np.linspace(0, rows - 1, count).astype(np.intp))
    # the columns of a single row may be sums over all rows of the inputs
    columns = slice(None, None, -(-features // ADVISED_COLUMNS)) if rows == 1 else ALL_COLUMNS
    # tolerances compare with the function of the inputs before they were rounded to their formats
    part, exact = graph, exact_graphs()[name]
    if count < rows:
        part, exact = part.some(chosen), exact.some(chosen)
    advice = advise(
        output[chosen][:, columns],
        exact.replay(exact.forms[0], columns).values,
        part.replay(finding.program, columns),
        form,
        tolerance.allclose,
        output.size,
    )
    needed = advice.red_rate > MIN_RED_RATE
    return Ruling(finding, limits=limits, advice=advice if needed else None)


def _inputs(test: TestSpec) -> set[str]:
    given = test.numerics.input
    return {given} if isinstance(given, str) else set(given.values())


def _format(output: NDArray[np.float32], declared: str) -> str:
    """Return the declared format, or fp32 where the values aren't on its grid."""
    if declared == "fp32":
        return declared
    return declared if on_grid(output, declared) else "fp32"
