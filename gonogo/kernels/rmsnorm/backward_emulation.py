"""The emulated dataflow of rmsnorm_bw and its builds: the right kernel and mutants.

It is the dataflow of layernorm_bw (gonogo.kernels.layernorm.emulation.backward) without a mean and
s1, written once for two arithmetics: a Wormhole's, and float64. Everything on the left of an arrow
is a bf16 buffer, unless it is named fp32:

    x^    <- pack(x * rstd)                          SFPU multiplication
    P     =  dy * gamma                              FPU, stays in Dst
    acc_c <- sum over tiles of P * x^ in lane c      fp32; 32 partials, the last tile masked
    s2    <- sum_c acc_c * bf16(1/N)                 matmul; stored fp32, read back as TF32
    dx    <- pack((P - x^ * s2) * rstd)              SFPU
    dgamma_j <- pack(sum_i pack(dy * x^))            fp32 down the rows

Where the kernel computes rstd itself, it does so as rmsnorm_fw does, and stores it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import Arrays, Floats
from gonogo.kernels.normalization.emulation.forward import (
    STALE,
    before_stale_rows,
    faults,
    flat,
)
from gonogo.kernels.normalization.emulation.logic import TILE, Logic, summed_tiles, tiles_of
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.rows import column_sum, lane_sums, row_mean
from gonogo.kernels.normalization.emulation.spoil import REGISTER, hang_or_crash, spoil
from gonogo.kernels.normalization.emulation.steps import Exact, Steps, Values, Wormhole
from gonogo.kernels.rmsnorm.emulation import changed_gamma
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

BOTH, DX, DGAMMA = ("dx", "dgamma"), ("dx",), ("dgamma",)
RIGHT = Logic(mean=False)

BUILDS: Mapping[str, tuple[str, tuple[str, ...], Logic]] = {
    "correct": ("The right kernel.", (), RIGHT),
    "drop-s2": ("x^ s2 is not subtracted at all.", DX, replace(RIGHT, change="drop-s2")),
    "s2-sign": (
        "x^ s2 is added instead of subtracted.",
        DX,
        replace(RIGHT, change="s2-sign"),
    ),
    "last-block-only": (
        "s2 keeps only its last block of three tiles.",
        DX,
        replace(RIGHT, square_tiles="last-block"),
    ),
    "bf16-accumulate": (
        "The sums over the tiles of a row run in a 16-bit Dst: a loss of precision, not of logic.",
        BOTH,
        replace(RIGHT, narrow_sums=True),
    ),
    "wrong-epsilon": (
        "epsilon is a thousand times too large where the kernel makes its own rstd.",
        BOTH,
        replace(RIGHT, epsilon_factor=1000.0),
    ),
    "mean-subtracted": (
        "x^ is (x - mean) rstd, as in LayerNorm.",
        BOTH,
        replace(RIGHT, change="mean"),
    ),
    "padded-count": (
        "s2 is divided by N with its padding to whole tiles.",
        DX,
        replace(RIGHT, divisor="padded"),
    ),
    "last-tile-only": ("s2 sums only the last tile.", DX, replace(RIGHT, square_tiles="last")),
    "last-tile-missing": (
        "s2 leaves out the last tile.",
        DX,
        replace(RIGHT, square_tiles="not-last"),
    ),
    "tile-missing": (
        "s2 leaves out the row's middle tile.",
        DX,
        replace(RIGHT, square_tiles="not-middle"),
    ),
    "mask-missing": (
        "The last tile isn't masked: its padding, which holds the row's first values again, "
        "enters s2.",
        DX,
        replace(RIGHT, mask=False),
    ),
    "stale-partial": (
        "Every 8th row has the s2 of the row before it.",
        DX,
        replace(RIGHT, stale_rows=True),
    ),
    "stale-register": (
        "s2 starts from what the previous run in the same process left in the register: "
        "right when run first.",
        DX,
        replace(RIGHT, stale=True),
    ),
    "rstd-off-1e-3": (
        "rstd is 1.001 times too large where it scales the result.",
        DX,
        replace(RIGHT, rstd_factor=1.001),
    ),
    "gamma-shifted-tile": (
        "gamma is read one tile (32 columns) too early.",
        DX,
        replace(RIGHT, change="gamma-tile"),
    ),
    "gamma-neighbour": (
        "gamma is that of the next column.",
        DX,
        replace(RIGHT, change="gamma-next"),
    ),
    "gamma-missing": ("gamma is left out.", DX, replace(RIGHT, change="gamma-ones")),
    "dgamma-last-row-tile-missing": (
        "dgamma leaves out the last tile of rows.",
        DGAMMA,
        replace(RIGHT, change="dgamma-rows"),
    ),
    "power-of-two-outliers": (
        "A few isolated values are twice too large.",
        DX,
        replace(RIGHT, outliers=True),
    ),
    "nan-tile": ("One 32x32 tile is NaN.", DX, replace(RIGHT, nan_tile=True)),
    "hang": ("The kernel never returns.", BOTH, replace(RIGHT, fate="hang")),
    "crash": ("The process dies of a segmentation fault.", BOTH, replace(RIGHT, fate="crash")),
}
FAULTS = faults(BUILDS)


class BackwardSteps(Steps, Protocol):
    """The further steps of the dataflow in one arithmetic. Rows are (rows, N), columns (rows,)."""

    def given(self, column: Values) -> Values:
        """Return a given column as it is read."""
        ...

    def product(self, dy: Values, gamma: Values) -> Values:
        """Return P = dy gamma; it stays in the register."""
        ...

    def weighted(self, a: Values, b: Values) -> Values:
        """Return a b of rows; it stays in the register."""
        ...

    def average(
        self, terms: Values, tiles: NDArray[np.bool_], stale: Values, divisor: int
    ) -> Values:
        """Return the sum of each row over the selected tiles, by `divisor`, read back."""
        ...

    def gradient(self, product: Values, through: Values, scale: Values) -> Values:
        """Return (P - x^ s2) rstd as it is written out."""
        ...

    def down(self, dy: Values, xhat: Values) -> Values:
        """Return the sum of dy x^ down the rows (N,), before it is written out."""
        ...


@dataclass(frozen=True)
class WormholeBackward(Wormhole):
    """The arithmetic of a Tensix core."""

    def given(self, column: Floats) -> Floats:
        return wh.read_source(column, self.machine.narrow)

    def product(self, dy: Floats, gamma: Floats) -> Floats:
        m = self.machine
        gamma = np.broadcast_to(wh.read_source(gamma, m.reads_bf16("gamma", "dy")), dy.shape)
        products = wh.product(dy, gamma, m.fidelity)
        return wh.round_dst_bf16(products) if m.narrow else products

    def weighted(self, a: Floats, b: Floats) -> Floats:
        return self._vector(wh.vector_multiply(a, b))

    def average(
        self, terms: Floats, tiles: NDArray[np.bool_], stale: Floats, divisor: int
    ) -> Floats:
        m = self.machine
        partial = lane_sums(terms, tiles, stale, m.narrow_sums)
        total = row_mean(partial, wh.scaler(1.0 / divisor), m.fidelity, m.srcb_bf16, m.narrow)
        return wh.read_source(total, m.narrow)  # stored fp32, unpacked through SrcA

    def gradient(self, product: Floats, through: Floats, scale: Floats) -> Floats:
        rest = self._vector(wh.vector_subtract(product, through))
        dx = self._vector(wh.vector_multiply(rest, scale[:, None]))
        return wh.pack(dx, self.machine.output)

    def down(self, dy: Floats, xhat: Floats) -> Floats:
        terms = wh.pack(self._vector(wh.vector_multiply(dy, xhat)), self.machine.buffers)
        return column_sum(wh.read_source(terms), self.machine.narrow)


class ExactBackward(Exact):
    """The same steps without rounding, in float64."""

    def given(self, column: Array) -> Array:
        return column

    def product(self, dy: Array, gamma: Array) -> Array:
        return dy * gamma

    def weighted(self, a: Array, b: Array) -> Array:
        return a * b

    def average(self, terms: Array, tiles: NDArray[np.bool_], stale: Array, divisor: int) -> Array:
        return self.total(terms, tiles, stale, divisor)

    def gradient(self, product: Array, through: Array, scale: Array) -> Array:
        return (product - through) * scale[:, None]

    def down(self, dy: Array, xhat: Array) -> Array:
        return np.asarray((dy * xhat).sum(axis=0))


@dataclass(frozen=True)
class Gradients:
    """The input of the flow: x and dy (rows, N), gamma (N,), and rstd (rows,) where it is given."""

    x: Values
    dy: Values
    gamma: Values
    rstd: Values | None

    def part(self, start: int, stop: int) -> Gradients:
        """Return the rows from `start` to `stop`."""
        rstd = None if self.rstd is None else self.rstd[start:stop]
        return Gradients(self.x[start:stop], self.dy[start:stop], self.gamma, rstd)


def flow(
    steps: BackwardSteps,
    rows: Gradients,
    epsilon: float,
    logic: Logic,
    stale: Values,
    dgamma_rows: int,
) -> tuple[Values, Values]:
    """Return dx (rows, N) and the sums for dgamma (N,) over the first `dgamma_rows` rows."""
    x, n = rows.x, rows.x.shape[1]
    tiles = tiles_of(n)
    everything, clear = np.ones(tiles, np.bool_), np.zeros_like(stale)
    if rows.rstd is None:
        total = steps.total(steps.square(x), everything, clear, n)
        rstd = steps.column(steps.root(total, epsilon * logic.epsilon_factor))
    else:
        rstd = steps.given(rows.rstd)
    mean = None
    if logic.change == "mean":
        mean = steps.column(steps.total(x, everything, clear, n))
    xhat = steps.normal(x, mean, rstd)
    product = steps.product(rows.dy, changed_gamma(rows.gamma, logic.change))
    weighted = steps.weighted(product, xhat)
    divisor = tiles * TILE if logic.divisor == "padded" else n
    columns = logic.summed_columns(n)
    s2 = steps.average(
        weighted[:, columns], summed_tiles(logic.square_tiles, tiles), stale, divisor
    )
    if logic.stale_rows:
        s2 = before_stale_rows(s2)
    factor = {"drop-s2": 0.0, "s2-sign": -1.0}.get(logic.change, 1.0)
    through = steps.weighted(xhat, steps.times(s2, factor)[:, None])
    dx = steps.gradient(product, through, steps.times(rstd, logic.rstd_factor))
    return dx, steps.down(rows.dy[:dgamma_rows], xhat[:dgamma_rows])


def run(
    test: TestSpec, given: Mapping[str, Floats], build: str, *, position: int = 0
) -> dict[str, Floats]:
    """Return dx (rows, N) and dgamma (N,) of the build; KeyError for an unknown one.

    Doesn't return from a build that hangs or crashes.
    """
    logic = BUILDS[build][2]
    if logic.fate is not None:
        hang_or_crash(logic.fate)
    rows = _rows(flat(given, test))
    machine = Machine.of(test, logic.narrow_sums)
    steps = WormholeBackward(machine, columns_in_srcb=True)
    stale = REGISTER.lanes() if logic.stale and position > 0 else np.zeros(TILE, np.float32)
    summed = _dgamma_rows(len(rows.x), logic)

    def block(start: int, stop: int) -> tuple[Floats, Floats]:
        part = rows.part(start, stop)
        read = replace(part, x=wh.read_source(part.x), dy=wh.read_source(part.dy))
        here = max(0, min(stop, summed) - start)
        return flow(steps, read, test.epsilon, logic, stale, here)

    blocks = over_rows(block, len(rows.x), ROWS_PER_BLOCK)
    dx = np.concatenate([outputs[0] for outputs in blocks])
    sums = column_sum(np.stack([outputs[1] for outputs in blocks]), machine.narrow)
    REGISTER.leave(dx)
    spoiled = spoil(dx, np.asarray(rows.x, np.float32), logic)
    return {"dx": spoiled, "dgamma": wh.pack(sums, machine.output)}


def ideal(test: TestSpec, given: Arrays, build: str) -> dict[str, Array]:
    """Return dx and dgamma by the float64 function of the build's logic."""
    logic = BUILDS[build][2]
    wide = {name: np.asarray(a, np.float64) for name, a in flat(given, test).items()}
    rows = _rows(wide)
    stale = np.full(TILE, STALE if logic.stale else 0.0)
    summed = _dgamma_rows(len(rows.x), logic)
    dx, dgamma = flow(ExactBackward(), rows, test.epsilon, logic, stale, summed)
    return {
        "dx": spoil(dx, np.asarray(given["x"], np.float32).reshape(dx.shape), logic),
        "dgamma": dgamma,
    }


def _rows(given: Mapping[str, Values]) -> Gradients:
    return Gradients(given["x"], given["dy"], given["gamma"], given.get("rstd"))


def _dgamma_rows(rows: int, logic: Logic) -> int:
    """Return how many rows dgamma sums."""
    return (rows - 1) // TILE * TILE if logic.change == "dgamma-rows" else rows
