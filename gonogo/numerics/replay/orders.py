"""fp32 sums: the value that an order of additions gives, and the noise of unknown orders.

This is the definition; `compiled.sums` holds the same orders for long rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics import jit
from gonogo.numerics.expectation import Array, binade
from gonogo.numerics.replay import updates
from gonogo.numerics.replay.program import Order

Floats = NDArray[np.float32]

LANES = (4, 8, 32)
UPDATED_LANES = (*LANES, 16)
MIN_ULPS = 0.6
"""The least standard deviation of a mean, in units of its last place: its own roundings, and what
is left of the additions before them where a few orders happen to agree."""
RUNNING_SPREAD = 0.25
"""How far a running sum of a library is from the simulated one, relative to the simulated error.

Fused multiply-adds, and terms that are rounded otherwise, change it by up to a fifth.
"""


EXACT_LANES = 8
"""Running totals of the float64 sums that stand for exact ones."""


def mean(terms: NDArray[np.floating], order: Order, *, quick: bool = False) -> tuple[Array, Array]:
    """Return the fp32 mean of each row of `terms` (rows, N), and its standard deviation: (rows,).

    The terms are rounded to float32. Of blocked sums the mean is the exact one, and the deviation
    the largest that several orders show, at least its average over the rows and a rounding. The
    average is relative to the size of a row's terms: rows may differ in it by any factor. Running
    sums have a value of their own: their error is no noise. `quick`: the deviation of blocked sums
    is a few units in the last place of the mean size of a term.
    """
    computed, deviates, _ = simulated(terms, order, quick=quick)
    return computed, deviates


def simulated(
    terms: NDArray[np.floating], order: Order, *, quick: bool = False
) -> tuple[Array, Array, Array]:
    """Return the same, and the exact mean of the terms in fp32."""
    narrow = np.ascontiguousarray(terms, np.float32)
    exact = exact_mean(narrow)
    if quick and order is Order.blocked:
        return exact, 2.0**-23 * np.abs(narrow).mean(axis=1, dtype=np.float64), exact
    largest, size = _largest(narrow, exact), mean_size(narrow)
    average = relative(largest, size).mean() * size
    if order is Order.blocked:
        return exact, deviation(largest, exact, exact, average), exact
    running = _running_mean(narrow) if order is Order.running_mean else _running_sum(narrow)
    return running, deviation(largest, exact, running, average), exact


def welford(x: NDArray[np.floating]) -> tuple[Array, Array]:
    """Return the variance of each row of x (rows, N), and its standard deviation: (rows,).

    Welford's updates of several lanes, which are merged at the end (Chan, Golub and LeVeque), keep
    a mean that is rounded at each step. Where it is large beside the deviations, so is the error of
    the variance: some rounding of the mean, 2^-24 |mean|, times the deviations.
    """
    narrow = np.ascontiguousarray(x, np.float32)
    exact = narrow.var(axis=1, dtype=np.float64)
    errors = [np.abs(_updated(narrow, lanes)[1] - exact) for lanes in UPDATED_LANES]
    largest = np.max(errors, axis=0)
    # a rounding of the mean times a deviation; where the mean is small, a rounding of a square
    size = np.sqrt(exact * np.square(narrow, dtype=np.float64).mean(axis=1))
    return exact, np.maximum(largest, relative(largest, size).mean() * size)


def means(terms: NDArray[np.floating], order: Order) -> list[Array]:
    """Return the fp32 means of each row of `terms` (rows, N) by each simulated order of a class.

    Two running sums stand between a single one and blocked sums, and count as running.
    """
    narrow = np.ascontiguousarray(terms, np.float32)
    if order is Order.blocked:
        sums = [*(_in_lanes(narrow, lanes) for lanes in LANES), _in_halves(narrow)]
        return [np.asarray(total / np.float64(narrow.shape[1])) for total in sums]
    in_two = np.asarray(_in_lanes(narrow, 2) / np.float64(narrow.shape[1]))
    return [_running_sum(narrow) if order is Order.running else _running_mean(narrow), in_two]


def updated_variances(x: NDArray[np.floating]) -> list[Array]:
    """Return the variances of each row of x (rows, N) by Welford's updates in several lanes."""
    narrow = np.ascontiguousarray(x, np.float32)
    return [_updated(narrow, lanes)[1] for lanes in UPDATED_LANES]


def updated_means(x: NDArray[np.floating]) -> list[Array]:
    """Return the means of each row of x (rows, N) by Welford's updates in several lanes."""
    narrow = np.ascontiguousarray(x, np.float32)
    return [_updated(narrow, lanes)[0] for lanes in UPDATED_LANES]


def _updated(x: Floats, lanes: int) -> tuple[Array, Array]:
    """Return the mean and the variance of each row by updates in lanes."""
    rows, count = x.shape
    mean = np.zeros((rows, lanes), np.float32)
    squares = np.zeros_like(mean)
    whole = count // lanes
    if jit.is_loaded():
        updates.update_squares(jit.plain(x), mean, squares)
    else:
        for step in range(whole):
            column = x[:, step * lanes : (step + 1) * lanes]
            off = column - mean
            mean += off / np.float32(step + 1)
            squares += off * (column - mean)
    parts: list[tuple[Any, Any, int]]
    parts = [(mean[:, lane], squares[:, lane], whole) for lane in range(lanes) if whole]
    parts += [(x[:, at], np.zeros(rows, np.float32), 1) for at in range(whole * lanes, count)]
    center, total, done = parts[0]
    for part_mean, part, terms in parts[1:]:
        apart = part_mean - center
        center = center + apart * np.float32(terms / (done + terms))
        total = total + part + apart * apart * np.float32(done * terms / (done + terms))
        done += terms
    return np.asarray(center, np.float64), np.asarray(total, np.float64) / np.float64(count)


def partial_mean_deviation(size: Array, exact: Array, count: int) -> Array:
    """Return the standard deviation that the means of terms have by the rounding of partial means.

    A running mean rounds at each step what is as large as a mean of k terms, sqrt(exact^2 +
    size^2 / k), within half a step, h: the variance is h^2 / 3. Later steps take the error at step
    k of n to k / n of it, and the lanes' mean divides the sum of the squares by the lanes:

        sum of (k / n)^2 u^2 (exact^2 + size^2 / k) / 3 = u^2 (n exact^2 / 9 + size^2 / 6)

    A single lane has the most of size, and the fewest lanes of LANES the most of exact. A kernel
    that adds up the terms about another value has as much of size, though it adds up more of them:
    x - mean rounds all x of a coarse grid alike, and a mean about one of the terms is rounded where
    it is as large as that term. Their plain sums may be exact.

    size: the root mean square of each row's terms. exact: their mean. count: N.
    """
    unit, lanes = 2.0**-24, LANES[0]
    of_mean = count / (9 * lanes**2) * np.square(binade(exact))
    return np.asarray(unit * np.sqrt(of_mean + np.square(size) / 6))


def exact_mean(terms: NDArray[np.floating]) -> Array:
    """Return the mean of each row (rows, N), added in float64."""
    return np.asarray(_in_lanes(terms.astype(np.float64), EXACT_LANES) / terms.shape[1])


def mean_size(narrow: Floats) -> Array:
    """Return the mean size of each row's terms (rows,), which scales the error of their sum."""
    return np.asarray(_in_lanes(np.abs(narrow), LANES[-1]) / np.float64(narrow.shape[1]))


def relative(errors: Array, size: Array) -> Array:
    """Return errors (rows,) in units of the mean size of a row's terms; 0 where all are 0."""
    return np.divide(errors, size, out=np.zeros_like(errors), where=size > 0.0)


def deviation(largest: Array, exact: Array, computed: Array, average: Array) -> Array:
    """Return the standard deviation of means (rows,), from what the simulated orders show.

    Args:
        largest: the largest error of a mean over the blocked orders.
        exact: the exact means.
        computed: the means as the program's order gives them; `exact` where it is blocked.
        average: the average of `largest` over rows that are summed alike, at this row's size.
    """
    floor = MIN_ULPS * 2.0**-23 * binade(exact)
    blocked = np.maximum(np.maximum(largest, average), floor)
    return np.asarray(np.hypot(blocked, RUNNING_SPREAD * np.abs(computed - exact)))


def _largest(terms: Floats, exact: Array) -> Array:
    """Return the largest error of each row's mean over the blocked orders."""
    sums = [*(_in_lanes(terms, lanes) for lanes in LANES), _in_halves(terms)]
    errors = [np.abs(total / np.float64(terms.shape[1]) - exact) for total in sums]
    return np.asarray(np.max(errors, axis=0))


def _in_halves(terms: Floats) -> Floats:
    """Return the sum of each row as a tree: the second half is added to the first, repeatedly."""
    total = terms
    while total.shape[1] > 1:
        half = (total.shape[1] + 1) // 2
        folded = total[:, :half].copy()
        folded[:, : total.shape[1] - half] += total[:, half:]
        total = folded
    return total[:, 0]


def _running_sum(terms: Floats) -> Array:
    """Return the mean of each row from a sum that takes in term after term."""
    # a sum by np.sum would be pairwise for a single row
    totals = np.add.accumulate(terms, axis=1)
    return np.asarray(totals[:, -1] / np.float64(terms.shape[1]))


def _in_lanes(terms: NDArray[np.floating], lanes: int) -> NDArray[Any]:
    """Return the sum of each row in `lanes` running sums, added in pairs at the end.

    lanes: a power of two. The sums have the terms' type.
    """
    rows, count = terms.shape
    padded = np.zeros((-(-count // lanes), lanes, rows), terms.dtype)
    padded.reshape(-1, rows)[:count] = terms.T
    partial = np.add.reduce(padded, axis=0)
    while partial.shape[0] > 1:
        half = partial.shape[0] // 2
        partial = partial[:half] + partial[half:]
    return np.asarray(partial[0])


def _running_mean(terms: Floats) -> Array:
    """Return the mean of each row as Welford's update keeps it, in fp32."""
    running = np.zeros(len(terms), np.float32)
    if jit.is_loaded():
        updates.update_means(jit.plain(terms), running)
        return running.astype(np.float64)
    columns = np.ascontiguousarray(terms.T)
    for index, column in enumerate(columns, 1):
        running += (column - running) / np.float32(index)
    return running.astype(np.float64)
