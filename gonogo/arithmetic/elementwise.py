"""Replay elementwise operations: errors go through them by slopes, or as slack at edges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from gonogo.arithmetic.datapath import TINY
from gonogo.arithmetic.formats import (
    Doubles,
    binade,
    round_to,
    smallest_step,
    store,
    unit_roundoff,
)
from gonogo.arithmetic.program import Program
from gonogo.arithmetic.quantity import (
    ZERO,
    Array,
    Quantity,
    combined,
    is_zero,
    sum_of,
)
from gonogo.arithmetic.values import value_of
from gonogo.arithmetic.wormhole import Rule
from gonogo.graph import OPERATIONS, Node

COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
KINKED = ("absolute", "maximum", "minimum")
"""Continuous operations whose slope jumps: an error may reach the other side of the kink."""
SFPU_UNITS = ("sfpu", "rsqrt", "library", "inner")
DUST = 2.0**-16
"""The share of a reach by which float64 may be off in adding it: no slack."""


def elementwise(node: Node, args: Sequence[Quantity], program: Program) -> Quantity:
    """Return an operation's quantity from those of its arguments."""
    operation = OPERATIONS[node.operation]
    arrays = [arg.values for arg in args]
    rule = program.tensix_rule(node)
    if rule is None:
        values = value_of(node, arrays)
    else:
        in_dst = replace(rule, dst="fp32") if program.is_of_card else rule
        values = in_dst.computed(node, arrays).astype(np.float64)
        if not program.is_of_card and all(arg.is_certain for arg in args):
            return Quantity(values)
    if node.operation in COMPARISONS:
        return Quantity(values, slack=_loose_comparisons(args))
    assert operation.slopes is not None
    slopes = list(operation.slopes(arrays, values, node.attributes))
    is_kinked = operation.discontinuous or node.operation in KINKED or node.kind == "bool"
    for at, (arg, slope) in enumerate(zip(args, slopes, strict=True)):
        if not arg.is_certain:
            is_gentle = np.isfinite(slope)
            if not is_gentle.all():
                is_kinked = True
                slopes[at] = np.where(is_gentle, slope, 0.0)
    if node.kind != "float" and operation.discontinuous:
        slopes = [0.0] * len(args)
    result = combined(list(zip(args, slopes, strict=True)), values)
    slack = result.slack
    if is_kinked and not all(arg.is_certain for arg in args):
        usual = result.reach
        beyond = _corner_distance(node, args, values) - usual
        slack = sum_of(slack, np.where(beyond > DUST * usual, beyond, 0.0))
    if node.operation == "where":
        slack = sum_of(slack, _other_choice(args))
    if node.kind != "float":
        return Quantity(values, slack=slack)
    quantity = rounded(node, Quantity(values, result.noise, result.shared, slack), program)
    if rule is None or not program.is_of_card or rule.dst == "fp32":
        return quantity
    return _in_narrow_dst(quantity, rule.computed(node, arrays).astype(np.float64))


def rounded(node: Node, a: Quantity, program: Program) -> Quantity:
    """Return an operation's quantity with the noise of its result's rounding."""
    rule = program.rules.get(node.key)
    half_steps = OPERATIONS[node.operation].half_steps
    if rule is not None and rule.unit == "rounded":
        return Quantity(round_to(a.values, "fp32"), a.noise, a.shared, a.slack)
    if rule is not None and rule.is_tensix and program.is_of_card:
        return _of_card(a, rule, half_steps)
    if rule is not None or not half_steps:
        return a
    form = program.narrow or "fp32"
    noise = rounding_noise(a.values, form, half_steps)
    if not program.narrow:
        # exact arguments whose exact result fp32 has round nothing
        is_exact = a.values.astype(np.float32) == a.values
        if is_exact.any():
            noise = np.where(is_exact & (a.reach == 0), 0.0, noise)
    return Quantity(a.values, sum_of(a.noise, noise), a.shared, sum_of(a.slack, _flushable(a)))


def _flushable(a: Quantity) -> Doubles:
    """Return the sizes of subnormal values, which many processors turn into 0; else 0.

    An exponential that overflows in fp32 makes such a value 0, too: 1 / (1 + exp(89)).
    """
    size = np.abs(a.values)
    is_tiny = size < TINY
    return np.where(is_tiny, size, 0.0) if (is_tiny & (size > 0)).any() else ZERO


def _of_card(a: Quantity, rule: Rule, half_steps: float) -> Quantity:
    """Return a card's results: the last bits of its SFPU's are unknown, not those of its FPU's."""
    is_sfpu = rule.unit in SFPU_UNITS
    if is_sfpu:
        noise = sum_of(a.noise, rounding_noise(a.values, "fp32", half_steps))
        a = Quantity(a.values, noise, a.shared, a.slack)
    return a if rule.dst == "fp32" else stored(a, "bf16/zero" if is_sfpu else "bf16/away")


def _in_narrow_dst(a: Quantity, values: Doubles) -> Quantity:
    """Return a quantity as a 16-bit Dst has it, which rounds each phase of a product.

    values: the results of that. What separates them from one rounding is slack.
    """
    with np.errstate(invalid="ignore"):
        apart = np.where(a.values == values, 0.0, np.abs(a.values - values))
    return Quantity(values, a.noise, a.shared, sum_of(a.slack, apart))


def rounding_noise(values: Doubles, form: str, half_steps: float = 1.0) -> Doubles:
    """Return the variance of a rounding to a format, not below that of subnormal numbers.

    An error is uniform within as many half steps. Inf and NaN have none.
    """
    # in place: a pass that makes no new array takes a third of the time
    deviation = np.asarray(binade(values))
    deviation *= half_steps * unit_roundoff(form)
    np.maximum(deviation, smallest_step(form) / 2, out=deviation)
    noise = np.multiply(deviation, deviation, out=deviation)
    noise /= 3
    if not np.isfinite(noise.max(initial=0.0)):
        noise[~np.isfinite(noise)] = 0.0
    return noise


def _loose_comparisons(args: Sequence[Quantity]) -> Doubles:
    """Return 1 where errors may turn a comparison, else 0."""
    first, second = args
    with np.errstate(invalid="ignore"):
        difference = np.subtract(first.values, second.values, dtype=np.float64)
    reach = combined([(first, 1.0), (second, -1.0)], difference).reach
    if is_zero(reach):
        return ZERO
    return np.where((np.abs(difference) <= reach) & (reach > 0), 1.0, 0.0)


def _corner_distance(node: Node, args: Sequence[Quantity], values: Array) -> Doubles:
    """Return the largest change of a result where each argument moves by its reach."""
    farthest = np.zeros(values.shape)
    with np.errstate(invalid="ignore"):
        for corner in product(*(_ends(arg) for arg in args)):
            moved = value_of(node, corner)
            change = np.abs(np.subtract(moved, values, dtype=np.float64))
            farthest = np.fmax(farthest, change)
    return farthest


def _ends(arg: Quantity) -> Sequence[Array]:
    reach = arg.reach
    if is_zero(reach):
        return (arg.values,)
    if arg.values.dtype == np.bool_:
        return (arg.values, arg.values ^ (reach > 0))
    return (arg.values - reach, arg.values + reach)


def _other_choice(args: Sequence[Quantity]) -> Doubles:
    """Return how far the value that np.where leaves out lies off, where its condition is loose."""
    condition, first, second = args
    if is_zero(condition.slack):
        return ZERO
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.subtract(first.values, second.values, dtype=np.float64))
    apart = sum_of(apart, first.reach, second.reach)
    return np.where(condition.slack > 0, apart, 0.0)


def stored(a: Quantity, stored_as: str) -> Quantity:
    """Return a quantity as a program stores it: rounded, with slack where a tie is near.

    Its noise is gone: either it doesn't reach a tie, or the other side of it is slack. In fp32 only
    what has no noise is rounded: the values of a kernel already are fp32.
    """
    with np.errstate(all="ignore"):
        nearest = store(a.values, stored_as)
        reach = a.reach
        if is_zero(reach):
            return Quantity(nearest)
        if stored_as == "fp32":
            return Quantity(np.where(reach == 0, nearest, a.values), a.noise, a.shared, a.slack)
        low, high = store(a.values - reach, stored_as), store(a.values + reach, stored_as)
        slack = np.fmax(np.fmax(high - nearest, nearest - low), 0.0)
    return Quantity(nearest, slack=slack)


def flushed(a: Quantity, form: str) -> Quantity:
    """Return a quantity whose subnormal numbers are 0; near the edge either may be."""
    normal = smallest_step(form) / (2 * unit_roundoff(form))
    size = np.abs(a.values)
    is_below = size < normal
    if not is_below.any():
        return a
    is_near = (normal - size <= a.reach) & is_below
    slack = np.where(is_near, normal, np.where(is_below, 0.0, a.slack))
    return Quantity(
        np.where(is_below, 0.0, a.values), np.where(is_below, 0.0, a.noise), a.shared, slack
    )
