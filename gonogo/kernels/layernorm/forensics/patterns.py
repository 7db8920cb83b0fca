"""Simple patterns of tiles, for fewer rows than tiles.

They are tried one by one. One is accepted only when no other fits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PERIODS = (2, 3, 4, 8)
STEPS = 2
"""Patterns that are added to the total.

One marks a stretch of tiles, a start or an end; two mark two of them.
"""
CLEAR = 25.0
"""A pattern is accepted when the next best one leaves this much more.

The unit is chi square: 5 standard deviations.
"""


@dataclass(frozen=True)
class Pattern:
    """Coefficients and errors per tile of a pattern, and its residual in units of rounding."""

    coefficients: Array
    errors: Array
    scatter: float


def search(
    weighted: Array, target: Array, telling: NDArray[np.bool_], good: float
) -> Pattern | None:
    """Return the one pattern of at most STEPS steps that fits `target` = `weighted` @ c.

    `weighted` is (rows, tiles). Both are in units of rounding. Patterns: all tiles, a stretch of
    tiles (one tile, all from some tile on), every m-th tile. Returns None where none leaves less
    than `good`, where the runner-up fits as well, or where the rows are too few to refute a wrong
    one.
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
            if best - float(gains[order[1]]) < CLEAR:
                return None
            return _pattern(basis, target, np.array(chosen), telling)
    return None


def _stretches(running: Array, left: Array, floor: float) -> tuple[Array, Array]:
    """Return what the two best stretches of tiles would explain of `left`, and the stretches.

    A stretch's sum is the difference of two of the `running` sums over the tiles, so all of them
    cost two small matrix products. Stretches from the first tile on are left out: with the total
    known they equal those to the last tile.
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
    """Return the squared length that a direction explains; 0 where it is no more than rounding."""
    return np.divide(along**2, size, out=np.zeros_like(size), where=size > floor)


def _regular(tiles: int) -> Array:
    """Return every m-th tile, as rows of zeros and ones.

    None occurs twice, nor as another's complement.
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
    """Return the least squares fit of the chosen patterns, spread over the tiles."""
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
