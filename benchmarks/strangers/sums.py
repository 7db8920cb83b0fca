"""Sums along the last axis in float32, in the orders that processors use."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Order = Callable[[Floats, np.random.Generator], Floats]
"""(rows, n) and chance to (rows,)."""


def sequential(terms: Floats, chance: np.random.Generator) -> Floats:
    """One accumulator, first to last."""
    return np.cumsum(terms, axis=-1, dtype=np.float32)[:, -1]


def backwards(terms: Floats, chance: np.random.Generator) -> Floats:
    """One accumulator, last to first."""
    return sequential(terms[:, ::-1], chance)


def pairwise(terms: Floats, chance: np.random.Generator) -> Floats:
    """Neighbours first: a tree over all terms."""
    while terms.shape[-1] > 1:
        if terms.shape[-1] % 2:
            terms = np.pad(terms, ((0, 0), (0, 1)))
        terms = terms[:, 0::2] + terms[:, 1::2]
    return terms[:, 0]


def halves(terms: Floats, chance: np.random.Generator) -> Floats:
    """The two halves are added, again and again: a shuffle tree."""
    while terms.shape[-1] > 1:
        if terms.shape[-1] % 2:
            terms = np.pad(terms, ((0, 0), (0, 1)))
        half = terms.shape[-1] // 2
        terms = terms[:, :half] + terms[:, half:]
    return terms[:, 0]


def lanes(width: int) -> Order:
    """`width` accumulators, one a lane; then a tree over the lanes."""

    def order(terms: Floats, chance: np.random.Generator) -> Floats:
        columns = in_blocks(terms, width)
        return pairwise(np.cumsum(columns, axis=1, dtype=np.float32)[:, -1], chance)

    return order


def tiles(width: int) -> Order:
    """Each tile's own sum first (a tree), then one accumulator over the tiles."""

    def order(terms: Floats, chance: np.random.Generator) -> Floats:
        blocks = in_blocks(terms, width)
        rows, count, _ = blocks.shape
        return sequential(
            pairwise(blocks.reshape(rows * count, width), chance).reshape(rows, count), chance
        )

    return order


def cores(
    count: int,
    part_sum: Order,
    rounding: Callable[[Floats, np.random.Generator], Floats] | None = None,
) -> Order:
    """Sum equal parts of the row on `count` cores, and add the parts in order.

    Each part is summed by `part_sum` and, given a rounding, stored.
    """

    def order(terms: Floats, chance: np.random.Generator) -> Floats:
        parts = np.array_split(terms, min(count, terms.shape[-1]), axis=-1)
        sums = np.stack([part_sum(part, chance) for part in parts], axis=-1)
        return sequential(sums if rounding is None else rounding(sums, chance), chance)

    return order


def shuffled(terms: Floats, chance: np.random.Generator) -> Floats:
    """One accumulator, another order in every run: atomic additions."""
    return sequential(terms[:, chance.permutation(terms.shape[-1])], chance)


def compensated(terms: Floats, chance: np.random.Generator) -> Floats:
    """Kahan's sum in 32 lanes, then a tree."""
    blocks = in_blocks(terms, 32)
    total = np.zeros_like(blocks[:, 0])
    lost = np.zeros_like(total)
    for step in range(blocks.shape[1]):
        term = blocks[:, step] - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return pairwise(total, chance)


def double(terms: Floats, chance: np.random.Generator) -> Floats:
    """In float64, rounded once."""
    return np.asarray(terms.sum(axis=-1, dtype=np.float64), np.float32)


def running(rounding: Callable[[Floats, np.random.Generator], Floats], width: int) -> Order:
    """Sum each `width` terms by a tree into one accumulator that is stored after every one.

    That is a narrow accumulator.
    """

    def order(terms: Floats, chance: np.random.Generator) -> Floats:
        blocks = in_blocks(terms, width)
        total = np.zeros(terms.shape[0], np.float32)
        for step in range(blocks.shape[1]):
            total = rounding(total + pairwise(blocks[:, step], chance), chance)
        return total

    return order


def in_blocks(terms: Floats, width: int) -> Floats:
    """(rows, n) as (rows, blocks, width), zeros behind the last."""
    padded = np.pad(terms, ((0, 0), (0, -terms.shape[-1] % width)))
    return padded.reshape(terms.shape[0], -1, width)


ORDERS: dict[str, Order] = {
    "sequential": sequential,
    "backwards": backwards,
    "pairwise": pairwise,
    "halves": halves,
    "lanes-8": lanes(8),
    "lanes-16": lanes(16),
    "lanes-32": lanes(32),
    "lanes-128": lanes(128),
    "tiles": tiles(32),
    "faces": tiles(16),
    "cores-4": cores(4, lanes(32)),
    "cores-7": cores(7, sequential),
    "shuffled": shuffled,
    "compensated": compensated,
    "double": double,
}
