"""Sums down the columns: their value in a known order, and their noise in an unknown one."""

from __future__ import annotations

from itertools import zip_longest

import numpy as np

from gonogo.numerics.expectation import Array
from gonogo.numerics.formats import round_to
from gonogo.numerics.replay import orders
from gonogo.numerics.replay.program import ColumnOrder, Order, Program
from gonogo.numerics.replay.quantity import NOTHING, TIE, UNIT, Quantity

WINDOW = 32
LANES, FOLDED = 4, 8
LOST, ONE, HALF = np.uint64(45), np.uint64(1), np.uint64(2**44 - 1)
"""The bits of a float64's fraction that bf16 lacks, and what rounds them to nearest even."""


def column_sum(terms: Quantity, program: Program) -> Quantity:
    """Return the sums of `terms` (rows, N) down the columns, (1, N), in a program's order.

    A sum that the program stores in a narrow format is replayed addition by addition. Elsewhere it
    is the exact one, with the noise of fp32 additions.
    """
    values = terms.values
    rows = len(values)
    form = program.stored.get("column sum")
    noise = np.broadcast_to(terms.noise, values.shape).sum(axis=0, keepdims=True)
    for error in terms.shared.values():  # the rows' errors are independent of each other
        noise = noise + np.broadcast_to(error**2, values.shape).sum(axis=0, keepdims=True)
    if form is None:
        along = Order.blocked if program.column_order is ColumnOrder.blocked else Order.running
        by_column = np.ascontiguousarray(values.T)
        mean, deviation = orders.mean(by_column, along)
        # the simulated sums round their terms; the exact one doesn't
        exact = orders.exact_mean(by_column)
        total = rows * (exact + (mean - orders.exact_mean(by_column.astype(np.float32))))
        slack = np.broadcast_to(terms.slack, values.shape).sum(axis=0, keepdims=True)
        return Quantity(total[None], noise + (rows * deviation[None]) ** 2, slack=slack)
    deviation = np.sqrt(terms.noise + sum((error**2 for error in terms.shared.values()), NOTHING))
    reach = np.broadcast_to(TIE * deviation + terms.slack, values.shape)
    low, total, high = _stored_sums(values, reach, form, program.column_order).T
    return Quantity(total[None], slack=np.maximum(high - total, total - low)[None])


def row_sum(terms: Quantity, form: str, order: ColumnOrder) -> Quantity:
    """Return the sum of each row of `terms` (rows, N), (rows, 1), stored after each addition."""
    values = np.ascontiguousarray(terms.values.T)
    deviation = np.sqrt(terms.noise + sum((error**2 for error in terms.shared.values()), NOTHING))
    reach = np.broadcast_to(TIE * deviation + terms.slack, terms.values.shape).T
    low, total, high = _stored_sums(values, reach, form, order).T
    return Quantity(total[:, None], slack=np.maximum(high - total, total - low)[:, None])


def _stored_sums(values: Array, reach: Array, form: str, order: ColumnOrder) -> Array:
    """Return sums down the columns with a store after each addition: least, usual, largest.

    (N, 3). A term lies within `reach` (rows, N) of its value. Rounding is monotonic, so the sums of
    the smallest and of the largest terms bound what the kernel has.
    """
    spread = np.stack([values - reach, values, values + reach], axis=-1)
    if order is ColumnOrder.windows:
        while len(spread) > WINDOW:
            spread = _running(_windows(spread), form)
        return _running(spread, form)
    if order is ColumnOrder.folded:
        return _folded(spread, form)
    if order is ColumnOrder.lanes:
        parts = [spread[lane::LANES] for lane in range(min(LANES, len(spread)))]
    else:
        count = {ColumnOrder.halves: 2, ColumnOrder.quarters: 4}.get(order, 1)
        parts = np.array_split(spread, min(count, len(spread)))
    total = np.sum([_running(part, form) for part in parts], axis=0)
    return total if len(parts) == 1 else round_to(total, form).astype(np.float64)


def _windows(terms: Array) -> Array:
    """Return windows of 32 terms, (32, windows, ...), padded with zeros at both ends.

    That is how XLA's tree reduction on a CPU cuts a sum; it stores each window's sum, and cuts the
    sums again.
    """
    count = -(-len(terms) // WINDOW)
    padding = count * WINDOW - len(terms)
    widths = [(padding // 2, padding - padding // 2), *[(0, 0)] * (terms.ndim - 1)]
    padded = np.pad(terms, widths)
    return np.swapaxes(padded.reshape(count, WINDOW, *terms.shape[1:]), 0, 1)


def _folded(terms: Array, form: str) -> Array:
    """Return sums in 8 lanes, whose halves are added until one is left.

    So LLVM's vectorized loops do it: the fused gradients of XLA on a CPU.
    """
    lanes = [_running(terms[lane::FOLDED], form) for lane in range(min(FOLDED, len(terms)))]
    while len(lanes) > 1:
        half = -(-len(lanes) // 2)
        pairs = zip_longest(lanes[:half], lanes[half:])
        lanes = [a if b is None else _running(np.stack([a, b]), form) for a, b in pairs]
    return lanes[0]


def _running(terms: Array, form: str) -> Array:
    """Return the sum along the first axis, stored in a format after each addition.

    terms: (terms, ..., 3), the least, the usual and the largest values. Where they differ, the fp32
    sum is rounded before it is stored; exact terms are added with one rounding.
    """
    total = np.zeros(terms.shape[1:])
    sides = np.array([-UNIT, 0.0, UNIT])
    for row in terms:
        exact = total + row
        exact += np.where(row[..., 2:] > row[..., :1], sides * np.abs(exact), 0.0)
        total = _narrow(exact, form)
    return total


def _narrow(values: Array, form: str) -> Array:
    """Return what round_to returns, as float64, without its care for subnormal bf16.

    A sum over many rows calls it once a row.
    """
    if form == "fp16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float64)
    if form == "bf16":
        bits = values.view(np.uint64)
        bits = bits + ((bits >> LOST) & ONE) + HALF
        return (bits >> LOST << LOST).view(np.float64)
    return round_to(values, form).astype(np.float64)
