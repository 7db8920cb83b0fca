"""Rules for wide arithmetics, which may explain an output only where they hide no fault.

Each rule returns the reason why a wide candidate isn't the kernel's arithmetic, or None.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic.formats import Doubles, unit_roundoff
from gonogo.graph import Graph
from gonogo.judgment.cells import Cells, Mask
from gonogo.judgment.changes import Edit, Fault
from gonogo.judgment.effects import Effects
from gonogo.judgment.faults import faults
from gonogo.judgment.fits import Fit, Output
from gonogo.judgment.likelihood import normal_deviate
from gonogo.judgment.sample import Sample, some_groups

MAX_REPRODUCED, MAX_REPRODUCED_ROWS = 0.85, 0.5
"""Shares of the movable elements, and of the rows, from which a sharper arithmetic is the
kernel's: noise would have moved about half of the elements, and something in every row."""
MIN_ROWS = 8
"""Rows that a share of rows needs, and independent samples that a component needs."""
MOVABLE = 1 / 4
"""The deviation, in half steps, from which on a wide arithmetic would have moved an element."""
SUSPECT_COMPONENT, MAX_COMPONENT = 3.0, 5.5
"""Deviations from which a component of noise along one of some hundred faults is suspect, and no
noise."""
MIN_MOVED = 0.6
"""The least size of a component, in units of the format: some roundings share a bias."""
REPRODUCES = 0.9
"""The share of the misfit that a fault must take away to be the reason."""
SAMPLED = 2**17
"""Elements of the widest value on which every fault's effect is computed."""
STORED = ("bf16", "fp16", "tf32")
"""Formats in which a wide arithmetic may store any value: no fault."""
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
    outside = sharp.cells.outside
    if not outside.size:
        return None
    could_move = movable(wide.cells)
    right = could_move & ~outside
    label = sharp.candidate.program.label
    if could_move.any() and right.sum() >= MAX_REPRODUCED * could_move.sum():
        return f"{int(outside.sum())} of {outside.size} values differ from {label}"
    rows = rows_of(outside)
    has_rows = outside.ndim > 1 and rows.size >= MIN_ROWS
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

    def component(label: str, direction: Doubles) -> Component:
        return component_of(effects.error, direction, effects.weights, label, axis)

    components = [component("the output", right)]
    for fault in faults(graph, output.name):
        if not is_storing(fault):
            effect = sample.effect(fault)
            if np.isfinite(effect).all() and effect.any():
                components.append(component(fault.label, effect))
    large = [one for one in components if one.score >= SUSPECT_COMPONENT and one.moved > least]
    return max(large, key=lambda one: one.score, default=None)


def _sample(output: Output, graph: Graph) -> Sample:
    """Return the output's part in so many groups that every fault can be tried on it."""
    cut, groups = some_groups(graph, output.name, SAMPLED, MIN_ROWS)
    return Sample(graph, output.kernel.inputs, output.name, cut, groups)


def whole_effect(output: Output, graph: Graph, fault: Fault) -> Doubles | None:
    """Return what a fault of a way changes in the output; None where that isn't finite."""
    effect = Sample(graph, output.kernel.inputs, output.name).effect(fault)
    return effect if np.isfinite(effect).all() else None


def is_storing(fault: Fault) -> bool:
    """Return whether a fault is to store a value in a format of 16 bits, or one as precise."""
    return fault.id.startswith(tuple(f"stored-{form}:" for form in STORED))


def is_of_input(fault: Fault) -> bool:
    """Return whether a fault changes an input."""
    edits = fault.edits.values()
    return any(isinstance(edit, Edit) and edit.changed.operation == "input" for edit in edits)


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
    direction = np.where(weights > 0, direction, 0.0)
    information = (weights * np.square(direction)).sum(axes).ravel()
    says = information > 0
    count = int(says.sum())
    if count < MIN_ROWS:
        return Component(label, 0.0, 0.0, 0.0)
    information = information[says]
    parts = (weights * direction * error).sum(axes).ravel()[says] / information
    share = information / information.sum()
    mean = float((share * parts).sum())
    spread = math.sqrt(float(np.square(share * (parts - mean)).sum()) * count / (count - 1))
    model = 1 / math.sqrt(float(information.sum()))
    score = normal_deviate(abs(mean) / max(spread, model), count - 1)
    moved = abs(mean) * math.sqrt(float(np.square(direction).mean()))
    return Component(label, mean, score, moved)
