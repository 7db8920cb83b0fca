"""Small vector loops over one row. Sums have eight running totals in a fixed order, so that the compiler may use vectors
without being allowed to reassociate."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit

_EXPONENT = np.int64(0x7FF0000000000000)


@jit
def binade(value: Any) -> Any:
    """2^floor(log2 |v|); 0 at 0."""
    return np.int64(np.float64(value).view(np.int64) & _EXPONENT).view(np.float64)


@jit
def total(a: Any, n: int) -> Any:
    """Sum of a[:n]."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    end = n - n % 8
    for j in range(0, end, 8):
        t0 += a[j]
        t1 += a[j + 1]
        t2 += a[j + 2]
        t3 += a[j + 3]
        t4 += a[j + 4]
        t5 += a[j + 5]
        t6 += a[j + 6]
        t7 += a[j + 7]
    for j in range(end, n):
        t0 += a[j]
    return ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7))


@jit
def dot(a: Any, b: Any, n: int) -> Any:
    """Sum of a[:n] b[:n]."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    end = n - n % 8
    for j in range(0, end, 8):
        t0 += a[j] * b[j]
        t1 += a[j + 1] * b[j + 1]
        t2 += a[j + 2] * b[j + 2]
        t3 += a[j + 3] * b[j + 3]
        t4 += a[j + 4] * b[j + 4]
        t5 += a[j + 5] * b[j + 5]
        t6 += a[j + 6] * b[j + 6]
        t7 += a[j + 7] * b[j + 7]
    for j in range(end, n):
        t0 += a[j] * b[j]
    return ((t0 + t1) + (t2 + t3)) + ((t4 + t5) + (t6 + t7))


@jit
def dot3(a: Any, b: Any, c: Any, n: int) -> Any:
    """Sum of a[:n] b[:n] c[:n]."""
    t0 = t1 = t2 = t3 = 0.0
    end = n - n % 4
    for j in range(0, end, 4):
        t0 += a[j] * b[j] * c[j]
        t1 += a[j + 1] * b[j + 1] * c[j + 1]
        t2 += a[j + 2] * b[j + 2] * c[j + 2]
        t3 += a[j + 3] * b[j + 3] * c[j + 3]
    for j in range(end, n):
        t0 += a[j] * b[j] * c[j]
    return (t0 + t1) + (t2 + t3)


@jit
def largest(a: Any, n: int) -> Any:
    """The maximum of a[:n], at least 0."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    end = n - n % 8
    for j in range(0, end, 8):
        t0 = max(t0, a[j])
        t1 = max(t1, a[j + 1])
        t2 = max(t2, a[j + 2])
        t3 = max(t3, a[j + 3])
        t4 = max(t4, a[j + 4])
        t5 = max(t5, a[j + 5])
        t6 = max(t6, a[j + 6])
        t7 = max(t7, a[j + 7])
    for j in range(end, n):
        t0 = max(t0, a[j])
    return max(max(max(t0, t1), max(t2, t3)), max(max(t4, t5), max(t6, t7)))


@jit
def largest_beyond(a: Any, b: Any, rtol: float, n: int) -> Any:
    """The maximum of a[:n] - rtol b[:n], at least 0: the atol that is needed beside rtol."""
    t0 = t1 = t2 = t3 = t4 = t5 = t6 = t7 = 0.0
    end = n - n % 8
    for j in range(0, end, 8):
        t0 = max(t0, a[j] - rtol * b[j])
        t1 = max(t1, a[j + 1] - rtol * b[j + 1])
        t2 = max(t2, a[j + 2] - rtol * b[j + 2])
        t3 = max(t3, a[j + 3] - rtol * b[j + 3])
        t4 = max(t4, a[j + 4] - rtol * b[j + 4])
        t5 = max(t5, a[j + 5] - rtol * b[j + 5])
        t6 = max(t6, a[j + 6] - rtol * b[j + 6])
        t7 = max(t7, a[j + 7] - rtol * b[j + 7])
    for j in range(end, n):
        t0 = max(t0, a[j] - rtol * b[j])
    return max(max(max(t0, t1), max(t2, t3)), max(max(t4, t5), max(t6, t7)))


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
def shared_keys(reference: Any, noise: Any, w0: Any, w1: Any, n: int, table: Any, sums: Any, extra: Any) -> None:
    """What equal |reference| add to the variance of the three directions (w0, w1, reference) beyond independence.

    (sum over a group of a)^2 = sum of a^2 + 2 a (sum of those before), a = |w| sqrt(noise): extra[k] collects the second part. `table`
    (int32, a power of two above 2n, all -1 on entry and on exit) maps a key to 1 + the index of its group's first element.
    """
    mask = table.size - 1
    extra[0] = extra[1] = extra[2] = 0.0
    for j in range(n):
        key = np.int64(np.float64(abs(reference[j])).view(np.int64))
        slot = np.int64((np.uint64(key) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) & mask
        while table[slot] >= 0 and abs(reference[table[slot]]) != abs(reference[j]):
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = j
            sums[j, 0] = -1.0
            continue
        first = table[slot]
        if sums[first, 0] < 0.0:
            root = np.sqrt(noise[first])
            sums[first, 0] = abs(w0[first]) * root
            sums[first, 1] = abs(w1[first]) * root
            sums[first, 2] = abs(reference[first]) * root
        root = np.sqrt(noise[j])
        a0, a1, a2 = abs(w0[j]) * root, abs(w1[j]) * root, abs(reference[j]) * root
        extra[0] += 2.0 * a0 * sums[first, 0]
        extra[1] += 2.0 * a1 * sums[first, 1]
        extra[2] += 2.0 * a2 * sums[first, 2]
        sums[first, 0] += a0
        sums[first, 1] += a1
        sums[first, 2] += a2
    for slot in range(table.size):
        table[slot] = -1


@jit
def keyed_variance(key: Any, amplitude: Any, w0: Any, w1: Any, w2: Any, n: int, table: Any, sums: Any, lock: Any) -> None:
    """lock[k] += sum over keys of (sum over the key of w_k amplitude)^2. NaN: no key. `table` as in shared_keys; sums: (n, 3)."""
    mask = table.size - 1
    for j in range(n):
        if np.isnan(key[j]):
            continue
        bits = np.int64(np.float64(key[j] + 0.0).view(np.int64))
        slot = np.int64((np.uint64(bits) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(33)) & mask
        while table[slot] >= 0 and key[table[slot]] != key[j]:
            slot = (slot + 1) & mask
        if table[slot] < 0:
            table[slot] = j
            sums[j, 0] = sums[j, 1] = sums[j, 2] = 0.0
        first = table[slot]
        sums[first, 0] += w0[j] * amplitude[j]
        sums[first, 1] += w1[j] * amplitude[j]
        sums[first, 2] += w2[j] * amplitude[j]
    for slot in range(table.size):
        first = table[slot]
        if first >= 0:
            for k in range(3):
                lock[k] += sums[first, k] * sums[first, k]
            table[slot] = -1


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
