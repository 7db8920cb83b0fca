"""Replay sums, means, variances, cumulative sums and selections along axes.

A function takes the node and its argument's quantity, and returns the result's. Reduced axes stay,
with size 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gonogo.arithmetic.elementwise import rounded
from gonogo.arithmetic.formats import Doubles, binade, unit_roundoff
from gonogo.arithmetic.matrix_unit import TILE
from gonogo.arithmetic.program import DIVISOR, TOTAL, Program
from gonogo.arithmetic.quantity import (
    ZERO,
    Array,
    Labels,
    Quantity,
    Shared,
    compact,
    is_zero,
    scaled,
    sum_of,
)
from gonogo.arithmetic.sums import (
    RUNNING_SPREAD,
    UNIT,
    divided,
    fp32_sum,
    narrow_noise,
    narrow_sum,
    rows_of,
    updated_variance_noise,
)
from gonogo.arithmetic.wormhole import GRID, Rule
from gonogo.graph import Node

Axes = Sequence[int]


def summed(node: Node, a: Quantity, program: Program) -> Quantity:
    """Replay a sum or a mean."""
    axes, shape = node.attributes["axes"], a.values.shape
    rule = program.tensix_rule(node)
    if rule is not None:
        factor = math.prod(node.shape) / math.prod(shape) if node.operation == "mean" else 1.0
        total = rule.computed(node, [a.values]).astype(np.float64)
        noise = ZERO
        if program.is_of_card:
            variance = unknown_orders(rows_of(a.values, shape, axes), rule)
            noise = np.expand_dims(factor**2 * variance, axes)
        return _with_sums(Quantity(total, noise), a, factor, axes)
    rows = rows_of(a.values, shape, axes)
    count = rows.shape[-1]
    stored_totals = program.stored.get(node.key + TOTAL)
    deviation, slack = np.zeros(rows.shape[:-1]), ZERO
    if stored_totals:
        total, slack = _with_near_ties(a, axes, stored_totals, program.totals)
        a = Quantity(a.values)
    elif a.values.dtype.kind == "f":
        total, deviation = fp32_sum(rows, program.order)
    else:  # counts are exact
        total = rows.sum(axis=-1)
    if program.narrow and program.narrow_sums:
        deviation = narrow_noise(rows, program.narrow)
    values, factor = total, 1.0
    if node.operation == "mean":
        values, factor = divided(total, max(count, 1), program.stored.get(node.key + DIVISOR))
    if not count and node.operation == "mean":
        values = np.full(total.shape, np.nan)
    values = np.expand_dims(values, axes)
    noise = np.expand_dims(np.square(deviation * factor), axes)
    slack = slack if is_zero(slack) else np.expand_dims(slack * factor, axes)
    result = _with_sums(Quantity(values, noise, slack=slack), a, factor, axes)
    if node.kind != "float":
        return Quantity(values, slack=result.slack)
    if node.operation == "mean" or program.narrow:
        return rounded(node, result, program)
    return result


def _with_near_ties(a: Quantity, axes: Axes, store: str, totals: str) -> tuple[Doubles, Doubles]:
    """Return sums whose totals are stored, and how far errors of the terms may move them.

    Rounding keeps the order of numbers: any totals lie between those of the least and of the
    largest terms.
    """
    values, reach = a.values, a.reach
    if is_zero(reach):
        return narrow_sum(rows_of(values, values.shape, axes), store, totals), ZERO
    some = [
        rows_of(terms, values.shape, axes) for terms in (values, values - reach, values + reach)
    ]
    total, low, high = narrow_sum(np.stack(some), store, totals)
    return total, np.fmax(np.fmax(high - total, total - low), 0.0)


def unknown_orders(rows: Doubles, rule: Rule) -> Doubles:
    """Return the variance of sums of rows in orders that a card may have.

    Lanes' totals are read with 10 bits; groups of 8 terms are rounded on the grid of the largest.
    """
    padding = [(0, 0)] * (rows.ndim - 1) + [(0, -rows.shape[-1] % TILE)]
    tiles = np.pad(rows, padding).reshape(*rows.shape[:-1], -1, TILE)
    if "bf16" in (rule.dst, rule.totals):
        adds_terms = rule.totals == "bf16" or rule.unit == "phased"
        return np.square(narrow_noise(rows if adds_terms else tiles.sum(-2), "bf16"))
    noise: Doubles = np.square(fp32_sum(rows)[1])
    if rule.unit == "lanes":
        noise = noise + np.square(GRID * binade(tiles.sum(-2))).sum(-1) / 6
    elif rule.unit != "columns":
        noise = noise + rows.shape[-1] * np.square(GRID * binade(np.abs(rows).max(-1))) / 6
    return noise


def variance(node: Node, a: Quantity, program: Program) -> Quantity:
    """Replay a variance by Welford's updates."""
    axes = node.attributes["axes"]
    rows = rows_of(a.values, a.values.shape, axes)
    freedom = rows.shape[-1] - node.attributes["ddof"]
    values = np.var(a.values, axes, ddof=node.attributes["ddof"], keepdims=True)
    slopes = 2 * (a.values - a.values.mean(axes, keepdims=True)) / max(freedom, 1)
    scale = unit_roundoff(program.narrow or "fp32") / UNIT * rows.shape[-1] / max(freedom, 1)
    noise = np.square(scale * np.expand_dims(updated_variance_noise(rows), axes))
    return _with_sums(Quantity(values, noise), a, slopes, axes)


def _with_sums(result: Quantity, a: Quantity, slopes: Any, axes: Axes) -> Quantity:
    """Return a sum's result with the errors of its terms, each times its slope."""
    shape = a.values.shape

    def total(part: Doubles, factor: Any) -> Doubles:
        moved = scaled(part, factor)
        if is_zero(moved):
            return ZERO
        summed_part: Doubles = np.broadcast_to(moved, shape).sum(tuple(axes), keepdims=True)
        return summed_part

    noise = sum_of(result.noise, total(a.noise, np.square(slopes)))
    shared: dict[int, Shared] = {}
    for source, part in a.shared.items():
        coherent, random = _summed_shared(Shared(scaled(part.error, slopes), part.labels), a, axes)
        noise = sum_of(noise, random)
        if coherent is not None:
            shared[source] = coherent
    slack = sum_of(result.slack, total(a.slack, np.abs(slopes)))
    return replace(result, noise=noise, shared=shared, slack=slack)


def _summed_shared(part: Shared, a: Quantity, axes: Axes) -> tuple[Shared | None, Doubles]:
    """Return a sum's error that stays shared, and the variance of what has become its noise.

    Terms with one label have one error: theirs add. The errors of different labels are random.
    """
    shape = a.values.shape
    labels = part.labels.reshape((1,) * (len(shape) - part.labels.ndim) + part.labels.shape)
    same = tuple(axis for axis in axes if labels.shape[axis] == 1)
    error = np.broadcast_to(part.error, shape).sum(axis=same, keepdims=True)
    rest = [axis for axis in axes if axis not in same]
    if not rest:
        return Shared(error, labels), ZERO
    rows = rows_of(labels, np.broadcast_shapes(labels.shape, error.shape), rest)
    errors = rows_of(error, error.shape, rest)
    if not (np.diff(rows, axis=-1) > 0).all():
        errors = _by_label(errors, rows)
    noise = np.einsum("...i,...i->...", errors, errors)
    return None, np.expand_dims(noise, rest)


def _by_label(errors: Doubles, labels: Labels) -> Doubles:
    """Return the sum of each label's errors in each row, at the first place of the label."""
    order = np.argsort(labels, axis=-1, kind="stable")
    sorted_labels = np.take_along_axis(labels, order, -1)
    first = np.ones(sorted_labels.shape, bool)
    first[..., 1:] = sorted_labels[..., 1:] != sorted_labels[..., :-1]
    sums = np.zeros(errors.shape)
    starts = np.flatnonzero(first)
    sums.ravel()[starts] = np.add.reduceat(np.take_along_axis(errors, order, -1).ravel(), starts)
    return sums


def cumulated(node: Node, a: Quantity, program: Program) -> Quantity:
    """Replay a cumulative sum: the errors of all earlier additions stay in it."""
    axis = node.attributes["axis"]
    values = np.cumsum(a.values, axis)
    if node.kind != "float":
        return Quantity(values, slack=_cumulated_part(a.slack, a, axis))
    unit = unit_roundoff(program.narrow or "fp32")
    noise = np.cumsum(np.square(unit * binade(values)) / 3, axis)
    with np.errstate(all="ignore"):
        shift = np.cumsum(a.values.astype(np.float32), axis) - values
    if program.order == "running":
        values = values + shift
        shift = RUNNING_SPREAD * shift
    noise = np.maximum(noise, np.square(shift))
    noise = sum_of(noise, _cumulated_part(a.noise, a, axis))
    shared: dict[int, Shared] = {}
    for source, part in a.shared.items():
        at = axis - a.values.ndim
        if part.labels.ndim < -at or part.labels.shape[at] == 1:
            shared[source] = Shared(_cumulated_part(part.error, a, axis), part.labels)
        else:
            noise = sum_of(noise, _cumulated_part(np.square(part.error), a, axis))
    return Quantity(values, noise, shared, _cumulated_part(a.slack, a, axis))


def _cumulated_part(part: Doubles, a: Quantity, axis: int) -> Doubles:
    return ZERO if is_zero(part) else np.cumsum(np.broadcast_to(part, a.values.shape), axis)


def selected(node: Node, a: Quantity) -> Quantity:
    """Replay max, min, sort, argmax, argmin and argsort: the errors of what is selected."""
    name = node.operation
    axes = node.attributes["axes"] if "axes" in node.attributes else (node.attributes["axis"],)
    shape = a.values.shape
    rows = rows_of(a.values, shape, axes)
    reach = rows_of(a.reach, shape, axes)
    if name in ("sort", "argsort"):
        chosen = np.argsort(rows, axis=-1, kind="stable")
    else:
        best = np.argmax if name in ("max", "argmax") else np.argmin
        chosen = best(rows, axis=-1, keepdims=True)

    def restored(part: Array) -> Array:
        if name in ("sort", "argsort"):
            return np.moveaxis(part, -1, axes[0])
        return np.expand_dims(part[..., 0], axes)

    def gathered(part: Array) -> Array:
        return restored(np.take_along_axis(rows_of(part, shape, axes), chosen, -1))

    if name == "argsort":
        return Quantity(restored(chosen), slack=restored(_swaps(rows, reach, chosen)))
    others = _excess(rows, reach, chosen, name) if name in ("max", "min") else ZERO
    if name in ("argmax", "argmin"):
        sign = 1 if name == "argmax" else -1
        near = sign * rows + reach >= np.take_along_axis(sign * rows - reach, chosen, -1)
        near &= reach + np.take_along_axis(reach, chosen, -1) > 0
        apart = np.abs(np.arange(rows.shape[-1]) - chosen)
        slack = np.where(near, apart, 0).max(axis=-1, keepdims=True, initial=0)
        return Quantity(restored(chosen), slack=restored(slack.astype(np.float64)))
    return Quantity(
        gathered(a.values),
        ZERO if is_zero(a.noise) else gathered(a.noise),
        {
            source: Shared(gathered(part.error), compact(gathered(part.labels)))
            for source, part in a.shared.items()
        },
        sum_of(
            ZERO if is_zero(a.slack) else gathered(a.slack),
            ZERO if is_zero(others) else restored(others),
        ),
    )


def _excess(rows: Array, reach: Doubles, chosen: Labels, name: str) -> Doubles:
    """Return how far elements with a larger reach than the selected one's may exceed it."""
    if not reach.any():
        return ZERO
    ends = rows + reach if name == "max" else reach - rows
    largest: Doubles = ends.max(axis=-1, keepdims=True)
    return largest - np.take_along_axis(ends, chosen, -1)


def _swaps(rows: Array, reach: Doubles, chosen: Labels) -> Doubles:
    """Return by how much indices of a sort may be off, where neighbors may change their order."""
    values, reaches = (np.take_along_axis(part, chosen, -1) for part in (rows, reach))
    apart = values[..., 1:] - values[..., :-1]
    between = reaches[..., 1:] + reaches[..., :-1]
    is_loose = (apart <= between) & (between > 0)
    spread = np.where(is_loose.any(axis=-1, keepdims=True), rows.shape[-1] - 1.0, 0.0)
    touched = np.zeros(rows.shape, bool)
    touched[..., 1:] |= is_loose
    touched[..., :-1] |= is_loose
    return np.where(touched, spread, 0.0)
