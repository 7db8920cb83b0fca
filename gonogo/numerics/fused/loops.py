"""Small vector loops over one row. A sum has many running totals in a fixed order, kept in an array: the compiler makes vectors of
`lane[j] += ...` (of several scalar totals it doesn't) without being allowed to reassociate. Maxima are those of bit patterns, which
may be taken in any order."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit

LANES = 64
FOLDED = 4
CHUNK = FOLDED * LANES
"""Columns at a time: what is read, and made, of them stays in a first-level cache."""

_EXPONENT = np.int64(0x7FF0000000000000)


@jit
def binade(value: Any) -> Any:
    """2^floor(log2 |v|); 0 at 0."""
    return np.int64(np.float64(value).view(np.int64) & _EXPONENT).view(np.float64)


@jit
def fold(lane: Any, size: int) -> Any:
    """The sum of `size` running totals (a multiple of 4), in a fixed order."""
    t0 = t1 = t2 = t3 = 0.0
    for j in range(0, size, 4):
        t0 += lane[j]
        t1 += lane[j + 1]
        t2 += lane[j + 2]
        t3 += lane[j + 3]
    return (t0 + t1) + (t2 + t3)


@jit
def total(a: Any, n: int) -> Any:
    """Sum of a[:n]."""
    lane = np.zeros(CHUNK)
    for first in range(0, n, CHUNK):
        part = a[first : min(first + CHUNK, n)]
        for j in range(part.size):
            lane[j] += part[j]
    return fold(lane, CHUNK)


@jit
def dot(a: Any, b: Any, n: int) -> Any:
    """Sum of a[:n] b[:n]."""
    lane = np.zeros(CHUNK)
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        x, y = a[first:last], b[first:last]
        for j in range(x.size):
            lane[j] += x[j] * y[j]
    return fold(lane, CHUNK)


@jit
def dot3(a: Any, b: Any, c: Any, n: int) -> Any:
    """Sum of a[:n] b[:n] c[:n]."""
    lane = np.zeros(CHUNK)
    for first in range(0, n, CHUNK):
        last = min(first + CHUNK, n)
        x, y, z = a[first:last], b[first:last], c[first:last]
        for j in range(x.size):
            lane[j] += x[j] * y[j] * z[j]
    return fold(lane, CHUNK)


@jit
def bits(value: Any) -> Any:
    """The bits of a float64. Of numbers >= 0 they sort as the numbers do, and a maximum of whole numbers is made with vectors."""
    return np.float64(value).view(np.int64)


@jit
def number(pattern: Any) -> Any:
    """The float64 of these bits."""
    return np.int64(pattern).view(np.float64)


@jit
def largest(a: Any, n: int) -> Any:
    """The maximum of a[:n], at least 0."""
    found = np.int64(0)
    for j in range(n):
        found = max(found, bits(a[j]))
    return number(found)


@jit
def project(w0: Any, w1: Any, w2: Any, a: Any, lanes: Any) -> None:
    """Add the w0 a, w1 a and w2 a of a chunk to three times LANES running totals, one after another in `lanes`.

    A whole chunk is folded first: running totals cost a load and a store each.
    """
    if a.size < CHUNK:
        for j in range(a.size):
            lane = j % LANES
            lanes[lane] += w0[j] * a[j]
            lanes[LANES + lane] += w1[j] * a[j]
            lanes[2 * LANES + lane] += w2[j] * a[j]
        return
    for j in range(LANES):
        k, q, m = j + LANES, j + 2 * LANES, j + 3 * LANES
        lanes[j] += (w0[j] * a[j] + w0[k] * a[k]) + (w0[q] * a[q] + w0[m] * a[m])
        lanes[k] += (w1[j] * a[j] + w1[k] * a[k]) + (w1[q] * a[q] + w1[m] * a[m])
        lanes[q] += (w2[j] * a[j] + w2[k] * a[k]) + (w2[q] * a[q] + w2[m] * a[m])


@jit
def project_squares(w0: Any, w1: Any, w2: Any, a: Any, lanes: Any) -> None:
    """Add w0^2 a, w1^2 a and w2^2 a as `project` does."""
    if a.size < CHUNK:
        for j in range(a.size):
            lane = j % LANES
            lanes[lane] += w0[j] * w0[j] * a[j]
            lanes[LANES + lane] += w1[j] * w1[j] * a[j]
            lanes[2 * LANES + lane] += w2[j] * w2[j] * a[j]
        return
    for j in range(LANES):
        k, q, m = j + LANES, j + 2 * LANES, j + 3 * LANES
        lanes[j] += (w0[j] * w0[j] * a[j] + w0[k] * w0[k] * a[k]) + (w0[q] * w0[q] * a[q] + w0[m] * w0[m] * a[m])
        lanes[k] += (w1[j] * w1[j] * a[j] + w1[k] * w1[k] * a[k]) + (w1[q] * w1[q] * a[q] + w1[m] * w1[m] * a[m])
        lanes[q] += (w2[j] * w2[j] * a[j] + w2[k] * w2[k] * a[k]) + (w2[q] * w2[q] * a[q] + w2[m] * w2[m] * a[m])


@jit
def lane_sums(a: Any, n: int, lane: Any) -> None:
    """lane[c] = sum of a[c::32], for 32 lanes."""
    for c in range(32):
        lane[c] = 0.0
    full = n // 32
    for tile in range(full):
        base = tile * 32
        for c in range(32):
            lane[c] += a[base + c]
    for c in range(n - full * 32):
        lane[c] += a[full * 32 + c]


@jit
def truncated(value: Any, grid: float) -> Any:
    """Toward zero, onto `grid` times the value's binade."""
    step = binade(value) * grid
    return np.trunc(value / step) * step if step > 0.0 else value


@jit
def rounded_away(value: Any, unit: float) -> Any:
    """To nearest at the precision of `unit`, ties away from zero; as it is where `unit` is 0."""
    grid = binade(value) * (2.0 * unit)
    return np.copysign(np.floor(abs(value) / grid + 0.5) * grid, value) if grid > 0.0 else value
