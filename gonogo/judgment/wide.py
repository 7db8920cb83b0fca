"""Rules for wide arithmetics, which may explain an output only where they hide no fault.

Each rule returns the reason why a wide candidate isn't the kernel's arithmetic, or None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gonogo.arithmetic import Program, exact, value_of
from gonogo.arithmetic.formats import Doubles, round_to, step, unit_roundoff
from gonogo.arithmetic.sums import fp32_sum, narrow_noise
from gonogo.arithmetic.sums import rows_of as summed_rows
from gonogo.arithmetic.values import Array
from gonogo.faults.changes import Fault
from gonogo.faults.table import STORED, faults, is_storing
from gonogo.graph import OPERATIONS, Graph, Node
from gonogo.judgment.blocks import MIN_ROWS, projected
from gonogo.judgment.cells import Cells, Mask
from gonogo.judgment.effects import Effects
from gonogo.judgment.fits import Fit, Output
from gonogo.judgment.likelihood import normal_deviate
from gonogo.judgment.sample import Sample, some_groups

MAX_REPRODUCED, MAX_REPRODUCED_ROWS = 0.85, 0.5
"""Shares of the movable elements, and of the rows, from which a sharper arithmetic is the
kernel's: noise would have moved about half of the elements, and something in every row."""
MOVABLE = 1 / 4
"""The deviation, in half steps, from which on a wide arithmetic would have moved an element."""
SUSPECT_COMPONENT, MAX_COMPONENT = 4.5, 5.5
"""Deviations from which a component of noise along one of some hundred faults is suspect, and no
noise."""
MIN_MOVED = 0.6
"""The least size of a component, in units of the format: some roundings share a bias."""
REPRODUCES = 0.9
"""The share of the misfit that a fault must take away to be the reason."""
SAMPLED = 2**17
"""Elements of the widest value on which every fault's effect is computed."""
SIMULATIONS = 16
"""Simulated outputs by which a direction's usual component is found."""
TAIL = 32
"""Rows, columns and elements behind the last multiple of this many are the tail of a tensor, which
libraries compute otherwise."""


@dataclass(frozen=True)
class Component:
    """An error's component along a direction.

    Attributes:
        label: the direction.
        size: the component, in units of the direction.
        score: how many deviations it differs from 0.
        moved: the root mean square of what it moves.
    """

    label: str
    size: float
    score: float
    moved: float


def rows_of(mask: Mask) -> Mask:
    """Return which rows have an element of a mask; a row lies along the last axis."""
    return np.asarray(mask.any(axis=-1)) if mask.ndim > 1 else mask


def movable(cells: Cells) -> Mask:
    """Return the elements that a wide arithmetic could have moved to other cells."""
    return np.broadcast_to(cells.deviation > MOVABLE * cells.half, cells.values.shape)


def is_reproduced(sharp: Fit, wide: Fit) -> str | None:
    """Return how a sharper arithmetic reproduces the output, where it does (rule a).

    One arithmetic computes the whole output. What the sharper one misses is the finding.
    """
    outside = sharp.outside
    if not outside.size:
        return None
    could_move = movable(wide.cells)
    right = could_move & ~outside
    label = sharp.candidate.program.label
    if could_move.any() and right.sum() >= MAX_REPRODUCED * could_move.sum():
        return f"{int(outside.sum())} of {outside.size} values differ from {label}"
    rows = rows_of(outside)
    has_rows = outside.ndim > 1 and min(rows.size, outside.shape[-1]) >= MIN_ROWS
    if has_rows and (~rows).mean() >= MAX_REPRODUCED_ROWS:
        return f"{int(rows.sum())} of {rows.size} rows differ from {label}"
    return None


def is_tail(outside: Mask) -> bool:
    """Return whether the elements lie in the tail of a tensor: its rows, columns or all."""
    flat = np.flatnonzero(outside)
    if not flat.size:
        return False
    lengths = [(outside.size, flat)]
    if outside.ndim > 1:
        columns = outside.shape[-1]
        lengths += [(outside.size // columns, flat // columns), (columns, flat % columns)]
    return any(length > TAIL and int(at.min()) >= length // TAIL * TAIL for length, at in lengths)


def largest_component(output: Output, wide: Fit) -> Component | None:
    """Return the component of an error that looks least like noise (rule b), if one does.

    Noise has none along the output itself, nor along the effect of a fault.
    """
    graph, narrow = wide.candidate.graph, wide.candidate.program.narrow
    sample = _sample(output, graph)
    effects = Effects(sample, wide.cells)
    right = np.asarray(sample.right, np.float64)
    usual = np.square(right[np.isfinite(right)])
    least = MIN_MOVED * unit_roundoff(narrow) * math.sqrt(usual.mean()) if narrow else 0.0
    axis = sample.cut.outputs[output.name] if sample.cut else None

    def component(label: str, direction: Doubles, error: Doubles) -> Component:
        return component_of(error, direction, effects.weights, label, axis)

    large = []
    for label, direction in _directions(output, graph, sample):
        one = component(label, direction, effects.error)
        if one.score >= SUSPECT_COMPONENT and one.moved > least:
            large.append((one, direction))
    if not large:
        return None
    errors = simulated_errors(sample, wide.candidate.program, output.form)
    scored = []
    for one, direction in large:
        sizes = np.array([component(one.label, direction, error).size for error in errors])
        usual_size = math.sqrt(np.square(sizes).mean())
        score = min(one.score, abs(one.size) / usual_size) if usual_size else one.score
        scored.append(replace(one, score=score))
    worst = max(scored, key=lambda one: one.score)
    return worst if worst.score >= SUSPECT_COMPONENT else None


def _directions(output: Output, graph: Graph, sample: Sample) -> Iterator[tuple[str, Doubles]]:
    """Yield directions in which noise has no component, of a sample: a label, and the direction."""
    yield "the output", np.asarray(sample.right, np.float64)
    # the output's own rounding points as the truncation of it does
    of_output = tuple(f"{kind}:{graph.outputs[output.name].key}" for kind in STORED)
    for fault in faults(graph, output.name):
        if not is_storing(fault) and fault.id not in of_output:
            effect = sample.effect(fault)
            if np.isfinite(effect).all() and effect.any():
                yield f'the effect of "{fault.label}"', effect


def simulated_errors(sample: Sample, program: Program, form: str) -> list[Doubles]:
    """Return errors of a kernel whose operations are all rounded to the program's format.

    Rows share some of its roundings, and a sum down the rows has all of them: no formula knows how
    much of a direction that makes.
    """
    random = np.random.default_rng(0)
    edits = {
        node.id: partial(_perturbed, node, program, random)
        for node in sample.order
        if node.args and node.kind == "float" and OPERATIONS[node.operation].half_steps > 0
    }
    errors = []
    for _ in range(SIMULATIONS):
        values = exact(sample.part, sample.inputs, edits, outputs=[sample.output])
        wrong = round_to(values[sample.part.outputs[sample.output].id], form)
        with np.errstate(invalid="ignore"):
            error = wrong - sample.right
        errors.append(np.where(np.isfinite(error), error, 0.0))
    return errors


def _perturbed(node: Node, program: Program, random: np.random.Generator, *args: Array) -> Doubles:
    """Return a node's value with a random rounding, and that of a sum with random totals, too."""
    value, store = value_of(node, args), program.narrow or "fp32"
    if node.operation in ("sum", "mean") and (program.narrow_sums or not program.narrow):
        axes = node.attributes["axes"]
        rows = summed_rows(args[0], args[0].shape, axes)
        factor = 1 / max(rows.shape[-1], 1) if node.operation == "mean" else 1.0
        is_narrow = program.narrow is not None
        deviation = narrow_noise(rows, store) if is_narrow else fp32_sum(rows, program.order)[1]
        value = value + np.expand_dims(deviation * factor, axes) * random.normal(size=value.shape)
    return np.asarray(value + step(value, store) * (random.random(value.shape) - 0.5))


def _sample(output: Output, graph: Graph) -> Sample:
    """Return the output's part in so many groups that every fault can be tried on it."""
    cut, groups = some_groups(graph, output.name, SAMPLED, MIN_ROWS)
    return Sample(graph, output.kernel.inputs, output.name, cut, groups)


def whole_effect(output: Output, graph: Graph, fault: Fault) -> Doubles | None:
    """Return the effect of a way's fault on the output; None where it isn't finite."""
    effect = Sample(graph, output.kernel.inputs, output.name).effect(fault)
    return effect if np.isfinite(effect).all() else None


def component_of(
    error: Doubles, direction: Doubles, weights: Doubles, label: str, axis: int | None
) -> Component:
    """Return an error's component along a direction.

    What lies along `axis` are independent samples; None, or an axis with few of them: all elements
    are.
    """
    axes: tuple[int, ...] = ()
    if axis is not None and error.shape[axis] >= MIN_ROWS:
        axes = tuple(other for other in range(error.ndim) if other != axis)
    return component(label, *projected(error, direction, weights, axes))


def component(label: str, information: Doubles, along: Doubles, size: Doubles) -> Component:
    """Return an error's component along a direction onto which samples of it were projected."""
    says = information > 0
    count = int(says.sum())
    if count < MIN_ROWS:
        return Component(label, 0.0, 0.0, 0.0)
    parts, moves = along[says] / information[says], math.sqrt(float(size.mean()))
    information = information[says]
    share = information / information.sum()
    mean = float((share * parts).sum())
    spread = math.sqrt(float(np.square(share * (parts - mean)).sum()) * count / (count - 1))
    model = 1 / math.sqrt(float(information.sum()))
    score = normal_deviate(abs(mean) / max(spread, model), count - 1)
    return Component(label, mean, score, abs(mean) * moves)
