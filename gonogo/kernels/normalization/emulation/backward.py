"""The emulated dataflow of backward kernels that normalize rows: LayerNorm's and RMSNorm's.

It is tt-train's layernorm_bw, written once over two arithmetics: a Wormhole's, which is the NumPy
definition of its compiled loop, and float64. Everything on the left of an arrow is a bf16 buffer,
unless it is named fp32. The right column holds for a kernel without a mean:

    x^    <- pack((x -ELWSUB- mean) * rstd)          x * rstd        SFPU multiplication
    P     =  dy * gamma                                              FPU, stays in Dst
    acc_c <- sum over tiles of P in lane c           none            fp32; 32 partials, the last
                                                                     tile masked
    s1    <- sum_c acc_c * bf16(1/N)                 none            matmul; acc_c as SrcB sees it;
                                                                     stored fp32, read as TF32
    s2    <- the same for P * x^                                     SFPU multiplication
    dx    <- pack(((P - s1) - x^ * s2) * rstd)       P - x^ * s2     SFPU
    dgamma_j <- pack(sum_i pack(dy * x^))                            fp32 down the rows
    dbeta_j  <- pack(sum_i dy)                       none

The published deterministic figures show that 1/N is truncated to bf16, and s1 and s2 to TF32: with
dy = gamma = 1 and x = .5 at N = 8462 the right LayerNorm gives (1 - 8462 bf16(1/8462)) * 1000 =
3.42188.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.kind import Floats
from gonogo.kernels.normalization.emulation.forward import CLEAR, STALE, before_stale_rows
from gonogo.kernels.normalization.emulation.logic import TILE, Logic, summed_tiles, tiles_of
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.rows import column_sum, lane_sums, row_mean
from gonogo.kernels.normalization.emulation.spoil import REGISTER, spoil
from gonogo.kernels.normalization.emulation.steps import Exact, Steps, Values, Wormhole
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh


class BackwardSteps(Steps, Protocol):
    """The further steps of the dataflow in one arithmetic. Rows are (rows, N), columns (rows,)."""

    def product(self, dy: Values, gamma: Values) -> Values:
        """Return P = dy gamma; it stays in the register."""
        ...

    def weighted(self, a: Values, b: Values) -> Values:
        """Return a b of rows; it stays in the register."""
        ...

    def average(
        self, terms: Values, tiles: NDArray[np.bool_], stale: Values, divisor: int
    ) -> Values:
        """Return the sum of each row over the selected tiles, by `divisor`, read back (rows, 1)."""
        ...

    def less(self, a: Values, b: Values) -> Values:
        """Return a - b of rows; it stays in the register."""
        ...

    def gradient(self, rest: Values, scale: Values) -> Values:
        """Return rest times a column, as it is written out."""
        ...

    def down(self, dy: Values, xhat: Values | None, rows: int) -> Values:
        """Return the sum of dy x^, or of dy, down the first rows (N,), before it is written out."""
        ...


@dataclass(frozen=True)
class WormholeBackward(Wormhole):
    """The arithmetic of a Tensix core."""

    def product(self, dy: Floats, gamma: Floats) -> Floats:
        products = wh.product(dy, np.broadcast_to(gamma, dy.shape), self.machine.fidelity)
        return wh.round_dst_bf16(products) if self.machine.narrow else products

    def weighted(self, a: Floats, b: Floats) -> Floats:
        return self._vector(wh.vector_multiply(a, b))

    def average(
        self, terms: Floats, tiles: NDArray[np.bool_], stale: Floats, divisor: int
    ) -> Floats:
        m = self.machine
        partial = lane_sums(terms, tiles, stale, m.narrow_sums)
        total = row_mean(partial, wh.scaler(1.0 / divisor), m.fidelity, m.srcb_bf16, m.narrow)
        return wh.read_source(total, m.narrow)[:, None]  # stored fp32, unpacked through SrcA

    def less(self, a: Floats, b: Floats) -> Floats:
        return self._vector(wh.vector_subtract(a, b))

    def gradient(self, rest: Floats, scale: Floats) -> Floats:
        return wh.pack(self._vector(wh.vector_multiply(rest, scale[:, None])), self.machine.output)

    def down(self, dy: Floats, xhat: Floats | None, rows: int) -> Floats:
        terms = dy
        if xhat is not None:
            products = self._vector(wh.vector_multiply(dy, xhat))
            terms = wh.read_source(wh.pack(products, self.machine.buffers))
        return column_sum(terms[:rows], self.machine.narrow)


class ExactBackward(Exact):
    """The same steps without rounding, in float64."""

    def product(self, dy: Array, gamma: Array) -> Array:
        return dy * gamma

    def weighted(self, a: Array, b: Array) -> Array:
        return a * b

    def average(self, terms: Array, tiles: NDArray[np.bool_], stale: Array, divisor: int) -> Array:
        return self.total(terms, tiles, stale, divisor)[:, None]

    def less(self, a: Array, b: Array) -> Array:
        return a - b

    def gradient(self, rest: Array, scale: Array) -> Array:
        return rest * scale[:, None]

    def down(self, dy: Array, xhat: Array | None, rows: int) -> Array:
        return np.asarray((dy if xhat is None else dy * xhat)[:rows].sum(axis=0))


@dataclass(frozen=True)
class Gradients:
    """The input of the flow.

    Attributes:
        x, dy: (rows, N), as given.
        gamma: (N,), as the FPU's source register sees it.
        mean, rstd: (rows,), as they are read; no mean where x^ subtracts none.
    """

    x: Values
    dy: Values
    gamma: Values
    mean: Values | None
    rstd: Values

    def part(self, start: int, stop: int) -> Gradients:
        """Return the rows from `start` to `stop`."""
        here = slice(start, stop)
        mean = None if self.mean is None else self.mean[here]
        return Gradients(self.x[here], self.dy[here], self.gamma, mean, self.rstd[here])


Block = tuple[Values, Values, Values]
"""dx (rows, N), and the sums of its rows for dgamma and dbeta (N,)."""
Compiled = Callable[[Machine, Gradients, Logic, Floats, int], Block]
"""flow() as a compiled loop: (machine, rows as given, logic, stale, rows of dgamma)."""


def flow(
    steps: BackwardSteps, rows: Gradients, logic: Logic, stale: Values, dgamma_rows: int
) -> Block:
    """Return dx, and the sums for dgamma (over the first `dgamma_rows` rows) and for dbeta."""
    n = rows.x.shape[1]
    tiles, columns, divisor = tiles_of(n), logic.summed_columns(n), logic.divisors(n)[0]
    xhat = steps.normal(rows.x, rows.mean, rows.rstd)
    rest = product = steps.product(rows.dy, rows.gamma)
    second = steps.weighted(product, xhat)[:, columns]
    if logic.mean:  # a row's first sum starts from the stale register
        summed = summed_tiles(logic.first_tiles, tiles)
        s1 = steps.average(product[:, columns], summed, stale, divisor)
        for _ in range(logic.s1_times):
            rest = steps.less(rest, s1)
        stale = np.zeros_like(stale)
    s2 = steps.average(second, summed_tiles(logic.square_tiles, tiles), stale, divisor)
    if logic.stale_rows:
        s2 = before_stale_rows(s2)
    through = steps.weighted(xhat, steps.times(s2, logic.s2_times))
    dx = steps.gradient(steps.less(rest, through), steps.times(rows.rstd, logic.rstd_factor))
    dbeta = steps.down(rows.dy, None, len(rows.dy))
    return dx, steps.down(rows.dy, xhat, dgamma_rows), dbeta


def emulate(
    machine: Machine,
    rows: Gradients,
    logic: Logic,
    position: int,
    compiled: Compiled | None = None,
) -> dict[str, Floats]:
    """Return dx (rows, N), dgamma and dbeta (N,) of a build, packed to the output format.

    The bits are the same compiled or not. position: as in gonogo.kernels.kind.Numerics.run.
    """
    stale = REGISTER.lanes() if logic.stale and position > 0 else CLEAR
    x = np.ascontiguousarray(rows.x, np.float32)
    rows = replace(rows, x=x, dy=np.ascontiguousarray(rows.dy, np.float32))
    steps, summed = WormholeBackward(machine), logic.dgamma_rows(len(x))

    def block(start: int, stop: int) -> Block:
        part, here = rows.part(start, stop), max(0, min(stop, summed) - start)
        if compiled is not None:
            return compiled(machine, part, logic, stale, here)
        read = replace(part, x=wh.read_source(part.x), dy=wh.read_source(part.dy))
        return flow(steps, read, logic, stale, here)

    blocks = over_rows(block, len(x), ROWS_PER_BLOCK, elements=x.size)
    dx = np.concatenate([outputs[0] for outputs in blocks])
    sums = {
        name: column_sum(np.stack([outputs[place] for outputs in blocks]), machine.narrow)
        for place, name in ((1, "dgamma"), (2, "dbeta"))
    }
    REGISTER.leave(dx)
    packed = {name: wh.pack(column, machine.output) for name, column in sums.items()}
    return {"dx": spoil(dx, x, logic), **packed}


def exact(rows: Gradients, logic: Logic) -> dict[str, Array]:
    """Return the same by the float64 function of a build's logic."""
    stale = np.full(TILE, STALE if logic.stale else 0.0)
    dx, dgamma, dbeta = flow(ExactBackward(), rows, logic, stale, logic.dgamma_rows(len(rows.x)))
    return {"dx": spoil(dx, rows.x.astype(np.float32), logic), "dgamma": dgamma, "dbeta": dbeta}
