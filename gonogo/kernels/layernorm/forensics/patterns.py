"""Fewer rows than tiles: the simple patterns of tiles, tried one by one, and taken only when
exactly one of them fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PERIODS = (2, 3, 4, 8)
STEPS = 2
"""Patterns that are added to the total: one marks a stretch of tiles, a start or an end; two mark
two of them."""
CLEAR = 25.0
"""A pattern is taken when the next best one leaves over this much more (in chi square: 5 standard
deviations)."""


@dataclass(frozen=True)
class Pattern:
    """Coefficients and errors per tile that a pattern gives, and what it leaves over in units of
    the rounding.
    """

    coefficients: Array
    errors: Array
    scatter: float


def search(
    weighted: Array, target: Array, telling: NDArray[np.bool_], good: float
) -> Pattern | None:
    """The one pattern of at most STEPS steps that fits `target` = `weighted` (rows, tiles) @ c,
    both in units of rounding.

    Patterns: all tiles, a stretch of tiles (one tile, all from some tile on), every m-th tile. None
    where none leaves over less than `good`, where the runner-up fits as well, or where the rows are
    too few to refute a wrong one.
    """
    rows, tiles = weighted.shape
    basis = weighted.sum(axis=1)[:, None]
    regular = _regular(tiles)
    running = np.concatenate([np.zeros((rows, 1)), np.cumsum(weighted, axis=1)], axis=1)
    floor = 1e-9 * float(np.square(weighted).sum()) / tiles
    chosen: list[Array] = []
    for _ in range(STEPS):
        freedom = rows - basis.shape[1] - 1
        if freedom < 4:
            return None
        orthogonal, _ = np.linalg.qr(basis)
        left = target - orthogonal @ (orthogonal.T @ target)
        gains, masks = _stretches(running - orthogonal @ (orthogonal.T @ running), left, floor)
        if len(regular):
            sums = weighted @ regular.T
            sums -= orthogonal @ (orthogonal.T @ sums)
            gains = np.concatenate(
                [gains, _gain(sums.T @ left, np.square(sums).sum(axis=0), floor)]
            )
            masks = np.concatenate([masks, regular])
        order = np.argsort(gains)[::-1]
        best = float(gains[order[0]])
        chosen.append(masks[order[0]])
        basis = np.column_stack([basis, weighted @ chosen[-1]])
        if float(left @ left) - best <= good**2 * freedom:
            if len(order) > 1 and best - float(gains[order[1]]) < CLEAR:
                return None
            return _pattern(basis, target, np.array(chosen), telling)
    return None


def _stretches(running: Array, left: Array, floor: float) -> tuple[Array, Array]:
    """What the two best stretches of tiles would explain of `left`, and the stretches, from the
    running sums over the tiles.

    A stretch's sum is the difference of two running sums, so that all of them cost two small matrix
    products. Those from the first tile on are left out: with the total known they are the same as
    those to the last tile.
    """
    tiles = running.shape[1] - 1
    gram, along = running.T @ running, running.T @ left
    size = np.diag(gram)
    gain = _gain(along[None, :] - along[:, None], size[None, :] + size[:, None] - 2 * gram, floor)
    gain[np.tril_indices(tiles + 1)] = 0.0
    gain[0] = 0.0
    best = np.argsort(gain, axis=None)[::-1][:2]
    first, last = np.unravel_index(best, gain.shape)
    tile = np.arange(tiles)
    masks = (tile >= first[:, None]) & (tile < last[:, None])
    return gain.ravel()[best], masks.astype(np.float64)


def _gain(along: Array, size: Array, floor: float) -> Array:
    """Squared length that a direction explains; none where the direction is no more than
    rounding.
    """
    with np.errstate(all="ignore"):
        return np.where(size > floor, along**2 / np.where(size > floor, size, 1.0), 0.0)


def _regular(tiles: int) -> Array:
    """Every m-th tile, as rows of zeros and ones, none of them twice (nor twice as one's
    complement).
    """
    tile = np.arange(tiles)
    every = [
        tile % period == phase
        for period in PERIODS
        if tiles >= 4 * period
        for phase in range(period if period > 2 else 1)
    ]
    return np.array(every, dtype=np.float64).reshape(-1, tiles)


def _pattern(basis: Array, target: Array, masks: Array, telling: NDArray[np.bool_]) -> Pattern:
    """Least squares on the chosen patterns, spread over the tiles."""
    gram = np.linalg.pinv(basis.T @ basis, rcond=1e-12, hermitian=True)
    weights = gram @ (basis.T @ target)
    left = target - basis @ weights
    scatter = float(np.sqrt(left @ left / max(1, len(target) - basis.shape[1])))
    spread = np.vstack([np.ones(masks.shape[1]), masks]).T
    errors = max(1.0, scatter) * np.sqrt(
        np.maximum(np.einsum("tk,kl,tl->t", spread, gram, spread), 0.0)
    )
    # a tile that the rows do not show still belongs to a stretch of tiles that they do show
    shown = telling | (masks.sum(axis=0) > 0) | (telling.mean() > 0.5)
    return Pattern(
        np.where(shown, spread @ weights, np.nan), np.where(shown, errors, np.nan), scatter
    )
