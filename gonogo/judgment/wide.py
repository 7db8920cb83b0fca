"""What a wide arithmetic may explain: it must not be what only hides a fault.

Each rule returns the reason why a wide candidate isn't the kernel's arithmetic, or None.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gonogo.arithmetic import exact
from gonogo.arithmetic.formats import Doubles, unit_roundoff
from gonogo.judgment.cells import Cells, Mask
from gonogo.judgment.faults import Fault, faults
from gonogo.judgment.fits import Candidate, Fit, Output
from gonogo.judgment.likelihood import normal_deviate

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
    return mask.any(axis=-1) if mask.ndim > 1 else mask


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
    if outside.ndim > 1 and rows.size >= MIN_ROWS:
        if (~rows).mean() >= MAX_REPRODUCED_ROWS:
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
    return any(
        length > TAIL and int(at.min()) >= length // TAIL * TAIL for length, at in lengths
    )


def largest_component(output: Output, wide: Fit) -> Component | None:
    """Return the component of an error that looks least like noise (rule b), if one does.

    Noise has none along the output itself, nor along the effect of a fault.
    """
    candidate, cells = wide.candidate, wide.cells
    graph = candidate.graph
    base = output.kernel.exact(graph, output.name)
    right = base[graph.outputs[output.name].id].astype(np.float64)
    narrow = candidate.program.narrow
    unit = unit_roundoff(narrow) if narrow else 0.0
    size = math.sqrt(float(np.square(right[np.isfinite(right)]).mean())) if right.size else 0.0
    own = cells.own_variance + sum(np.square(part.error) for part in cells.replay.shared.values())
    with np.errstate(all="ignore"):
        weights = np.where(np.isfinite(own) & (own > 0), 1 / own, 0.0)
    found = []
    for label, direction in (("the output", right), *_effects(output, candidate, base, right)):
        component = component_of(cells.error, direction, weights, label)
        if component.score >= SUSPECT_COMPONENT and component.moved > MIN_MOVED * unit * size:
            found.append(component)
    return max(found, key=lambda component: component.score, default=None)


def _effects(
    output: Output, candidate: Candidate, base: Mapping[int, np.ndarray], right: Doubles
) -> Iterator[tuple[str, Doubles]]:
    """Yield what each fault changes, but for faults that are an arithmetic of their own."""
    graph = candidate.graph
    node = graph.outputs[output.name]
    for fault in faults(graph, output.name, base):
        if is_arithmetic(fault):
            continue
        with np.errstate(all="ignore"):
            wrong = exact(
                graph, output.kernel.inputs, fault.edits, outputs=[output.name], base=base
            )
            effect = wrong[node.id] - right
        if np.isfinite(effect).all() and effect.any():
            yield fault.label, effect


def is_arithmetic(fault: Fault) -> bool:
    """Return whether a fault is what a right kernel may do: storing a value in 16 bits."""
    return "stored" in fault.id


def component_of(error: Doubles, direction: Doubles, weights: Doubles, label: str) -> Component:
    """Return an error's component along a direction. Rows are its independent samples."""
    axes = _across(error.shape)
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


def _across(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the axes that samples are summed over: all but the first with enough elements."""
    kept = next((axis for axis, size in enumerate(shape) if size >= MIN_ROWS), None)
    if kept is None:
        return ()
    return tuple(axis for axis in range(len(shape)) if axis != kept)
