"""Stored values: which of a kernel's values are kept in a 16-bit format, rounded or truncated.

A beam of programs grows from none stored, and shrinks from all stored. What is found on some groups
of the tensors has to reproduce other groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gonogo.arithmetic import Program, Replay, exact, value_of
from gonogo.arithmetic.evaluation import Array
from gonogo.arithmetic.formats import Doubles, Mode, round_to, step
from gonogo.arithmetic.program import DIVISOR, format_and_mode
from gonogo.arithmetic.quantity import ZERO
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.graph.operations import decode_constant
from gonogo.judgment.cells import LIMIT, Cells
from gonogo.judgment.fits import Candidate, Output, has_sums
from gonogo.judgment.parts import Part, parts

BEAM = 3
"""Programs that each round keeps."""
PROGRESS = 0.9
"""A round must lower the loss to this share of it."""
MAX_MISMATCH = 1e-3
"""The share of elements that a found program may miss where it was sought."""
MAX_NEAR_TIES = 1e-2
"""The same while it is sought, without the slack of near ties."""
MAX_HIDDEN = 0.2
"""The same on other groups: near ties that slack doesn't cover differ from row to row."""
MIN_DECIDED = 0.25
"""The share of elements that a found program must decide, neither by slack nor by noise."""
SHARP = 1 / 16
"""Slack and deviation, in steps of the output, up to which it decides an element."""

Stored = frozenset[str]


@dataclass(frozen=True, order=True)
class _Loss:
    """How far a program is from a part of an output.

    Attributes:
        off: the mean error of the elements outside their cells, in steps, a whole one at most.
        mismatch: the share of these elements.
    """

    off: float
    mismatch: float


def stored_programs(
    output: Output, graph: Graph, store: str, shift: Doubles = ZERO
) -> Iterator[Candidate]:
    """Yield programs of a way that store values and reproduce other groups.

    store: a format, and its rounding if that isn't to nearest even, as a program has it; the output
    itself is then a stored value, too.
    shift: what a fault changes in the output: the rest of the arithmetic is then sought beside it.
    """
    searched, confirmed = parts(output, graph, shift)
    keys = storable(searched.sample.part, output.name, store)
    losses = _Losses(searched, store, output.form)
    for start in _starts(losses, keys):
        stored = _searched(losses, start, keys)
        if not stored or losses[stored].mismatch > MAX_NEAR_TIES:
            continue
        program = Program(stored={key: store for key in keys if key in stored})
        mismatch, decided = _reproduces(searched, program, output.form)
        if mismatch > MAX_MISMATCH or decided < MIN_DECIDED:
            continue
        if _reproduces(confirmed, program, output.form)[0] <= MAX_HIDDEN:
            program = searched.whole(program)
            yield Candidate(graph, program)
            if has_sums(graph, output.name):
                yield Candidate(graph, replace(program, order="running"))
            return


def storable(graph: Graph, output: str, store: str) -> list[str]:
    """Return the keys of what an output's kernel may store: what storing can change."""
    form, mode = format_and_mode(store)
    keys = []
    for node in graph.needed(output):
        if node is graph.outputs[output] and mode == "even":  # as its cells have it anyway
            continue
        if node.kind != "float" or not _is_rounded(node, form):
            continue
        keys.append(node.key)
        if node.operation == "mean":
            keys.append(node.key + DIVISOR)
    return keys


def _is_rounded(node: Node, form: str) -> bool:
    if node.operation in ("constant", "parameter"):
        value = decode_constant(**node.attributes)
        return bool(np.any(round_to(value, form) != value))
    return OPERATIONS[node.operation].half_steps > 0


class _Losses:
    """The losses of programs on a part.

    They take exact values, rounded where the program stores them: a tenth of the time of a replay.
    Near ties make a difference then, but seldom. store: how values are stored. form: the output's.
    """

    def __init__(self, part: Part, store: str, form: str) -> None:
        self.part, self.store = part, format_and_mode(store)
        sample = part.sample
        replay = Replay(sample.part, sample.inputs).run(sample.output)
        plain = Cells(part.values, replay, form).moved(part.shift)
        self.allowed = plain.half + LIMIT * plain.deviation
        self.steps = step(part.values, form)
        self._known: dict[Stored, _Loss] = {}

    def __getitem__(self, stored: Stored) -> _Loss:
        if stored not in self._known:
            self._known[stored] = self._measured(stored)
        return self._known[stored]

    def _measured(self, stored: Stored) -> _Loss:
        edits = {
            node.id: partial(_stored_value, node, self.store, stored)
            for node in self.part.sample.order
            if node.key in stored or node.key + DIVISOR in stored
        }
        part, sample = self.part, self.part.sample
        computed = exact(
            sample.part, sample.inputs, edits, outputs=[sample.output], base=sample.base
        )
        values = computed[sample.part.outputs[sample.output].id]
        with np.errstate(all="ignore"):
            error = np.abs(part.values - values - part.shift)
            is_outside = ~(error <= self.allowed) & (part.values != values)
            off = np.fmin(error / self.steps, 1.0)
        return _Loss(float(np.where(is_outside, off, 0.0).mean()), float(is_outside.mean()))


def _stored_value(node: Node, store: tuple[str, Mode], stored: Stored, *args: Array) -> Doubles:
    """Return the value of a node as stored; for a mean also by a stored divisor."""
    if not node.args:
        return round_to(args[0], *store)
    if node.key + DIVISOR in stored:
        axes = node.attributes["axes"]
        count = args[0].size / math.prod(node.shape)
        value = args[0].sum(axes, keepdims=True) * round_to(1 / count, *store)
    else:
        value = value_of(node, args)
    return round_to(value, *store) if node.key in stored else value


def _reproduces(part: Part, program: Program, form: str) -> tuple[float, float]:
    """Return the shares of a part's elements that a program misses, and that it decides."""
    sample = part.sample
    quantity = Replay(sample.part, sample.inputs, program).run(sample.output)
    cells = Cells(part.values, quantity, form).moved(part.shift)
    sharp = SHARP * step(part.values, form)
    is_sharp = (quantity.slack <= sharp) & (cells.deviation <= sharp)
    return float(cells.outside.mean()), float(np.broadcast_to(is_sharp, sharp.shape).mean())


def _starts(losses: _Losses, keys: list[str]) -> list[Stored]:
    """Return from where to search: from nothing stored, and from all where that is closer."""
    nothing, everything = frozenset[str](), frozenset(keys)
    return [nothing, everything] if losses[everything] < losses[nothing] else [nothing]


def _searched(losses: _Losses, start: Stored, keys: list[str]) -> Stored:
    """Return the best set of stored values that grows from nothing, or shrinks from all."""
    beam = [start]
    for _ in keys:
        if losses[beam[0]].mismatch <= MAX_MISMATCH:
            break
        others = {
            stored ^ {key} for stored in beam for key in keys if (key in stored) == bool(start)
        }
        ranked = sorted(others, key=lambda stored: (losses[stored], sorted(stored)))
        if not ranked or losses[ranked[0]].off > PROGRESS * losses[beam[0]].off:
            break
        beam = ranked[:BEAM]
    return beam[0]
