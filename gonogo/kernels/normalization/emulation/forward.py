"""The emulated dataflow of forward kernels that normalize rows: LayerNorm, RMSNorm, group norm.

It is the dataflow of tt-train's layernorm_fw (ttnn's is the same), written once over the
arithmetics of `steps`: a Wormhole's, which is the NumPy definition of `loops`, and float64.
Everything on the left of an arrow is a buffer; acc_c is the sum over tiles in lane c, in fp32, with
the last tile masked. The right column holds for a kernel without a mean:

    acc_c <- sum over tiles of x in lane c           none            SFPU
    mean  <- sum_c acc_c * bf16(1/N)                                 matmul
    acc_c <- sum over tiles of (x - mean)^2          x^2             SFPU
    rstd  <- rsqrt(sum_c acc_c * bf16(1/N) + bf16(eps))              1/N and eps truncated;
                                                                     addition and rsqrt on the SFPU
    x^    <- (x -ELWSUB- mean) * rstd                x * rstd        SFPU multiplication
    gx    <- x^ * gamma                                              FPU
    y     <- gx +ELWADD+ beta                        gx              FPU

The packed lane partials are why a constant x = .5 gives y near .9 instead of 0: the mean comes out
as .49805.

`Logic` holds the switches of the wrong builds. The float64 version of a build is the same flow
without rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gonogo.kernels.kind import Arrays, Floats
from gonogo.kernels.normalization.emulation.logic import TILE, Logic, summed_tiles, tiles_of
from gonogo.kernels.normalization.emulation.loops import STALE_ROWS, Flow, forward_rows
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.spoil import REGISTER, hang_or_crash, spoil
from gonogo.kernels.normalization.emulation.steps import Exact, Steps, Values, Wormhole, packed
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.expectation import Array
from gonogo.numerics.tensix import arithmetic as wh

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

CLEAR = np.zeros(TILE, dtype=np.float32)
"""The accumulator's 32 lanes before a sum."""
STALE = 1.0
"""The content of a stale register in float64: 1 left in each lane.

The real leftovers depend on what ran before.
"""


@dataclass(frozen=True)
class Rows:
    """The input of the flow.

    `source` holds the values that the statistics use: x, unless a fault changes that. gamma and
    beta have shape (1 or rows, N).
    """

    x: Values
    source: Values
    gamma: Values
    beta: Values | None

    def part(self, start: int, stop: int) -> Rows:
        """Return the rows from `start` to `stop`."""

        def some(a: Values) -> Values:
            return a if len(a) == 1 else a[start:stop]

        return Rows(
            self.x[start:stop],
            self.source[start:stop],
            some(self.gamma),
            None if self.beta is None else some(self.beta),
        )


def moments(
    steps: Steps, source: Values, epsilon: float, logic: Logic, stale: Values
) -> tuple[Values, Values, Values]:
    """Return the mean as made, the mean as stored and rstd as made: (rows,).

    The means are 0 in a kernel without one.
    """
    n = source.shape[1]
    columns = logic.summed_columns(n)
    whole, squared = logic.divisors(n)
    mean = stored = np.zeros(len(source), source.dtype)
    if logic.mean:
        tiles = summed_tiles(logic.first_tiles, tiles_of(n))
        mean = steps.total(source[:, columns], tiles, stale, whole)
        stored = steps.column(mean)
    squares = steps.square(steps.centred(source, stored) if logic.mean and logic.about else source)
    total = steps.total(
        squares[:, columns],
        summed_tiles(logic.square_tiles, tiles_of(n)),
        np.zeros_like(stale) if logic.mean else stale,
        squared,
    )
    if logic.stale_rows:
        total = before_stale_rows(total)
    return mean, stored, steps.root(total, epsilon * logic.epsilon_factor)


def before_stale_rows(column: Values) -> Values:
    """Return a column (rows,) in which every 8th row has the value of the row before it."""
    stale = column.copy()
    late = stale[STALE_ROWS - 1 :: STALE_ROWS]
    late[:] = column[STALE_ROWS - 2 :: STALE_ROWS][: len(late)]
    return stale


def flow(
    steps: Steps, rows: Rows, epsilon: float, logic: Logic, stale: Values
) -> tuple[Values, Values, Values]:
    """Return y (rows, N), and mean and rstd (rows,). The mean is 0 in a kernel without one."""
    mean, stored, rstd = moments(steps, rows.source, epsilon, logic, stale)
    scale = steps.times(steps.column(rstd), logic.rstd_factor)
    subtracted = None
    if logic.mean and logic.subtracted != "nothing":
        subtracted = steps.operand(stored) if logic.subtracted == "mean" else np.zeros_like(stored)
    xhat = steps.normal(rows.x, subtracted, scale)
    return (
        steps.affine(xhat, rows.gamma, rows.beta),
        steps.out(mean),
        steps.out(steps.times(rstd, logic.rstd_factor)),
    )


def stored_moments(x: Floats, epsilon: float, logic: Logic, machine: Machine) -> list[Floats]:
    """Return mean and rstd packed to the buffers' format.

    They are for a backward kernel that computes its own statistics.
    """

    def block(start: int, stop: int) -> tuple[Floats, Floats]:
        mean, _, rstd = moments(
            Wormhole(machine), wh.read_source(x[start:stop]), epsilon, logic, CLEAR
        )
        return mean, rstd

    blocks = over_rows(block, len(x), ROWS_PER_BLOCK, elements=x.size)
    return [packed(np.concatenate(column), machine.buffers) for column in zip(*blocks, strict=True)]


def emulate(
    test: TestSpec,
    rows: Rows,
    logic: Logic,
    position: int,
    *,
    columns_in_srcb: bool = True,
    compiled: bool | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Return y, mean and rstd of a build on the emulated Wormhole, in float32.

    columns_in_srcb: as in Wormhole. compiled: True for the compiled loop, False for the NumPy
    definition, None for the faster that supports the numerics. The bits are the same. Doesn't
    return from a build that hangs or crashes.
    """
    if logic.fate is not None:
        hang_or_crash(logic.fate)
    machine = Machine.of(test, logic.narrow_sums)
    stale = REGISTER.lanes() if logic.stale and position > 0 else CLEAR
    x = np.ascontiguousarray(rows.x, np.float32)
    operands = Rows(
        x,
        x if rows.source is rows.x else np.ascontiguousarray(rows.source, np.float32),
        wh.read_source(rows.gamma, machine.reads_bf16("gamma", "buffers")),
        None
        if rows.beta is None
        else wh.read_source(rows.beta, machine.reads_bf16("beta", "buffers")),
    )
    steps = Wormhole(machine, columns_in_srcb)

    def block(start: int, stop: int) -> tuple[Floats, Floats, Floats]:
        part = operands.part(start, stop)
        if machine.compiled if compiled is None else compiled:
            return _compiled(steps, part, test.epsilon, logic, stale)
        read = Rows(wh.read_source(part.x), wh.read_source(part.source), part.gamma, part.beta)
        return flow(steps, read, test.epsilon, logic, stale)

    blocks = over_rows(block, len(x), ROWS_PER_BLOCK, elements=x.size)
    y, mean, rstd = (np.concatenate(outputs) for outputs in zip(*blocks, strict=True))
    REGISTER.leave(y)
    return spoil(y, x, logic), mean, rstd


def _compiled(
    steps: Wormhole, rows: Rows, epsilon: float, logic: Logic, stale: Floats
) -> tuple[Floats, Floats, Floats]:
    """Return what `flow` returns, from the compiled loop."""
    machine = steps.machine
    n = rows.x.shape[1]
    whole, squared = logic.divisors(n)
    mean_bf16 = machine.reads_bf16("buffers", "x")
    settings = Flow(
        width=logic.summed_columns(n).size,
        reciprocal=wh.scaler(1.0 / whole),
        square_reciprocal=wh.scaler(1.0 / squared),
        epsilon=wh.scaler(epsilon * logic.epsilon_factor),
        rstd_factor=np.float32(logic.rstd_factor),
        mean=logic.mean,
        about=logic.mean and logic.about,
        align=logic.mean and logic.subtracted != "nothing",
        subtract=logic.subtracted == "mean",
        source_is_x=rows.source is rows.x,
        add_beta=rows.beta is not None,
        stale_rows=logic.stale_rows,
        mean_bf16=mean_bf16,
        columns_bf16=mean_bf16 and steps.columns_in_srcb,
    )
    rules = machine.rules(machine.reads_bf16("buffers", "scaler"))
    y = np.empty_like(rows.x)
    mean, rstd = np.empty(len(y), np.float32), np.empty(len(y), np.float32)
    forward_rows(
        rows.x, rows.source, rows.gamma, rows.gamma if rows.beta is None else rows.beta, stale,
        summed_tiles(logic.first_tiles, tiles_of(n)), summed_tiles(logic.square_tiles, tiles_of(n)),
        settings, rules, y, mean, rstd,
    )  # fmt: skip
    return (
        y if rules.bf16_output else wh.pack(y, machine.output),
        steps.out(mean),
        steps.out(rstd),
    )


def exact(epsilon: float, rows: Rows, logic: Logic) -> tuple[Array, Array, Array]:
    """Return y, mean and rstd by the float64 function of a build's logic."""
    stale = np.full(TILE, STALE if logic.stale else 0.0)
    x, source, gamma = (
        np.asarray(given, np.float64) for given in (rows.x, rows.source, rows.gamma)
    )
    wide = Rows(x, source, gamma, None if rows.beta is None else np.asarray(rows.beta, np.float64))
    y, mean, rstd = flow(Exact(), wide, epsilon, logic, stale)
    return spoil(y, np.asarray(rows.x, np.float32), logic), mean, rstd


def flat(given: Arrays, test: TestSpec) -> dict[str, Values]:
    """Return the tensors in the domain's shapes."""
    return {name: np.asarray(a).reshape(test.flat_shape_of(name)) for name, a in given.items()}
