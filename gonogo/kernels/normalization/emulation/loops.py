"""The emulated dataflow as a compiled loop over rows, and its steps.

It is the fast version of `forward.flow`, bit for bit, for bf16 and fp32 buffers only. Block formats
share exponents between neighbors and use the NumPy code.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gonogo.numerics.formats_jit import bf16_zero, tf32_zero
from gonogo.numerics.jit import jit
from gonogo.numerics.tensix.arithmetic_jit import (
    accumulate,
    align_add,
    pack_bf16,
    product,
    read_source,
    reciprocal_root,
    vector_add,
    vector_multiply,
    vector_subtract,
)

Array = NDArray[np.float32]
Flags = NDArray[np.bool_]

LANES = 32
STALE_ROWS = 8
"""With a stale partial, every row at a multiple of this number keeps the sum of the row before it.
"""
_ZERO = np.float32(0.0)


class Rules(NamedTuple):
    """`machine.Machine` for compiled loops."""

    high: np.uint32  # arithmetic_jit.FIDELITY_MASKS
    low: np.uint32
    narrow: bool
    narrow_sums: bool
    lanes_bf16: bool  # SrcB sees stored lane partials as bf16
    bf16_buffers: bool  # else fp32
    bf16_output: bool  # pack outputs to bf16; else leave them as they are in Dst


class Flow(NamedTuple):
    """`logic.Logic` and a kernel's dataflow for the compiled loop."""

    width: int  # N, or the padded width
    reciprocal: np.float32  # 1 / what the mean is divided by
    square_reciprocal: np.float32
    epsilon: np.float32
    rstd_factor: np.float32
    mean: bool
    about: bool  # the squares are taken about the mean
    align: bool  # x^ takes ELWSUB
    subtract: bool  # of the mean, not of zero
    source_is_x: bool
    add_beta: bool
    stale_rows: bool
    mean_bf16: bool  # ELWSUB sees the stored mean as bf16
    columns_bf16: bool  # the other steps see stored columns as bf16


@jit
def stored(value: np.float32, bf16: bool) -> np.float32:
    """Return the value as a later op reads it from a bf16 or fp32 buffer."""
    return pack_bf16(value) if bf16 else tf32_zero(value)


@jit
def vector(value: np.float32, narrow: bool) -> np.float32:
    """Return the value as an SFPU store leaves it in Dst."""
    return bf16_zero(value) if narrow else value


@jit
def matrix(value: np.float32, narrow: bool) -> np.float32:
    """Return the value as the FPU leaves it in Dst."""
    return pack_bf16(value) if narrow else value


@jit
def reduced(partial: Array, reciprocal: np.float32, rules: Rules) -> np.float32:
    """Return the product of 32 lane partials with the tile of 1/N."""
    total = _ZERO
    for lane in range(LANES):
        total = accumulate(
            total,
            product(
                reciprocal, read_source(partial[lane], rules.lanes_bf16), rules.high, rules.low
            ),
            rules.narrow,
        )
    return total


@jit
def normal(x: np.float32, mean: np.float32, rstd: np.float32, rules: Rules) -> np.float32:
    """Return x^ as it is stored and read again, with the mean subtracted by ELWSUB."""
    centred = matrix(align_add(x, -mean), rules.narrow)
    return stored(vector(vector_multiply(centred, rstd), rules.narrow), rules.bf16_buffers)


@jit
def _store_partial(partial: Array, bf16: bool) -> None:
    for lane in range(LANES):
        partial[lane] = stored(partial[lane], bf16)


@jit
def forward_rows(
    x: Array,
    source: Array,
    gamma: Array,
    beta: Array,
    stale: Array,
    first_tiles: Flags,
    square_tiles: Flags,
    flow: Flow,
    rules: Rules,
    y: Array,
    mean: Array,
    rstd: Array,
) -> None:
    """Compute one block of rows in place: y (packed when the rules say so), mean and rstd.

    mean and rstd are as they are in Dst. x, source and y are (rows, N), gamma and beta (1 or
    rows, N), mean and rstd (rows,); the others as in `forward.flow`. The block starts at a multiple
    of STALE_ROWS.
    """
    rows, features = x.shape
    width = flow.width
    tiles = first_tiles.shape[0]
    partial = np.empty(LANES, dtype=np.float32)
    row_source = np.empty(width, dtype=np.float32)
    row_x = row_source if flow.source_is_x else np.empty(features, dtype=np.float32)
    narrow = rules.narrow and flow.about  # else nothing is subtracted and stored
    total = _ZERO
    for row in range(rows):
        for column in range(features):
            row_source[column] = read_source(source[row, column], False)
        for column in range(features, width):
            row_source[column] = row_source[column - features]
        if not flow.source_is_x:
            for column in range(features):
                row_x[column] = read_source(x[row, column], False)
        partial[:] = stale
        centre, subtracted = _ZERO, _ZERO
        mean[row] = _ZERO
        if flow.mean:
            for tile in range(tiles):
                if first_tiles[tile]:
                    start = tile * LANES
                    for lane in range(min(LANES, width - start)):
                        partial[lane] = accumulate(
                            partial[lane], row_source[start + lane], rules.narrow_sums
                        )
            _store_partial(partial, rules.bf16_buffers)
            mean[row] = reduced(partial, flow.reciprocal, rules)
            stored_mean = stored(mean[row], rules.bf16_buffers)
            if flow.about:
                centre = read_source(stored_mean, flow.columns_bf16)
            if flow.subtract:
                subtracted = read_source(stored_mean, flow.mean_bf16)
            partial[:] = _ZERO

        for tile in range(tiles):
            if square_tiles[tile]:
                start = tile * LANES
                for lane in range(min(LANES, width - start)):
                    centred = vector(vector_subtract(row_source[start + lane], centre), narrow)
                    partial[lane] = accumulate(
                        partial[lane],
                        vector(vector_multiply(centred, centred), rules.narrow),
                        rules.narrow_sums,
                    )
        if not (flow.stale_rows and row % STALE_ROWS == STALE_ROWS - 1):
            _store_partial(partial, rules.bf16_buffers)
            total = reduced(partial, flow.square_reciprocal, rules)
        shifted = vector(vector_add(total, flow.epsilon), rules.narrow)
        root = reciprocal_root(shifted, rules.narrow)
        rstd[row] = vector_multiply(root, flow.rstd_factor)
        scale = vector_multiply(
            read_source(stored(root, rules.bf16_buffers), flow.columns_bf16), flow.rstd_factor
        )

        parameters = row if gamma.shape[0] > 1 else 0
        for column in range(features):
            if flow.align:
                xhat = normal(row_x[column], subtracted, scale, rules)
            else:
                xhat = stored(
                    vector(vector_multiply(row_x[column], scale), rules.narrow), rules.bf16_buffers
                )
            result = matrix(
                product(xhat, gamma[parameters, column], rules.high, rules.low), rules.narrow
            )
            if flow.add_beta:
                result = matrix(
                    align_add(stored(result, rules.bf16_buffers), beta[parameters, column]),
                    rules.narrow,
                )
            y[row, column] = pack_bf16(result) if rules.bf16_output else result
