"""Sums down the columns: their value in a known order, and their noise in an unknown one."""

from __future__ import annotations

import numpy as np

from gonogo.numerics.replay import narrow_sums, orders, walks
from gonogo.numerics.replay.narrow_sums import Place
from gonogo.numerics.replay.program import ColumnOrder, Order, Program
from gonogo.numerics.replay.quantity import NOTHING, TIE, Quantity


def column_sum(terms: Quantity, program: Program, place: Place | None = None) -> Quantity:
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
    if program.column_order is ColumnOrder.unordered:
        steps = walks.variance(values, form or "fp32")
        slack = np.broadcast_to(terms.slack, values.shape).sum(axis=0, keepdims=True)
        return Quantity(values.sum(axis=0, keepdims=True), noise + steps, slack=slack)
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
    low, total, high = narrow_sums.bounds(
        values, reach, form, program.column_order, program.rounding, place
    ).T
    return Quantity(total[None], slack=np.maximum(high - total, total - low)[None])
