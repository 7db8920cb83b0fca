"""The emulated layernorm_fw of tt-train (ttnn's is the same): the NumPy definition of its dataflow.

Everything on the left of an arrow is a bf16 buffer:

    acc_c  <- sum over tiles of x in lane c                  SFPU, fp32; the last tile masked
    mean   <- sum_c acc_c * bf16(1/N)                        matmul
    accv_c <- sum over tiles of (x - mean)^2 in lane c       SFPU
    rstd   <- rsqrt(sum_c accv_c * bf16(1/N) + bf16(eps))    1/N and eps truncated;
                                                             addition and rsqrt on the SFPU
    x^     <- (x -ELWSUB- mean) * rstd                       SFPU multiplication
    gx     <- x^ * gamma                                     FPU
    y      <- gx +ELWADD+ beta                               FPU

The packed lane partials are why a constant x = .5 gives y near .9 instead of 0: the mean comes out
as .49805.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation.loops import forward_rows
from gonogo.kernels.layernorm.emulation.plan import TILE, Machine, Plan, tiles_of
from gonogo.kernels.layernorm.emulation.rows import lane_sums, normalized, row_mean
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.tensix import arithmetic as wh

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Sums:
    """Constants and columns that the two reductions of a row need beside x."""

    reciprocal: np.float32  # 1/N, truncated to bf16 (an unbiased variance has its own)
    variance_reciprocal: np.float32
    epsilon: np.float32  # truncated to bf16
    columns: NDArray[np.intp]
    first_tiles: NDArray[np.bool_]
    stale: Array  # (32,): what the accumulators of the mean start from

    @classmethod
    def of(cls, features: int, epsilon: float, plan: Plan, stale: Array) -> Sums:
        return cls(
            reciprocal=wh.scaler(1.0 / features),
            variance_reciprocal=wh.scaler(1.0 / max(features - 1, 1))
            if plan.unbiased
            else wh.scaler(1.0 / features),
            epsilon=wh.scaler(epsilon * plan.epsilon_factor),
            columns=plan.summed_columns(features),
            first_tiles=plan.first_sum_tiles(tiles_of(features)),
            stale=stale,
        )


def _pack_column(a: Array, fmt: str) -> Array:
    """Pack (rows,) values of a column: no two of them share a block's exponent."""
    return wh.pack(a[:, None], fmt)[:, 0]


def moments(x: Array, sums: Sums, machine: Machine) -> tuple[Array, Array]:
    """Return the mean and rstd of rows x (rows, N) in Dst, before packing: fp32, (rows,)."""

    def vector(a: Array) -> Array:
        return wh.store_vector_bf16(a) if machine.narrow else a

    def total(
        terms: Array, tiles: NDArray[np.bool_], start: Array, reciprocal: np.float32
    ) -> Array:
        partial = wh.pack(
            lane_sums(terms[:, sums.columns], tiles, start, machine.narrow_sums), machine.buffers
        )
        return row_mean(
            partial,
            reciprocal,
            machine.fidelity,
            machine.reads_bf16("buffers", "scaler"),
            machine.narrow,
        )

    mean = total(x, sums.first_tiles, sums.stale, sums.reciprocal)
    stored_mean = wh.read_source(_pack_column(mean, machine.buffers))
    centred = vector(wh.vector_subtract(x, stored_mean[:, None]))
    squares = vector(wh.vector_multiply(centred, centred))
    everything = np.ones_like(sums.first_tiles)
    variance = total(
        squares, everything, np.zeros(TILE, dtype=np.float32), sums.variance_reciprocal
    )
    return mean, wh.reciprocal_root(vector(wh.vector_add(variance, sums.epsilon)), machine.narrow)


def stored_moments(x: Array, sums: Sums, machine: Machine) -> tuple[Array, Array]:
    """Return mean and rstd packed to the buffers' format.

    They are for a backward kernel that computes its own statistics.
    """
    blocks = over_rows(
        lambda start, stop: moments(wh.read_source(x[start:stop]), sums, machine),
        x.shape[0],
        ROWS_PER_BLOCK,
    )
    mean, rstd = (np.concatenate([block[part] for block in blocks]) for part in (0, 1))
    return _pack_column(mean, machine.buffers), _pack_column(rstd, machine.buffers)


@dataclass(frozen=True)
class Operands:
    """The tensors of one layernorm_fw call as the source registers see them."""

    x: Array  # (rows, N), as given
    gamma: Array  # (N,), SrcB
    beta: Array  # (N,), SrcB
    sums: Sums

    @classmethod
    def of(
        cls, given: dict[str, Array], epsilon: float, plan: Plan, machine: Machine, stale: Array
    ) -> Operands:
        return cls(
            x=np.ascontiguousarray(given["x"], dtype=np.float32),
            gamma=wh.read_source(
                plan.gamma(given["gamma"]), machine.reads_bf16("gamma", "buffers")
            ),
            beta=wh.read_source(given["beta"], machine.reads_bf16("beta", "buffers")),
            sums=Sums.of(given["x"].shape[1], epsilon, plan, stale),
        )


def _block(
    operands: Operands, plan: Plan, machine: Machine, start: int, stop: int
) -> tuple[Array, ...]:
    """Return y, mean and rstd of rows start..stop, packed to the output format."""
    x = wh.read_source(operands.x[start:stop])
    mean, rstd = moments(x, operands.sums, machine)
    stored_mean = wh.read_source(
        _pack_column(mean, machine.buffers), machine.reads_bf16("buffers", "x")
    )
    if not plan.subtract_mean:
        stored_mean = np.zeros_like(stored_mean)
    scale = wh.vector_multiply(
        wh.read_source(_pack_column(rstd, machine.buffers)), np.float32(plan.rstd_factor)
    )
    xhat = normalized(x, stored_mean, scale, machine)
    scaled = wh.product(xhat, np.broadcast_to(operands.gamma, xhat.shape), machine.fidelity)
    scaled = wh.read_source(
        wh.pack(wh.round_dst_bf16(scaled) if machine.narrow else scaled, machine.buffers)
    )
    y = wh.align_add(scaled, np.broadcast_to(operands.beta, scaled.shape))
    if machine.narrow:
        y = wh.round_dst_bf16(y)
    rstd = wh.vector_multiply(rstd, np.float32(plan.rstd_factor))
    return (
        wh.pack(y, machine.output),
        _pack_column(mean, machine.output),
        _pack_column(rstd, machine.output),
    )


def _block_compiled(
    operands: Operands, plan: Plan, machine: Machine, start: int, stop: int
) -> tuple[Array, ...]:
    """Return what `_block` returns, from the compiled loop."""
    x, sums = operands.x[start:stop], operands.sums
    y, mean, rstd = (
        np.empty_like(x),
        np.empty(stop - start, dtype=np.float32),
        np.empty(stop - start, dtype=np.float32),
    )
    rules = machine.rules(
        machine.reads_bf16("buffers", "scaler"), machine.reads_bf16("buffers", "x")
    )
    forward_rows(
        x, operands.gamma, operands.beta, sums.stale, sums.first_tiles, sums.columns.size,
        sums.reciprocal, sums.variance_reciprocal, sums.epsilon, np.float32(plan.rstd_factor),
        plan.subtract_mean, rules, y, mean, rstd,
    )  # fmt: skip
    return (
        y if rules.bf16_output else wh.pack(y, machine.output),
        _pack_column(mean, machine.output),
        _pack_column(rstd, machine.output),
    )


def forward(
    operands: Operands, plan: Plan, machine: Machine, *, compiled: bool
) -> dict[str, Array]:
    """Return y (rows, N), mean and rstd (rows,), packed to the output format.

    The bits are the same compiled or not.
    """
    block = _block_compiled if compiled else _block
    blocks = over_rows(
        lambda start, stop: block(operands, plan, machine, start, stop),
        operands.x.shape[0],
        ROWS_PER_BLOCK,
    )
    return {
        name: np.concatenate([block[part] for block in blocks])
        for part, name in enumerate(("y", "mean", "rstd"))
    }
