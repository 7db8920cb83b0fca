"""The settings of the emulated kernels.

`Plan` is the logic of a build (right or wrong), `Machine` the numerics of a test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation.loops import Rules
from gonogo.numerics.jit import HAVE_NUMBA
from gonogo.numerics.tensix.arithmetic_jit import FIDELITY_MASKS

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

TILE = 32
"""Rows and columns of a tile; a lane is a column modulo this."""

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


def tiles_of(features: int) -> int:
    """Return the number of tiles across a row: Wt = ceil(N / 32)."""
    return -(-features // TILE)


@dataclass(frozen=True)
class Plan:
    """The logic of one build as switches on one dataflow; the defaults are the right kernel.

    Attributes:
        s1_times: how often s1 is subtracted (0: dropped).
        s1_last_tiles: s1 sums only this many last tiles (None: all).
        s2_last_block: s2 keeps only its last block of three tiles.
        tile_missing: the middle tile is missing from the first sum of a row (s1; forward: the
            mean).
        last_tile_missing: the last tile is missing from that sum.
        mask: the padding of the last tile is masked; if not, it holds the row's first values again.
        subtract_mean: x^ = (x - mean) rstd; if not, x rstd.
        epsilon_factor: epsilon is multiplied by this.
        unbiased: variance divides by N - 1.
        rstd_factor: rstd is multiplied by this, in fp32, where it scales the result (dx; forward:
            x^ and the output rstd).
        gamma_shift: gamma is rotated by this many tiles.
        drop_last_row_tile: dgamma leaves out the last tile of rows.
        narrow_sums: the sums over the tiles of a row run in a 16-bit Dst (their reduction by matmul
            doesn't).
        stale: a row's first sum starts from what the previous kernel left in the register.
        outliers: isolated values of the first output are off by a power of two.
        nan_tile: one tile of the first output is NaN.
        fate: the process hangs or crashes instead of giving outputs.
    """

    s1_times: int = 1
    s1_last_tiles: int | None = None
    s2_last_block: bool = False
    tile_missing: bool = False
    last_tile_missing: bool = False
    mask: bool = True
    subtract_mean: bool = True
    epsilon_factor: float = 1.0
    unbiased: bool = False
    rstd_factor: float = 1.0
    gamma_shift: int = 0
    drop_last_row_tile: bool = False
    narrow_sums: bool = False
    stale: bool = False
    outliers: bool = False
    nan_tile: bool = False
    fate: Literal["hang", "crash"] | None = None

    def statistics_only(self) -> Plan:
        """Return the switches that affect a mean and rstd that a backward kernel computes itself.

        The plan's other faults come later in the dataflow.
        """
        return Plan(epsilon_factor=self.epsilon_factor, unbiased=self.unbiased)

    def logic(self) -> Plan:
        """Return this plan without what has no float64 effect: precision, and fates."""
        return replace(self, narrow_sums=False, fate=None)

    def first_sum_tiles(self, tiles: int) -> NDArray[np.bool_]:
        """Return a mask of the tiles that a row's first sum includes (s1; forward: the mean)."""
        summed = np.ones(tiles, dtype=np.bool_)
        if self.s1_last_tiles is not None:
            summed[: max(tiles - self.s1_last_tiles, 0)] = False
        if self.tile_missing and tiles > 1:
            summed[tiles // 2] = False
        if self.last_tile_missing and tiles > 1:
            summed[-1] = False
        return summed

    def second_sum_tiles(self, tiles: int) -> NDArray[np.bool_]:
        """Return a mask of the tiles of a row that s2 includes.

        The last block starts at a multiple of three.
        """
        summed = np.ones(tiles, dtype=np.bool_)
        if self.s2_last_block:
            summed[: (tiles - 1) // BLOCK_TILES * BLOCK_TILES] = False
        return summed

    def summed_columns(self, features: int) -> NDArray[np.intp]:
        """Return the column that each summed lane position reads.

        These are 0..N-1 and, without the mask, those that the padding repeats.
        """
        width = features if self.mask else tiles_of(features) * TILE
        return np.arange(width, dtype=np.intp) % features

    def gamma(self, gamma: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return gamma as this build reads it."""
        return np.roll(gamma, self.gamma_shift * TILE) if self.gamma_shift else gamma

    def dgamma_rows(self, rows: int) -> int:
        """Return how many rows dgamma sums."""
        return (rows - 1) // TILE * TILE if self.drop_last_row_tile else rows


@dataclass(frozen=True)
class Machine:
    """The numerics of a test, as the emulated kernels need them.

    Attributes:
        fidelity: phases of every FPU product.
        narrow: 16-bit Dst for everything that passes through it.
        narrow_sums: 16-bit Dst for the sums over the tiles of a row (also a build's regression, in
            a
            test that asks for fp32).
        buffers: format of x^ and of the other stored intermediates.
        output: format of the outputs.
        srcb_bf16: in an op of mixed formats, SrcB sees the fp32 operand as bf16 instead of TF32.
        formats: format of each input tensor, of "buffers" and of "scaler", the tile of 1/N.
    """

    fidelity: str
    narrow: bool
    narrow_sums: bool
    buffers: str
    output: str
    srcb_bf16: bool
    formats: Mapping[str, str]

    @classmethod
    def of(cls, test: TestSpec, plan: Plan) -> Machine:
        numerics = test.numerics
        names = ("x", "dy", "gamma", "beta", "mean", "rstd")
        narrow = numerics.accumulate == "bf16"
        return cls(
            fidelity=numerics.fidelity,
            narrow=narrow,
            narrow_sums=narrow or plan.narrow_sums,
            buffers=numerics.buffers,
            output=numerics.output,
            srcb_bf16=numerics.srcb == "bf16",
            formats={"buffers": numerics.buffers, "scaler": "bf16"}
            | {name: numerics.format_of(name) for name in names},
        )

    @property
    def compiled(self) -> bool:
        """True where the compiled loops support these numerics.

        The NumPy definition supports all.
        """
        return HAVE_NUMBA and self.buffers in ("bf16", "fp32")

    def rules(self, lanes_bf16: bool, mean_bf16: bool = False) -> Rules:
        """Return these numerics for the compiled loops."""
        high, low = FIDELITY_MASKS[self.fidelity]
        return Rules(
            high,
            low,
            narrow=self.narrow,
            narrow_sums=self.narrow_sums,
            lanes_bf16=lanes_bf16,
            mean_bf16=mean_bf16,
            bf16_buffers=self.buffers == "bf16",
            bf16_output=self.output == "bf16",
        )

    def reads_bf16(self, source_b: str, source_a: str) -> bool:
        """Return whether SrcB truncates tensor `source_b` to bf16 beside `source_a` in SrcA.

        That is a mixed op under `srcb: bf16`.
        """
        return (
            self.srcb_bf16 and self.formats[source_b] == "fp32" and self.formats[source_a] != "fp32"
        )
