"""Equal values within one row: elements that share a key share their error."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit

MULTIPLIER_32 = np.uint32(0x9E3779B1)
MULTIPLIER_64 = np.uint64(0x9E3779B97F4A7C15)
TOP_HALF = np.uint64(33)

MARK_BITS = 17
"""Bits of a hash in the filter.

Twice 16 KiB of marks stay in a first-level cache, and one element in 15 of 8462 is a false alarm.
"""
MARK_SHIFT = np.uint32(32 - MARK_BITS)
WORD_SHIFT, WORD_MASK = np.uint32(6), np.uint32(63)
WORDS = 2 ** (MARK_BITS - 6)


@jit
def key_scratch(n: int) -> Any:
    """Return the scratch memory of the functions below, for rows of n.

    It holds hashes, marks, candidates, a table (all -1), and sums.
    """
    size = 4
    while size < 2 * n:
        size *= 2
    marks = np.zeros((2, WORDS), dtype=np.uint64)
    return (
        np.empty(n, dtype=np.uint32),
        marks,
        np.empty(n, dtype=np.int64),
        np.full(size, -1, dtype=np.int32),
        np.empty((n, 3)),
    )


@jit
def place_of(value: Any, mask: int) -> Any:
    """Return the slot of a float64 in a table of mask + 1 slots."""
    return (
        np.int64((np.uint64(np.float64(value).view(np.int64)) * MULTIPLIER_64) >> TOP_HALF) & mask
    )


@jit
def repeated(values: Any, n: int, scratch: Any) -> int:
    """Find the elements of values[:n] whose |value| may occur twice, and return their count.

    Their places are put into `candidates`, ascending. None is missed: equal values have equal
    hashes, and a hash that comes twice is marked twice.
    """
    hashes, marks, candidates = scratch[0], scratch[1], scratch[2]
    seen, again = marks[0], marks[1]
    for j in range(n):
        hashes[j] = (
            np.uint32(np.float32(abs(values[j])).view(np.uint32) * MULTIPLIER_32) >> MARK_SHIFT
        )
    for word in range(WORDS):
        seen[word] = np.uint64(0)
        again[word] = np.uint64(0)
    for j in range(n):
        word = hashes[j] >> WORD_SHIFT
        mark = np.uint64(1) << np.uint64(hashes[j] & WORD_MASK)
        before = seen[word]
        again[word] |= before & mark
        seen[word] = before | mark
    count = 0
    for j in range(n):
        candidates[count] = j
        count += int(
            (again[hashes[j] >> WORD_SHIFT] >> np.uint64(hashes[j] & WORD_MASK)) & np.uint64(1)
        )
    return count


@jit
def shared_keys(
    reference: Any, noise: Any, w0: Any, w1: Any, w2: Any, n: int, scratch: Any, extra: Any
) -> None:
    """Compute what equal |reference| add to the variance of the directions (w0, w1, w2).

    That is the excess over independent errors: (sum over a group of a)^2 = sum of a^2 + 2 a (sum of
    the earlier ones), with a = |w| sqrt(noise). extra[k] collects the second part. The table maps a
    key to the index of its group's first element.
    """
    candidates, table, sums = scratch[2], scratch[3], scratch[4]
    mask = table.size - 1
    extra[0] = extra[1] = extra[2] = 0.0
    used = 0
    for place in range(repeated(reference, n, scratch)):
        j = candidates[place]
        slot = place_of(abs(reference[j]), mask)
        while table[slot] >= 0 and abs(reference[table[slot]]) != abs(reference[j]):
            slot = (slot + 1) & mask
        root = np.sqrt(noise[j])
        amount0, amount1, amount2 = abs(w0[j]) * root, abs(w1[j]) * root, abs(w2[j]) * root
        first = table[slot]
        if first < 0:
            table[slot] = j
            sums[j, 0], sums[j, 1], sums[j, 2] = amount0, amount1, amount2
            # used <= place: that candidate has been read; the slots are cleared below
            candidates[used] = slot
            used += 1
            continue
        extra[0] += 2.0 * amount0 * sums[first, 0]
        extra[1] += 2.0 * amount1 * sums[first, 1]
        extra[2] += 2.0 * amount2 * sums[first, 2]
        sums[first, 0] += amount0
        sums[first, 1] += amount1
        sums[first, 2] += amount2
    for place in range(used):
        table[candidates[place]] = -1


@jit
def keyed_variance(
    key: Any,
    amplitude: Any,
    w0: Any,
    w1: Any,
    w2: Any,
    n: int,
    scratch: Any,
    coherent_variance: Any,
) -> None:
    """Add the variance of the errors that elements with one key share.

    coherent_variance[k] += sum over keys of (sum over the key of w_k amplitude)^2. A NaN is no key.
    """
    slots, table, sums = scratch[2], scratch[3], scratch[4]
    mask = table.size - 1
    used = 0
    for j in range(n):
        if np.isnan(key[j]):
            continue
        slot = place_of(key[j] + 0.0, mask)  # -0 is 0
        while table[slot] >= 0 and key[table[slot]] != key[j]:
            slot = (slot + 1) & mask
        first = table[slot]
        if first < 0:
            first = j
            table[slot] = j
            slots[used] = slot
            used += 1
            sums[j, 0] = sums[j, 1] = sums[j, 2] = 0.0
        sums[first, 0] += w0[j] * amplitude[j]
        sums[first, 1] += w1[j] * amplitude[j]
        sums[first, 2] += w2[j] * amplitude[j]
    for place in range(used):
        first = table[slots[place]]
        for k in range(3):
            coherent_variance[k] += sums[first, k] * sums[first, k]
        table[slots[place]] = -1
