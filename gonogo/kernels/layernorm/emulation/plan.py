"""The logic of LayerNorm's emulated builds, forward and backward."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.normalization.emulation.logic import TILE, Logic, summed_tiles, tiles_of

BLOCK_TILES = 3
"""Tiles that tt-train's layernorm_bw handles at a time (its block size)."""

L1_BYTES = 1_499_136
"""Bytes of a Wormhole core's L1 that circular buffers may use.

It is `worker_l1_size` of tt-metal's Wormhole SoC descriptor (1,464 KiB), and the figure in
tt-metal's error "beyond max L1 size of 1499136 B".
"""

ROW_BYTES_PER_TILE = 8192
FIXED_BYTES = 57_344


def takes_block_path(features: int) -> bool:
    """Return whether tt-train's layernorm_bw reads a row of `features` in blocks.

    It does so where the row doesn't fit in L1 (above 176 tiles). Both paths add the same terms in
    the same order, so a right kernel gives the same bits on both.
    """
    return ROW_BYTES_PER_TILE * tiles_of(features) + FIXED_BYTES > L1_BYTES


@dataclass(frozen=True)
class Plan(Logic):
    """The logic of one build, with the switches that only a backward kernel has.

    Attributes:
        s1_times: how often s1 is subtracted (0: dropped).
        s1_last_tiles: s1 sums only this many last tiles (None: all).
        s2_last_block: s2 keeps only its last block of three tiles.
        gamma_shift: gamma is rotated by this many tiles (also in a forward kernel).
        drop_last_row_tile: dgamma leaves out the last tile of rows.
    """

    s1_times: int = 1
    s1_last_tiles: int | None = None
    s2_last_block: bool = False
    gamma_shift: int = 0
    drop_last_row_tile: bool = False

    def statistics_only(self) -> Logic:
        """Return the switches that affect a mean and rstd that a backward kernel computes itself.

        The plan's other faults come later in the dataflow.
        """
        return Logic(epsilon_factor=self.epsilon_factor, divisor=self.divisor)

    def logic(self) -> Plan:
        """Return this plan without what has no float64 effect: precision, and fates."""
        return replace(self, narrow_sums=False, fate=None)

    def first_sum_tiles(self, tiles: int) -> NDArray[np.bool_]:
        """Return a mask of the tiles that a row's first sum includes (s1; forward: the mean)."""
        summed = summed_tiles(self.first_tiles, tiles)
        if self.s1_last_tiles is not None:
            summed[: max(tiles - self.s1_last_tiles, 0)] = False
        return summed

    def second_sum_tiles(self, tiles: int) -> NDArray[np.bool_]:
        """Return a mask of the tiles of a row that s2 includes.

        The last block starts at a multiple of three.
        """
        return summed_tiles("last-block" if self.s2_last_block else "all", tiles)

    def gamma(self, gamma: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return gamma as this build reads it."""
        return np.roll(gamma, self.gamma_shift * TILE) if self.gamma_shift else gamma

    def dgamma_rows(self, rows: int) -> int:
        """Return how many rows dgamma sums."""
        return (rows - 1) // TILE * TILE if self.drop_last_row_tile else rows
