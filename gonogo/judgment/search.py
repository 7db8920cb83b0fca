"""Stored values: which of a kernel's values are kept in a 16-bit format, rounded or truncated.

A beam of programs changes a value at a time, from none stored and from all stored. What is found on
some groups of the tensors has to reproduce other groups, and is sought again on those it misses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from gonogo.arithmetic import Evaluation, Program, Replay
from gonogo.arithmetic.formats import Doubles, format_and_mode, round_to, step
from gonogo.arithmetic.program import DIVISOR, TOTAL, USE
from gonogo.arithmetic.quantity import ZERO
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.graph.operations import decode_constant
from gonogo.judgment.cells import LIMIT, Cells
from gonogo.judgment.fits import Candidate, Output, has_sums
from gonogo.judgment.parts import OutputPart, missed_part, parts

BEAM = 3
"""Programs that each round keeps."""
PROGRESS = 0.9
"""A round must lower the loss to this share of it."""
MAX_MISMATCH = 1e-3
"""The share of elements that a found program may miss where it was sought."""
MAX_NEAR_TIES = 1e-2
"""The same without the slack of near ties."""
MAX_HIDDEN = 0.2
"""The same on other groups: near ties that slack doesn't cover differ from row to row."""
MIN_DECIDED = 0.25
"""The share of elements that a found program must decide, neither by slack nor by noise."""
SHARP = 1 / 16
"""Slack and deviation, in steps of the output, up to which it decides an element."""

MOST_OFF = 10.0
"""The loss of an element that is off by 2^10 steps or more, or isn't finite."""
MAX_CLOSE = 0.1
"""The share of elements that stored values may miss for two changes at once to be tried."""
FAR = 8.0
"""How much farther from an output a program may be that stores everything, to search from there."""
MAX_FAR = 3
"""Changes after which a search ends whose best program is worse than to store nothing."""
REFINED = 3
"""Times that a found program is sought again where it misses most."""
TOTALS = (
    "running", "4 lanes",
    *(f"{threads} parts" for threads in (*range(2, 9), 10, 12, 14, 16, 20, 24, 28, 32, 48, 64, 96)),
)  # fmt: skip
"""How libraries on a CPU add 16-bit totals: one by one, in vectors, or on as many threads as its
processor has."""
TRIED_TOTALS = 2
"""How many of them are tried: the closest ones."""

Stored = frozenset[str]


@dataclass(frozen=True, order=True)
class _Loss:
    """How far a program is from a part of an output.

    Attributes:
        off: the mean of log2(1 + error / step) over the elements, 0 for those in their cells.
        mismatch: the share of these elements.
    """

    off: float
    mismatch: float


def stored_programs(
    output: Output, graph: Graph, store: str, shift: Doubles = ZERO, totals: str = ""
) -> Iterator[Candidate]:
    """Yield programs of a way that store values and reproduce other groups.

    store: a format, and its rounding if that isn't to nearest even, as a program has it; the output
    itself is then a stored value, too.
    shift: what a fault changes in the output: the rest of the arithmetic is then sought beside it.
    totals: how sums are added whose totals are stored, too, as a program has it; "": none are.
    """
    search = _Search(output, graph, store, shift, totals)
    yield from (search.candidate(stored) for stored in search.complete() if search.is_found(stored))
    for start in search.starts():
        stored = search.near(search.losses, start)
        if search.is_found(stored):
            candidate = search.candidate(search.refined(stored))
            yield candidate
            if has_sums(graph, output.name):
                yield replace(candidate, program=replace(candidate.program, order="running"))
            return


def closest_totals(output: Output, form: str) -> list[str]:
    """Return how the totals of the sum that an output is may be stored, the closest first.

    Those are left out that bring the groups with the most misfit no closer.
    """
    graph = output.reference
    last = last_sum(graph, output.name)
    if last is None:
        return []
    part = missed_part(output, graph, ZERO, output.cells(Candidate(graph)).distance)
    losses = _Losses(part, form, output.form, "running")
    stored = frozenset({last.key + TOTAL})
    off = {totals: losses.of(program_of(stored, form, totals)).off for totals in TOTALS}
    most = PROGRESS * losses[frozenset()].off
    return sorted((one for one in TOTALS if off[one] <= most), key=off.__getitem__)[:TRIED_TOTALS]


class _Search:
    """The search for the values that a way stores."""

    def __init__(
        self, output: Output, graph: Graph, store: str, shift: Doubles, totals: str
    ) -> None:
        self.output, self.graph, self.store, self.shift = output, graph, store, shift
        self.totals = totals
        self.searched, self.confirmed = parts(output, graph, shift)
        self.keys = storable(self.searched.sample.part, output.name, store, bool(totals))
        self.losses = self.losses_on(self.searched)

    def complete(self) -> list[Stored]:
        """Return the stored values of a framework that runs one operation after the other: all.

        Its numbers are fp32, but for a compiler's; a reciprocal root is one operation.
        """
        part = self.searched.sample.part
        everything = frozenset(key for key in self.keys if USE not in key)
        values = {node.key for node in part.nodes if node.args}
        numbers = {key for key in everything if key not in values and TOTAL not in key}
        roots = {
            node.args[1].key
            for node in part.nodes
            if node.operation == "divide" and not node.args[0].args
        }
        sets = (everything - numbers, everything, everything - numbers - roots, everything - roots)
        return list(dict.fromkeys(stored for stored in sets if stored))

    def starts(self) -> list[Stored]:
        """Return the starts of the search: nothing stored, and all values where that isn't far.

        A kernel that truncates what it stores most often truncates its output, too.
        """
        nothing = frozenset[str]()
        everything = frozenset(key for key in self.keys if USE not in key)
        output = self.graph.outputs[self.output.name].key
        starts = [nothing, frozenset({output})] if output in self.keys else [nothing]
        if self.losses[everything].off <= FAR * self.losses[nothing].off:
            starts.append(everything)
        return starts

    def near(self, losses: _Losses, start: Stored, enough: float = MAX_MISMATCH) -> Stored:
        """Return the best set of stored values near one, a value at a time.

        enough: the share of elements that it may miss.
        """
        beam = [start]
        for changes in range(len(self.keys)):
            if losses[beam[0]].mismatch <= enough:
                break
            if changes >= MAX_FAR and losses[beam[0]].off > losses[frozenset()].off:
                break
            least = PROGRESS * losses[beam[0]].off
            ranked = losses.ranked({changed(stored, key) for stored in beam for key in self.keys})
            if not ranked or losses[ranked[0]].off > least:
                ranked = losses.ranked(self.pairs(losses, beam[0]))
            if not ranked or losses[ranked[0]].off > least:
                break
            beam = ranked[:BEAM]
        stored = beam[0]
        # without those that make no difference, divisors first
        for key in sorted(stored, key=lambda key: (not key.endswith(DIVISOR), key)):
            if not losses[stored] < losses[stored - {key}]:
                stored -= {key}
        return stored

    def pairs(self, losses: _Losses, stored: Stored) -> set[Stored]:
        """Return the sets two changes away from one that misses little: one change may be worse."""
        if not stored or losses[stored].mismatch > MAX_CLOSE:
            return set()
        return {changed(changed(stored, one), other) for one, other in combinations(self.keys, 2)}

    def is_found(self, stored: Stored) -> bool:
        """Return whether stored values reproduce the searched groups, and others."""
        if not stored or self.losses[stored].mismatch > MAX_NEAR_TIES:
            return False
        program = program_of(stored, self.store, self.totals)
        mismatch, decided = _reproduces(self.searched, program, self.output.form)
        if mismatch > MAX_MISMATCH or decided < MIN_DECIDED:
            return False
        return _reproduces(self.confirmed, program, self.output.form)[0] <= MAX_HIDDEN

    def refined(self, stored: Stored) -> Stored:
        """Return stored values that miss fewer elements of the whole, if there are such.

        Some values round alike on the groups that were searched, and differ on others.
        """
        cells = self.cells(stored)
        for _ in range(REFINED):
            if not cells.outside.any():
                break
            part = missed_part(self.output, self.graph, self.shift, cells.distance)
            losses = self.losses_on(part)
            better = self.near(losses, stored, enough=0.0)
            others = self.cells(better)
            if not others.outside.sum() < cells.outside.sum():
                break
            stored, cells = better, others
        return stored

    def losses_on(self, part: OutputPart) -> _Losses:
        """Return the losses of programs on a part."""
        return _Losses(part, self.store, self.output.form, self.totals)

    def candidate(self, stored: Stored) -> Candidate:
        """Return the arithmetic of the whole that stores the values of some keys of a part."""
        return Candidate(self.graph, program_of(stored, self.store, self.totals))

    def cells(self, stored: Stored) -> Cells:
        """Return the cells beside that arithmetic."""
        return self.output.fit(self.candidate(stored)).cells.moved(self.shift)


def program_of(stored: Stored, store: str, totals: str) -> Program:
    """Return the program that stores values; totals: as stored_programs has it."""
    return Program(stored=dict.fromkeys(sorted(stored), store), totals=totals or "running")


def last_sum(graph: Graph, output: str) -> Node | None:
    """Return the sum or mean that an output is, but for its shape; None if it is another value."""
    node = graph.outputs[output]
    while OPERATIONS[node.operation].family == "view":
        node = node.args[0]
    return node if node.operation in ("sum", "mean") and node.kind == "float" else None


def storable(graph: Graph, output: str, store: str, has_totals: bool = False) -> list[str]:
    """Return the keys of what an output's kernel may store: what storing can change.

    has_totals: whether it may store the totals of the sum that the output is.
    """
    last = last_sum(graph, output) if has_totals else None
    form, mode = format_and_mode(store)
    keys = []
    needed = graph.needed(output)
    for node in needed:
        if node is last:
            keys.append(node.key + TOTAL)
        if node is graph.outputs[output] and mode == "even":  # as its cells have it anyway
            continue
        if node.kind != "float" or not _is_rounded(node, form):
            continue
        keys.append(node.key)
        if node.operation == "mean":
            keys.append(node.key + DIVISOR)
        users = [user for user in graph.users(node) if user in needed]
        if len(users) > 1 and node.args:
            keys += [node.key + USE + user.key for user in users]
    return keys


def changed(stored: Stored, key: str) -> Stored:
    """Return a set of stored values with one more or less: for all its users, or for one."""
    name = key.partition(USE)[0]
    others = frozenset(other for other in stored if other.partition(USE)[0] != name)
    return others if key in stored else others | {key}


def _is_rounded(node: Node, form: str) -> bool:
    if node.operation in ("constant", "parameter"):
        value = decode_constant(**node.attributes)
        return bool(np.any(round_to(value, form) != value))
    return OPERATIONS[node.operation].half_steps > 0


class _Losses:
    """The losses of programs on a part.

    They take exact values, rounded where the program stores them: a tenth of the time of a replay.
    Near ties make a difference then, but seldom. store, totals: how values are stored. form: the
    output's.
    """

    def __init__(self, part: OutputPart, store: str, form: str, totals: str) -> None:
        self.part, self.store, self.totals = part, store, totals
        sample = part.sample
        replay = Replay(sample.part, sample.inputs).run(sample.output)
        plain = Cells(part.values, replay, form).moved(part.shift)
        self.allowed = plain.half + LIMIT * plain.deviation
        self.steps = step(part.values, form)
        self._known: dict[Stored, _Loss] = {}

    def __getitem__(self, stored: Stored) -> _Loss:
        if stored not in self._known:
            self._known[stored] = self.of(program_of(stored, self.store, self.totals))
        return self._known[stored]

    def ranked(self, every: set[Stored]) -> list[Stored]:
        """Return sets of stored values, the best first."""
        return sorted(every, key=lambda stored: (self[stored], sorted(stored)))

    def of(self, program: Program) -> _Loss:
        """Return a program's loss."""
        part, sample = self.part, self.part.sample
        computed = Evaluation(sample.part, sample.inputs, program, base=sample.base)
        values = computed.run(sample.output).output(sample.output)
        with np.errstate(all="ignore"):
            error = np.abs(part.values - values - part.shift)
            is_outside = ~(error <= self.allowed) & (part.values != values)
            off = np.fmin(np.log2(1 + error / self.steps), MOST_OFF)
        return _Loss(float(np.where(is_outside, off, 0.0).mean()), float(is_outside.mean()))


def _reproduces(part: OutputPart, program: Program, form: str) -> tuple[float, float]:
    """Return the shares of a part's elements that a program misses, and that it decides."""
    sample = part.sample
    quantity = Replay(sample.part, sample.inputs, program).run(sample.output)
    cells = Cells(part.values, quantity, form).moved(part.shift)
    sharp = SHARP * step(part.values, form)
    is_sharp = (quantity.slack <= sharp) & (cells.deviation <= sharp)
    return float(cells.outside.mean()), float(np.broadcast_to(is_sharp, sharp.shape).mean())
