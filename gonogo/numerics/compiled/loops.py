"""Small vector loops over one row.

A sum has many running totals in a fixed order, in an array. The compiler makes vectors of `lane[j]
+= ...` without being allowed to reassociate; of several scalar totals it doesn't. Maxima are those
of bit patterns, which may be compared in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit

LANES = 64
FOLDED = 4
CHUNK = FOLDED * LANES
"""Columns that are folded into the running totals at a time."""
BLOCK = 8 * CHUNK
"""Columns that one function after another works on at a time.

Their data stays in a second-level cache. The calls, each of which costs as much as 200 additions,
are few.
"""

U = np.uint64
"""The type of indices: unsigned.

A slice of an array costs as much as 50 additions. A signed index might be negative, so the compiler
makes no vectors with it.
"""

_EXPONENT = np.int64(0x7FF0000000000000)


@jit
def binade(value: Any) -> Any:
    """Return 2^floor(log2 |v|); 0 at 0."""
    return np.int64(np.float64(value).view(np.int64) & _EXPONENT).view(np.float64)


@jit
def fold(lane: Any, size: int) -> Any:
    """Return the sum of `size` running totals (a multiple of 4), in a fixed order."""
    t0 = t1 = t2 = t3 = 0.0
    for j in range(0, size, 4):
        t0 += lane[j]
        t1 += lane[j + 1]
        t2 += lane[j + 2]
        t3 += lane[j + 3]
    return (t0 + t1) + (t2 + t3)


@jit
def total(a: Any, n: int) -> Any:
    """Return the sum of a[:n]."""
    lane = np.zeros(CHUNK)
    full = n - n % CHUNK
    for first in range(0, full, CHUNK):
        for j in range(CHUNK):
            lane[j] += a[U(first) + U(j)]
    for j in range(n - full):
        lane[j] += a[U(full) + U(j)]
    return fold(lane, CHUNK)


@jit
def dot(a: Any, b: Any, n: int) -> Any:
    """Return the sum of a[:n] b[:n]."""
    lane = np.zeros(CHUNK)
    full = n - n % CHUNK
    for first in range(0, full, CHUNK):
        for j in range(CHUNK):
            k = U(first) + U(j)
            lane[j] += a[k] * b[k]
    for j in range(n - full):
        k = U(full) + U(j)
        lane[j] += a[k] * b[k]
    return fold(lane, CHUNK)


@jit
def dot3(a: Any, b: Any, c: Any, n: int) -> Any:
    """Return the sum of a[:n] b[:n] c[:n]."""
    lane = np.zeros(CHUNK)
    full = n - n % CHUNK
    for first in range(0, full, CHUNK):
        for j in range(CHUNK):
            k = U(first) + U(j)
            lane[j] += a[k] * b[k] * c[k]
    for j in range(n - full):
        k = U(full) + U(j)
        lane[j] += a[k] * b[k] * c[k]
    return fold(lane, CHUNK)


@jit
def bits(value: Any) -> Any:
    """Return the bits of a float64.

    The bits of numbers >= 0 sort as the numbers do, and the compiler vectorizes a maximum of
    integers.
    """
    return np.float64(value).view(np.int64)


@jit
def number(pattern: Any) -> Any:
    """Return the float64 with these bits."""
    return np.int64(pattern).view(np.float64)


@jit
def largest(a: Any, n: int) -> Any:
    """Return the maximum of a[:n], at least 0."""
    largest_bits = np.int64(0)
    for j in range(n):
        largest_bits = max(largest_bits, bits(a[j]))
    return number(largest_bits)


@jit
def project(
    w0: Any, w1: Any, w2: Any, a: Any, first: Any, last: Any, place: int, lanes: Any
) -> None:
    """Add w0 a, w1 a and w2 a of the columns first..last to three times LANES running totals.

    The totals begin at lanes[place * LANES]. A whole chunk is folded first, because running totals
    cost a load and a store each.
    """
    base = U(place * LANES)
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i0 = start + U(j)
            i1 = i0 + U(LANES)
            i2 = i1 + U(LANES)
            i3 = i2 + U(LANES)
            lanes[base + U(j)] += (w0[i0] * a[i0] + w0[i1] * a[i1]) + (
                w0[i2] * a[i2] + w0[i3] * a[i3]
            )
            lanes[base + U(LANES + j)] += (w1[i0] * a[i0] + w1[i1] * a[i1]) + (
                w1[i2] * a[i2] + w1[i3] * a[i3]
            )
            lanes[base + U(2 * LANES + j)] += (w2[i0] * a[i0] + w2[i1] * a[i1]) + (
                w2[i2] * a[i2] + w2[i3] * a[i3]
            )
    for j in range(np.int64(last - full)):
        i, lane = full + U(j), base + U(j % LANES)
        lanes[lane] += w0[i] * a[i]
        lanes[lane + U(LANES)] += w1[i] * a[i]
        lanes[lane + U(2 * LANES)] += w2[i] * a[i]


@jit
def project_gram(w0: Any, w1: Any, w2: Any, first: Any, last: Any, place: int, lanes: Any) -> None:
    """Add what `project` would add for w0, w1 and w2 themselves, to nine totals.

    Only six products are computed; the other three are equal to some of them.
    """
    base = U(place * LANES)
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i0 = start + U(j)
            i1 = i0 + U(LANES)
            i2 = i1 + U(LANES)
            i3 = i2 + U(LANES)
            lanes[base + U(j)] += (w0[i0] * w0[i0] + w0[i1] * w0[i1]) + (
                w0[i2] * w0[i2] + w0[i3] * w0[i3]
            )
            lanes[base + U(LANES + j)] += (w1[i0] * w0[i0] + w1[i1] * w0[i1]) + (
                w1[i2] * w0[i2] + w1[i3] * w0[i3]
            )
            lanes[base + U(2 * LANES + j)] += (w2[i0] * w0[i0] + w2[i1] * w0[i1]) + (
                w2[i2] * w0[i2] + w2[i3] * w0[i3]
            )
            lanes[base + U(4 * LANES + j)] += (w1[i0] * w1[i0] + w1[i1] * w1[i1]) + (
                w1[i2] * w1[i2] + w1[i3] * w1[i3]
            )
            lanes[base + U(5 * LANES + j)] += (w2[i0] * w1[i0] + w2[i1] * w1[i1]) + (
                w2[i2] * w1[i2] + w2[i3] * w1[i3]
            )
            lanes[base + U(8 * LANES + j)] += (w2[i0] * w2[i0] + w2[i1] * w2[i1]) + (
                w2[i2] * w2[i2] + w2[i3] * w2[i3]
            )
    for j in range(np.int64(last - full)):
        i, lane = full + U(j), base + U(j % LANES)
        lanes[lane] += w0[i] * w0[i]
        lanes[lane + U(LANES)] += w1[i] * w0[i]
        lanes[lane + U(2 * LANES)] += w2[i] * w0[i]
        lanes[lane + U(4 * LANES)] += w1[i] * w1[i]
        lanes[lane + U(5 * LANES)] += w2[i] * w1[i]
        lanes[lane + U(8 * LANES)] += w2[i] * w2[i]


@jit
def project_squares(
    w0: Any, w1: Any, w2: Any, a: Any, first: Any, last: Any, place: int, lanes: Any
) -> None:
    """Add w0^2 a, w1^2 a and w2^2 a as `project` does."""
    base = U(place * LANES)
    full = last - (last - first) % U(CHUNK)
    for start in range(first, full, U(CHUNK)):
        for j in range(LANES):
            i0 = start + U(j)
            i1 = i0 + U(LANES)
            i2 = i1 + U(LANES)
            i3 = i2 + U(LANES)
            lanes[base + U(j)] += (w0[i0] * w0[i0] * a[i0] + w0[i1] * w0[i1] * a[i1]) + (
                w0[i2] * w0[i2] * a[i2] + w0[i3] * w0[i3] * a[i3]
            )
            lanes[base + U(LANES + j)] += (w1[i0] * w1[i0] * a[i0] + w1[i1] * w1[i1] * a[i1]) + (
                w1[i2] * w1[i2] * a[i2] + w1[i3] * w1[i3] * a[i3]
            )
            lanes[base + U(2 * LANES + j)] += (
                w2[i0] * w2[i0] * a[i0] + w2[i1] * w2[i1] * a[i1]
            ) + (w2[i2] * w2[i2] * a[i2] + w2[i3] * w2[i3] * a[i3])
    for j in range(np.int64(last - full)):
        i, lane = full + U(j), base + U(j % LANES)
        lanes[lane] += w0[i] * w0[i] * a[i]
        lanes[lane + U(LANES)] += w1[i] * w1[i] * a[i]
        lanes[lane + U(2 * LANES)] += w2[i] * w2[i] * a[i]


@jit
def largest_partial(a: Any, n: int) -> Any:
    """Return max |partial sum| of a[:n], in order."""
    running = most = 0.0
    for j in range(n):
        running += a[j]
        most = max(most, abs(running))
    return most


@jit
def lane_sums(a: Any, n: int, lane: Any) -> None:
    """Set lane[c] to the sum of a[c::32], for 32 lanes."""
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
    """Return the value truncated toward zero, onto `grid` times its binade."""
    step = binade(value) * grid
    return np.trunc(value / step) * step if step > 0.0 else value


NUDGE = 1.0 + 2.0**-40
"""The same as expectation.NUDGE."""


@jit
def cut(value: Any, grid: float) -> Any:
    """Return the value as a buffer that truncates stores it; see expectation.cut."""
    return truncated(value * NUDGE, grid)


@jit
def rounded_away(value: Any, unit: float) -> Any:
    """Return the value rounded to nearest at the precision of `unit`, ties away from zero.

    Unit 0 leaves it as it is.
    """
    grid = binade(value) * (2.0 * unit)
    return np.copysign(np.floor(abs(value) / grid + 0.5) * grid, value) if grid > 0.0 else value
