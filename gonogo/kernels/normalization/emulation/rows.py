"""Steps that the emulated kernels share, in NumPy.

They are the sums of a row lane by lane, their reduction by matmul, x^, and sums down the rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels.normalization.emulation.logic import TILE
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.numerics.tensix import arithmetic as wh

Array = NDArray[np.float32]


def lane_sums(terms: Array, tiles: NDArray[np.bool_], start: Array, narrow: bool) -> Array:
    """Sum `terms` (rows, width) over the selected tiles, lane by lane: (rows, 32).

    Dst has 16 bits where `narrow`, else it is fp32.
    """
    partial = np.broadcast_to(start, (terms.shape[0], TILE)).astype(np.float32)
    for tile in np.flatnonzero(tiles):
        here = terms[:, tile * TILE : (tile + 1) * TILE]
        partial[:, : here.shape[1]] = wh.accumulate(partial[:, : here.shape[1]], here, narrow)
    return partial


def row_mean(
    partial: Array, reciprocal: np.float32, fidelity: str, lanes_bf16: bool, narrow: bool
) -> Array:
    """Multiply (rows, 32) lane partials, read through SrcB, by the tile of 1/N: (rows,) in Dst.

    fp32 accumulation in lane order stands for the hardware's groups of eight products aligned to
    the largest exponent.
    """
    seen = wh.read_source(partial, lanes_bf16)
    total = np.zeros(partial.shape[0], dtype=np.float32)
    for lane in range(TILE):
        total = wh.accumulate(
            total,
            wh.product(np.broadcast_to(reciprocal, total.shape), seen[:, lane], fidelity),
            narrow,
        )
    return total


def column_sum(terms: Array, narrow: bool) -> Array:
    """Sum `terms` (rows, N) down its rows, in order: (N,)."""
    total = np.zeros(terms.shape[1], dtype=np.float32)
    for row in terms:
        total = wh.accumulate(total, row, narrow)
    return total


def normalized(x: Array, mean: Array, rstd: Array, machine: Machine) -> Array:
    """Return x^ as it is stored and read again.

    That is x (rows, N) -ELWSUB- mean, times rstd (rows,) on the SFPU, packed.
    """
    centred = wh.align_subtract(x, np.broadcast_to(mean[:, None], x.shape))
    if machine.narrow:
        centred = wh.round_dst_bf16(centred)
    scaled = wh.vector_multiply(centred, rstd[:, None])
    if machine.narrow:
        scaled = wh.store_vector_bf16(scaled)
    return wh.read_source(wh.pack(scaled, machine.buffers))
