"""The logic of a build as switches on one dataflow, and the tiles of a row."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

TILE = 32
"""Rows and columns of a tile; a lane is a column modulo this."""

BLOCK_TILES = 3
"""The tiles of a block, which the kernels read at a time."""

Tiles = Literal["all", "last", "last-two", "last-block", "not-last", "not-middle"]


@dataclass(frozen=True)
class Logic:
    """The switches of one build; the defaults are the right kernel.

    Attributes:
        mean: the kernel has a mean. about: the squares are taken about it. subtracted: what x^
            subtracts; with "nothing" the subtraction is left out, with "zero" it still rounds.
        first_tiles, square_tiles: the tiles that the mean, and the mean of the squares, sum. A
            kernel without a mean has only the latter. In a backward kernel, s1 sums first_tiles,
            and s2 square_tiles.
        s1_times, s2_times: how often a backward kernel subtracts s1, and x^ s2.
        mask: the padding of the last tile is masked; if not, it holds the row's first values again.
        divisor: what the sums are divided by: N; N with its padding; or N - 1 for the squares.
        epsilon_factor: epsilon is multiplied by this.
        rstd_factor: rstd is multiplied by this, in fp32, where it scales the result (dx; forward:
            x^ and the output rstd).
        narrow_sums: the sums over the tiles of a row run in a 16-bit Dst (their reduction by matmul
            doesn't).
        stale: a row's first sum starts from what the kernel before left in the register.
        stale_rows: every 8th row uses the sum of squares of the row before it.
        outliers: isolated values of the first output are off by a power of two.
        nan_tile: one tile of the first output is NaN.
        fate: the process hangs or crashes instead of giving outputs.
        change: the name of another fault: of gamma or of dgamma's rows (see the methods below), or
            one that only this kind has.
    """

    mean: bool = True
    about: bool = True
    subtracted: Literal["mean", "zero", "nothing"] = "mean"
    first_tiles: Tiles = "all"
    square_tiles: Tiles = "all"
    s1_times: int = 1
    s2_times: float = 1.0
    mask: bool = True
    divisor: Literal["right", "padded", "unbiased"] = "right"
    epsilon_factor: float = 1.0
    rstd_factor: float = 1.0
    narrow_sums: bool = False
    stale: bool = False
    stale_rows: bool = False
    outliers: bool = False
    nan_tile: bool = False
    fate: Literal["hang", "crash"] | None = None
    change: str = ""

    def summed_columns(self, features: int) -> NDArray[np.intp]:
        """Return the column that each summed lane position reads.

        These are 0..N-1 and, without the mask, those that the padding repeats.
        """
        width = features if self.mask else tiles_of(features) * TILE
        return np.arange(width, dtype=np.intp) % features

    def divisors(self, features: int) -> tuple[int, int]:
        """Return what the mean and the mean of the squares are divided by."""
        whole = tiles_of(features) * TILE if self.divisor == "padded" else features
        return whole, max(features - 1, 1) if self.divisor == "unbiased" else whole

    def statistics_only(self) -> Logic:
        """Return the switches that affect a mean and rstd that a backward kernel computes itself.

        The other faults come later in its dataflow; so does a divisor with padding, which is s2's.
        """
        divisor = self.divisor if self.divisor == "unbiased" else "right"
        return Logic(mean=self.mean, epsilon_factor=self.epsilon_factor, divisor=divisor)

    def exact(self) -> Logic:
        """Return this logic without what has no float64 effect: precision, and fates."""
        return replace(self, narrow_sums=False, fate=None)

    def gamma(self, gamma: NDArray[Any]) -> NDArray[Any]:
        """Return gamma (N,) as this build reads it."""
        match self.change:
            case "gamma-tile":
                return np.roll(gamma, TILE)
            case "gamma-next":
                return np.roll(gamma, -1)
            case "gamma-ones":
                return np.ones_like(gamma)
        return gamma

    def dgamma_rows(self, rows: int) -> int:
        """Return how many rows dgamma sums."""
        return (rows - 1) // TILE * TILE if self.change == "dgamma-rows" else rows


def tiles_of(features: int) -> int:
    """Return the number of tiles across a row: Wt = ceil(N / 32)."""
    return -(-features // TILE)


def summed_tiles(tiles: Tiles, count: int) -> NDArray[np.bool_]:
    """Return a mask of the row's tiles that are summed. A single tile is always summed."""
    summed = np.ones(count, dtype=np.bool_)
    if count > 1:
        match tiles:
            case "last":
                summed[:-1] = False
            case "last-two":
                summed[:-2] = False
            case "last-block":
                summed[: (count - 1) // BLOCK_TILES * BLOCK_TILES] = False
            case "not-last":
                summed[-1] = False
            case "not-middle":
                summed[count // 2] = False
    return summed
