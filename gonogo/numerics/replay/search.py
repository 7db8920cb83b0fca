"""The search for the program of a kernel whose arithmetic nobody named.

A program is earned, not assumed: rows that were not used to find it must be reproduced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import Mode, ulp
from gonogo.numerics.replay.cells import cells
from gonogo.numerics.replay.graph import Graph
from gonogo.numerics.replay.program import Order, Program
from gonogo.numerics.replay.quantity import Quantity

ROWS, COLUMNS = 8, 192
"""The part of an output on which a program is sought; as many rows again check it.

Some quantities have a value per row: few rows would not show whether they are stored.
"""
MAX_MISMATCH = 1e-3
"""The largest share of elements outside their cells under a program that reproduces an output."""
MIN_DECIDED = 0.25
"""The least share of elements that a program built by a search must decide.

Where stored values are near ties, the replay allows a step either way; where a stored mean square
cancels against the mean, the noise allows anything. A program that is allowed that in nearly all
elements reproduces nothing.
"""
MIN_TRUNCATED = 0.75
"""The same of a program that truncates. On random inputs few values lie near the format's grid."""
LIMIT = 8.0
"""The distance from its cell, in standard deviations, up to which an element is reproduced."""
ALLOWED = 1 / 16
"""The largest allowance for near ties, in steps of the output, of an element that is decided.

A factor of .1 % moves bf16 outputs by an eighth to a quarter of a step.
"""
TRUNCATED_STEPS = (0.25, 0.75)
"""The median step by which a truncated output is smaller than its values, about a half."""
MAX_NEAR = 4
"""Nearly right programs from which the second search starts."""
MAX_HIDDEN = 0.2
"""The share of elements that a program may miss on the rows that check it: a value that is stored
besides may move some rows only."""
BEAM = 3
MAX_STEPS = 8
PROGRESS = 0.9
"""The factor by which a step must lower the loss for the search to go on."""
PROBED = 2
PROBED_COLUMNS = 16
PROBED_MISMATCH = 0.05
"""Rows on which a known program is tried first, the columns where there is one row, and the share
that it may miss there: a quick look spares the whole sample nearly all programs."""


@dataclass(frozen=True)
class Fit:
    """How well a program reproduces a sample."""

    program: Program
    mismatch: float
    """The share of elements outside their cells."""
    decided: float
    """The share of elements in which near ties and noise allow next to nothing."""
    quiet: float
    """The share of elements in which noise does."""
    gained: float
    """The same of the elements that a program which stores nothing misses; 1 if there are none."""
    loss: float
    """The mean distance from the cells, in steps of the output's format, at most 1 each."""


@dataclass(frozen=True)
class Sample:
    """A part of an output with its graph."""

    graph: Graph
    output: Array
    columns: NDArray[np.intp]
    form: str
    last: dict[str, tuple[Program, Quantity]] = field(
        default_factory=dict, init=False, compare=False, repr=False
    )
    """The last replay with its program: the next one may differ in the output's rounding only."""
    steps: dict[str, Array] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The steps of the output's elements, by format."""

    @cached_property
    def missed(self) -> NDArray[np.bool_]:
        """The elements outside their cells under the usual program, which stores nothing."""
        return self._replayed(self.graph.forms[0])[1]

    @property
    def is_truncated(self) -> bool:
        """Return whether the output is smaller than its values by half a step, as cut-off bits are.

        What a kernel rounds in between makes it as often larger as smaller.
        """
        values = self._replayed(self.graph.forms[0])[0].values
        with np.errstate(invalid="ignore"):
            less = (np.abs(values) - np.abs(self.output)) / self._step(self.form)
        least, most = TRUNCATED_STEPS
        return bool(least <= np.median(less) <= most)

    def fit(self, program: Program) -> Fit:
        """Return how well a program reproduces the sample."""
        replay, outside = self._replayed(program)
        step = self._step(self.form)
        steps = np.abs(self.output - replay.values) / step
        loss = np.where(outside, np.fmin(steps, 1.0), 0.0).mean()
        # beside a variance that cancels, or is 0, a program has noise without a limit
        narrow = next(iter(program.stored.values()), self.form)
        with np.errstate(over="ignore", invalid="ignore"):
            is_quiet = np.sqrt(replay.variance) <= ALLOWED * self._step(narrow)
        quiet = is_quiet
        if quiet.shape != outside.shape:
            quiet = np.broadcast_to(is_quiet, outside.shape)
        decided = quiet & (replay.slack <= ALLOWED * step)
        missed = np.count_nonzero(self.missed)
        gained = np.count_nonzero(decided & self.missed) / missed if missed else 1.0
        return Fit(
            program,
            float(np.count_nonzero(outside) / outside.size),
            float(np.count_nonzero(decided) / decided.size),
            float(np.count_nonzero(quiet) / quiet.size),
            gained,
            float(loss),
        )

    def mismatch(self, program: Program) -> float:
        """Return the share of elements that a program misses, as `fit` does."""
        outside = self._replayed(program)[1]
        return float(np.count_nonzero(outside) / outside.size)

    def missed_rows(self, program: Program) -> int:
        """Return the number of rows that a program doesn't reproduce."""
        return int(self._replayed(program)[1].any(axis=1).sum())

    def _replayed(self, program: Program) -> tuple[Quantity, NDArray[np.bool_]]:
        """Return the replay, and which elements are outside their cells."""
        before, replay = self.last.get("replay", (None, None))
        usual = program
        if program.output_rounding != "even":
            usual = replace(program, output_rounding="even")
        if replay is None or before != usual:
            with np.errstate(over="ignore", invalid="ignore"):  # fp16 squares overflow
                replay = self.graph.replay(program, self.columns, quick=True)
            self.last["replay"] = usual, replay
        distance = cells(self.output, replay, self.form, program.output_rounding).distance
        return replay, ~(distance <= LIMIT)

    def _step(self, form: str) -> Array:
        if form not in self.steps:
            self.steps[form] = ulp(self.output, form)
        return self.steps[form]


def samples(
    graph: Graph, output: NDArray[np.floating], form: str, telling: Sequence[int] = ()
) -> tuple[Sample, Sample, Sample]:
    """Return the sample to probe, the one to search, and the one to check.

    All are the same where there is one row. telling: rows to search besides those of the sample.
    """
    rows, count = graph.shape
    spread = np.linspace(0, rows - 1, min(rows, 2 * ROWS)).astype(np.intp)
    columns = np.unique(np.linspace(0, count - 1, min(count, COLUMNS)).astype(np.intp))

    def sample(chosen: NDArray[np.intp], columns: NDArray[np.intp] = columns) -> Sample:
        part = np.asarray(output[np.ix_(chosen, columns)], np.float64)
        return Sample(graph.some(chosen), part, columns, form)

    searched = np.unique(np.concatenate([spread[::2], np.asarray(telling, np.intp)]))
    if rows == 1:
        whole = sample(searched)
        return sample(searched, columns[:: -(-len(columns) // PROBED_COLUMNS)]), whole, whole
    return sample(searched[:PROBED]), sample(searched), sample(spread[1::2])


def candidates(
    graph: Graph,
    output: NDArray[np.floating],
    form: str,
    formats: Sequence[str],
    likely: Sequence[Program] = (),
) -> Iterator[Program]:
    """Yield the storing programs that reproduce the samples, those of known libraries first.

    formats: the formats in which a kernel may store, those of its tensors. likely: programs that
    are tried before those of libraries.
    """
    probed, searched, checked = samples(graph, output, form)

    def reproduces(program: Program) -> bool:
        return (
            probed.mismatch(program) <= PROBED_MISMATCH
            and (fit := searched.fit(program)).mismatch <= MAX_MISMATCH
            and fit.quiet >= MIN_DECIDED
            and checked.mismatch(program) <= MAX_MISMATCH
        )

    yield from filter(reproduces, likely)
    for format_ in formats:
        known = [
            replace(base, stored=dict.fromkeys(quantities, format_))
            for base, quantities in graph.known
        ]
        yield from filter(reproduces, chain(known, running(known)))
        yield from _built(searched, checked, format_)
        if form != "fp32" and searched.is_truncated:
            cut = [replace(base, output_rounding="zero") for base in known]
            built = _built(searched, checked, format_, "zero")
            yield from filter(_is_decided(searched), chain(filter(reproduces, cut), built))
        # exact values lie on the grid, where truncating may go either way: ties would fit anything
        truncated = filter(reproduces, _truncated([*graph.forms, *known], form))
        yield from filter(_is_decided(searched), truncated)


@dataclass
class Near:
    """Programs that reproduce an output but for some rows, which tell a search what they lack.

    Attributes:
        rows: those that they missed.
        programs: the programs, in the order in which they were tried.
    """

    rows: set[int] = field(default_factory=set)
    programs: list[Program] = field(default_factory=list)


def refined(graph: Graph, output: NDArray[np.floating], form: str, near: Near) -> Iterator[Program]:
    """Yield the programs that grow from nearly right ones and reproduce what those missed."""
    _, searched, checked = samples(graph, output, form, sorted(near.rows)[:ROWS])
    for program in near.programs[:MAX_NEAR]:
        built = _grown(searched, program, next(iter(program.stored.values())))
        if built is not None and _nearly(checked.fit(built)):
            yield built


def _is_decided(sample: Sample) -> Callable[[Program], bool]:
    """Return a check of truncating programs: whether ties with the grid decide few elements."""
    return lambda program: sample.fit(program).decided >= MIN_TRUNCATED


def _built(
    searched: Sample, checked: Sample, form: str, output: Mode = "even"
) -> Iterator[Program]:
    """Yield the programs of each form that a search builds and other rows confirm.

    output: how they round their output.
    """
    for usual in _bases(searched.graph):
        base = replace(usual, output_rounding=output)
        for built in (_grown(searched, base, form), _shrunk(searched, base, form)):
            if built is not None and _nearly(checked.fit(built)):
                yield built


def _bases(graph: Graph) -> list[Program]:
    """Return the programs that a search grows: each form, also with the variance from x itself.

    While nothing is stored, that is the same. A kernel that stores its mean may take the variance
    from x before.
    """
    apart = [
        replace(base, variance="x")
        for base in graph.forms
        if base.variance == Program.variance and "mean" in graph.storable(base)
    ]
    return [*graph.forms, *(base for base in apart if base not in graph.forms)]


def running(programs: Iterable[Program]) -> Iterator[Program]:
    """Yield the programs whose sums stay in fp32, with running sums and means."""
    for order in (Order.running, Order.running_mean):
        for program in programs:
            if not any(name.startswith("sum") for name in program.stored):
                yield replace(program, order=order)


def _truncated(programs: Iterable[Program], form: str) -> Iterator[Program]:
    """Yield the programs with truncated stored values, and with outputs of either rounding."""
    outputs: tuple[Mode, ...] = ("even",) if form == "fp32" else ("zero", "even")
    for program in programs:
        for mode in outputs:
            if program.stored or mode != "even":
                yield replace(program, rounding="zero", output_rounding=mode)


def _earned(fit: Fit) -> bool:
    """Return whether a program that a search built reproduces a sample: by its values, not ties.

    Where a program that stores nothing misses one row only, such as a stale one, ties that allow
    everything in that row are no reason for another arithmetic.
    """
    return fit.mismatch <= MAX_MISMATCH and min(fit.decided, fit.gained) >= MIN_DECIDED


def _nearly(fit: Fit) -> bool:
    """Return whether a program is worth trying on a whole output, whose rows it must reproduce.

    Those that it misses tell the second search what the first sample hid.
    """
    return fit.mismatch <= MAX_HIDDEN and fit.decided >= MIN_DECIDED


def _grown(sample: Sample, base: Program, form: str) -> Program | None:
    """Return a program that reproduces the sample: what `base` stores, and then more."""

    def larger(stored: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        for name in sample.graph.storable(base):
            if name not in stored:
                yield {**stored, name: form}

    return _climbed(sample, base, larger)


def _shrunk(sample: Sample, base: Program, form: str) -> Program | None:
    """Return a program of this form that reproduces the sample: every value stored, then fewer.

    So a composite stores, whose operations each give a tensor.
    """
    names = [name for name in sample.graph.storable(base) if not name.startswith("sum")]

    def smaller(stored: Mapping[str, str]) -> Iterator[Mapping[str, str]]:
        for name in stored:
            yield {other: form for other, form in stored.items() if other != name}

    return _climbed(sample, replace(base, stored=dict.fromkeys(names, form)), smaller)


def _climbed(
    sample: Sample,
    start: Program,
    steps: Callable[[Mapping[str, str]], Iterator[Mapping[str, str]]],
) -> Program | None:
    """Return a program that reproduces the sample, reached from a first one step by step."""
    beam = [sample.fit(start)]
    for _ in range(MAX_STEPS):
        best = beam[0]
        if _earned(best):
            return best.program
        fits: dict[frozenset[str], Fit] = {}
        for fit in beam:
            for stored in steps(fit.program.stored):
                key = frozenset(stored)
                if key not in fits:
                    fits[key] = sample.fit(replace(start, stored=stored))
        ranked = sorted(fits.values(), key=lambda fit: (fit.loss, fit.mismatch))
        if not ranked or ranked[0].loss > PROGRESS * best.loss:
            return None
        beam = ranked[:BEAM]
    return beam[0].program if _earned(beam[0]) else None
