"""The emulated layernorm_bw of tt-train: the NumPy definition of its dataflow.

Per row of tiles. Everything on the left of an arrow is a bf16 buffer, unless it is named fp32:

    x^    <- pack((x -ELWSUB- mean) * rstd)          SFPU multiplication
    P     =  dy * gamma                              FPU, stays in Dst
    acc_c <- sum over tiles of P in lane c           fp32; 32 partials, the last tile masked
    s1    <- sum_c acc_c * bf16(1/N)                 matmul; acc_c as SrcB sees it; stored fp32,
                                                     read back as TF32
    s2    <- the same for P * x^                     SFPU multiplication
    dx    <- pack(((P - s1) - x^ * s2) * rstd)       SFPU
    dgamma_j <- pack(sum_i pack(dy * x^));  dbeta_j <- pack(sum_i dy)      fp32 down the rows

The published deterministic figures show that 1/N is truncated to bf16, and s1 and s2 to TF32: with
dy = gamma = 1 and x = .5 at N = 8462 the right kernel gives (1 - 8462 bf16(1/8462)) * 1000 =
3.42188.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.layernorm.emulation.loops import backward_rows
from gonogo.kernels.layernorm.emulation.plan import Plan
from gonogo.kernels.normalization.emulation.logic import TILE, tiles_of
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.kernels.normalization.emulation.rows import (
    column_sum,
    lane_sums,
    normalized,
    row_mean,
)
from gonogo.numerics.blocks import ROWS_PER_BLOCK, over_rows
from gonogo.numerics.tensix import arithmetic as wh

Array = NDArray[np.float32]


@dataclass(frozen=True)
class Operands:
    """The tensors and constants of one layernorm_bw call.

    The small tensors are as the FPU's source registers see them.
    """

    x: Array  # (rows, N), as given
    dy: Array  # (rows, N), as given
    gamma: Array  # (N,), SrcB
    mean: Array  # (rows,), SrcB; zero where the build doesn't subtract it
    rstd: Array  # (rows,)
    scale: Array  # (rows,): rstd as dx is multiplied by it
    reciprocal: np.float32  # 1/N, truncated to bf16
    # the column that each summed position reads; more than N without the mask
    columns: NDArray[np.intp]
    s1_tiles: NDArray[np.bool_]
    s2_tiles: NDArray[np.bool_]
    stale: Array  # (32,): what the accumulators of s1 start from
    lanes_bf16: bool  # SrcB sees the fp32 partials as bf16

    @classmethod
    def of(cls, given: dict[str, Array], plan: Plan, machine: Machine, stale: Array) -> Operands:
        features = given["x"].shape[1]
        tiles = tiles_of(features)
        mean = wh.read_source(given["mean"], machine.reads_bf16("mean", "x"))
        rstd = wh.read_source(given["rstd"], machine.narrow)
        return cls(
            x=np.ascontiguousarray(given["x"], dtype=np.float32),
            dy=np.ascontiguousarray(given["dy"], dtype=np.float32),
            gamma=wh.read_source(plan.gamma(given["gamma"]), machine.reads_bf16("gamma", "dy")),
            mean=mean if plan.subtracted == "mean" else np.zeros_like(mean),
            rstd=rstd,
            scale=wh.vector_multiply(rstd, np.float32(plan.rstd_factor)),
            reciprocal=wh.scaler(1.0 / features),
            columns=plan.summed_columns(features),
            s1_tiles=plan.first_sum_tiles(tiles),
            s2_tiles=plan.second_sum_tiles(tiles),
            stale=stale,
            lanes_bf16=machine.srcb_bf16,
        )


def _block(
    operands: Operands, plan: Plan, machine: Machine, start: int, stop: int
) -> tuple[Array, Array, Array]:
    """Return dx of rows start..stop, and these rows' column sums for dgamma and dbeta, in Dst."""

    def vector(a: Array) -> Array:
        return wh.store_vector_bf16(a) if machine.narrow else a

    x, dy = wh.read_source(operands.x[start:stop]), wh.read_source(operands.dy[start:stop])
    xhat = normalized(x, operands.mean[start:stop], operands.rstd[start:stop], machine)
    products = wh.product(dy, np.broadcast_to(operands.gamma, dy.shape), machine.fidelity)
    if machine.narrow:
        products = wh.round_dst_bf16(products)
    weighted = vector(wh.vector_multiply(products, xhat))

    def mean_of(terms: Array, tiles: NDArray[np.bool_], start: Array) -> Array:
        partial = lane_sums(terms[:, operands.columns], tiles, start, machine.narrow_sums)
        total = row_mean(
            partial, operands.reciprocal, machine.fidelity, operands.lanes_bf16, machine.narrow
        )
        return wh.read_source(total, machine.narrow)[:, None]  # stored fp32, unpacked through SrcA

    s1 = mean_of(products, operands.s1_tiles, operands.stale)
    s2 = mean_of(weighted, operands.s2_tiles, np.zeros(TILE, dtype=np.float32))

    left = products
    for _ in range(plan.s1_times):
        left = vector(wh.vector_subtract(left, s1))
    left = vector(wh.vector_subtract(left, vector(wh.vector_multiply(xhat, s2))))
    dx = vector(wh.vector_multiply(left, operands.scale[start:stop, None]))

    components = wh.read_source(wh.pack(vector(wh.vector_multiply(dy, xhat)), machine.buffers))
    dgamma_count = dgamma_rows(operands, plan, start, stop)
    return (
        wh.pack(dx, machine.output),
        column_sum(components[:dgamma_count], machine.narrow),
        column_sum(dy, machine.narrow),
    )


def _block_compiled(
    operands: Operands, plan: Plan, machine: Machine, start: int, stop: int
) -> tuple[Array, Array, Array]:
    """Return what `_block` returns, from the compiled loop."""
    x = operands.x[start:stop]
    dx, dgamma, dbeta = (
        np.empty_like(x),
        np.zeros(x.shape[1], dtype=np.float32),
        np.zeros(x.shape[1], dtype=np.float32),
    )
    rules = machine.rules(operands.lanes_bf16)
    backward_rows(
        x, operands.dy[start:stop], operands.gamma, operands.mean[start:stop],
        operands.rstd[start:stop], operands.scale[start:stop], operands.stale, operands.s1_tiles,
        operands.s2_tiles, operands.columns.size, dgamma_rows(operands, plan, start, stop),
        operands.reciprocal, plan.s1_times, rules, dx, dgamma, dbeta,
    )  # fmt: skip
    return dx if rules.bf16_output else wh.pack(dx, machine.output), dgamma, dbeta


def dgamma_rows(operands: Operands, plan: Plan, start: int, stop: int) -> int:
    """Return how many of the rows start..stop enter dgamma."""
    return max(0, min(stop, plan.dgamma_rows(operands.x.shape[0])) - start)


def backward(
    operands: Operands, plan: Plan, machine: Machine, *, compiled: bool
) -> dict[str, Array]:
    """Return dx (rows, N), dgamma and dbeta (N,), packed to the output format.

    The bits are the same compiled or not.
    """
    block = _block_compiled if compiled else _block
    blocks = over_rows(
        lambda start, stop: block(operands, plan, machine, start, stop),
        operands.x.shape[0],
        ROWS_PER_BLOCK,
    )
    columns = {
        name: wh.pack(
            column_sum(np.stack([block[part] for block in blocks]), machine.narrow), machine.output
        )
        for part, name in ((1, "dgamma"), (2, "dbeta"))
    }
    return {"dx": np.concatenate([block[0] for block in blocks]), **columns}
