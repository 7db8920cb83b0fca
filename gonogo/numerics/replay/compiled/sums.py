"""Sums along a row in the orders of `gonogo.numerics.replay.orders`."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.program import Order

BLOCKED, RUNNING, RUNNING_MEAN = 0, 1, 2
ORDERS = {Order.blocked: BLOCKED, Order.running: RUNNING, Order.running_mean: RUNNING_MEAN}

# The places of a mean's numbers.
VALUE, EXACT, LARGEST, COMPUTED, NOISE, SLOPE, SIZE = range(7)
FACTS = 7
"""Mean of the float64 values; of the values as fp32; the largest error of an fp32 mean over the
blocked orders; the mean in the program's order; the variance that the terms' own errors add; the
mean of the factor by which an error that the row shares goes into the terms; the mean size of the
terms."""

WIDE = 32
U = np.uint64
"""The type of indices in sums: of signed ones, which might be negative, no vectors are made."""


@jit
def fold(lanes: Any, count: int) -> Any:
    """Return the sum of the first `count` lanes, a power of two, added in pairs; clear them."""
    size = count
    while size > 1:
        size //= 2
        for j in range(size):
            lanes[j] += lanes[size + j]
    total = lanes[0]
    lanes[:] = 0.0
    return total


@jit
def exact_mean(terms: Any, n: int, lanes: Any) -> Any:
    """Return orders.exact_mean of terms[:n]; lanes: 8 float64 zeros, left as zeros."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    full = n - n % 8
    for j in range(0, full, 8):
        t0 += terms[j]
        t1 += terms[j + 1]
        t2 += terms[j + 2]
        t3 += terms[j + 3]
        t4 += terms[j + 4]
        t5 += terms[j + 5]
        t6 += terms[j + 6]
        t7 += terms[j + 7]
    lanes[0], lanes[1], lanes[2], lanes[3] = t0, t1, t2, t3
    lanes[4], lanes[5], lanes[6], lanes[7] = t4, t5, t6, t7
    for j in range(full, n):
        lanes[j - full] += terms[j]
    return fold(lanes, 8) / n


@jit
def mean_error(total: Any, n: int, exact: float) -> Any:
    """Return |total / n - exact|."""
    return abs(np.float64(total) / n - exact)


@jit
def largest_error(narrow: Any, n: int, exact: float, lanes: Any, tree: Any) -> Any:
    """Return the largest error of the mean of narrow[:n] over the blocked orders.

    lanes: 32 float32 zeros, left as zeros. tree: (n,) float32, overwritten.
    """
    full = n - n % WIDE
    for start in range(0, full, WIDE):
        for j in range(WIDE):
            lanes[j] += narrow[U(start) + U(j)]
    for j in range(full, n):
        lanes[j - full] += narrow[j]
    largest = mean_error(fold(lanes, 32), n, exact)

    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = np.float32(0.0)
    s0 = s1 = s2 = s3 = np.float32(0.0)
    full = n - n % 8
    for j in range(0, full, 8):
        t0 += narrow[j]
        t1 += narrow[j + 1]
        t2 += narrow[j + 2]
        t3 += narrow[j + 3]
        t4 += narrow[j + 4]
        t5 += narrow[j + 5]
        t6 += narrow[j + 6]
        t7 += narrow[j + 7]
        s0 = (s0 + narrow[j]) + narrow[j + 4]
        s1 = (s1 + narrow[j + 1]) + narrow[j + 5]
        s2 = (s2 + narrow[j + 2]) + narrow[j + 6]
        s3 = (s3 + narrow[j + 3]) + narrow[j + 7]
    lanes[0], lanes[1], lanes[2], lanes[3] = t0, t1, t2, t3
    lanes[4], lanes[5], lanes[6], lanes[7] = t4, t5, t6, t7
    for j in range(full, n):
        lanes[j - full] += narrow[j]
    largest = max(largest, mean_error(fold(lanes, 8), n, exact))
    lanes[0], lanes[1], lanes[2], lanes[3] = s0, s1, s2, s3
    for j in range(full, n):
        lanes[(j - full) % 4] += narrow[j]
    largest = max(largest, mean_error(fold(lanes, 4), n, exact))

    half = (n + 1) // 2
    for j in range(half):
        tree[j] = narrow[j]
    for j in range(n - half):
        tree[j] += narrow[U(half) + U(j)]
    size = half
    while size > 1:
        half = (size + 1) // 2
        for j in range(size - half):
            tree[j] += tree[U(half) + U(j)]
        size = half
    return max(largest, mean_error(tree[0], n, exact))


@jit
def mean_size(narrow: Any, n: int, lanes: Any) -> Any:
    """Return orders.mean_size of narrow[:n]; lanes: 32 float32 zeros, left as zeros."""
    full = n - n % WIDE
    for start in range(0, full, WIDE):
        for j in range(WIDE):
            lanes[j] += abs(narrow[U(start) + U(j)])
    for j in range(full, n):
        lanes[j - full] += abs(narrow[j])
    return np.float64(fold(lanes, 32)) / n


@jit
def in_order(narrow: Any, n: int, order: int) -> Any:
    """Return the fp32 mean of narrow[:n] by a running sum, or by a running mean."""
    total = np.float32(0.0)
    if order == RUNNING:
        for j in range(n):
            total += narrow[j]
        return np.float64(total) / n
    for j in range(n):
        total += (narrow[j] - total) / np.float32(j + 1)
    return np.float64(total)


@jit
def scratch(n: int) -> Any:
    """Return the scratch memory of `add_mean` for rows of n."""
    return (
        np.empty(n, np.float32),
        np.empty(n, np.float32),
        np.zeros(8),
        np.zeros(WIDE, np.float32),
    )


@jit
def add_mean(terms: Any, n: int, order: int, memory: Any, facts: Any) -> None:
    """Put the mean of terms[:n] (float64) into `facts`, and its largest error."""
    narrow, tree, lanes, narrow_lanes = memory
    for j in range(n):
        narrow[j] = terms[j]
    facts[VALUE] = exact_mean(terms, n, lanes)
    exact = exact_mean(narrow, n, lanes)
    facts[EXACT] = exact
    facts[LARGEST] = largest_error(narrow, n, exact, narrow_lanes, tree)
    facts[SIZE] = mean_size(narrow, n, narrow_lanes)
    facts[COMPUTED] = exact if order == BLOCKED else in_order(narrow, n, order)


@jit
def value_of(facts: Any) -> Any:
    """Return the mean as the program computes it (see quantity.Machine.mean)."""
    return facts[VALUE] + (facts[COMPUTED] - facts[EXACT])
