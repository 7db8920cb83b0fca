"""Faults in reach: what a red output may have that its explanation would hide.

An arithmetic may explain an output that fails its tolerance. Then the kernel counts as right,
unless a fault explains the output better, and is why most of the failing elements fail.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from gonogo.arithmetic.formats import Doubles
from gonogo.faults.changes import SMALL, Fault
from gonogo.faults.table import STORED, faults
from gonogo.graph import Graph
from gonogo.judgment.blocks import MIN_ROWS
from gonogo.judgment.cells import LIMIT
from gonogo.judgment.effects import Effects
from gonogo.judgment.fits import Fit, Output
from gonogo.judgment.sample import Sample, some_groups, with_worst
from gonogo.judgment.wide import component_of

SAMPLED = 2**15
"""Elements of the widest value in the groups that are looked at: the reddest and some others."""
MIN_SCORE = 3.0
"""Deviations by which a fault must explain an output better than rounding alone does."""
MAX_LEFT = 1 / 2
"""The share of the failing elements that fail without a fault, up to which it is the reason."""


def fault_in_reach(output: Output, fit: Fit) -> Fault | None:
    """Return the fault that may be why an output is red although an arithmetic explains it.

    None where the output has no tolerance, or is within it.
    """
    tolerance = output.tolerance
    if tolerance is None:
        return None
    is_red = tolerance.failing(output.values, output.expected)
    if not is_red.any():
        return None
    graph, name, program = fit.candidate.graph, output.name, fit.candidate.program
    cut, groups = some_groups(graph, name, SAMPLED, MIN_ROWS)
    if cut is not None and groups is not None:
        groups = with_worst(is_red.astype(np.float64), cut.outputs[name], cut.groups, groups)
    sample = Sample(graph, output.kernel.inputs, name, cut, groups, program)
    effects = Effects(sample, fit.cells)
    values, expected = sample.part_of(output.values), sample.part_of(output.expected)
    most_left = MAX_LEFT * tolerance.failing(values, expected).sum()
    best, most = None, MIN_SCORE
    for score, fault, effect in _scored(graph, name, effects):
        if score < most or (effects.distance_with(effect) > LIMIT).any():
            continue
        if tolerance.failing(values - effect, expected).sum() <= most_left:
            best, most = fault, score
    return best


def _scored(graph: Graph, name: str, effects: Effects) -> Iterator[tuple[float, Fault, Doubles]]:
    """Yield faults with their sizes, and their effects: first how much better each one explains.

    That is in deviations: the root of twice the gain of the likelihood.
    """
    cut = effects.sample.cut
    axis = cut.outputs[name] if cut else None
    for fault in faults(graph, name):
        if fault.id.partition(":")[0] in STORED:  # a rounding of another kind
            continue
        effect = effects.of(fault)
        if not effect.any() or not np.isfinite(effect).all():
            continue
        one = component_of(effects.error, effect, effects.weights, fault.label, axis)
        if fault.is_fitted:
            yield one.score, fault.sized(one.size * SMALL), one.size * effect
        elif one.size > 1 / 2:  # closer to the fault than to nothing
            yield one.score * math.sqrt(2 * one.size - 1) / one.size, fault, effect
