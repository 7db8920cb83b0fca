"""The emulated kernels as compiled loops over rows.

They are the fast versions of `backward._block` and `forward._block`, bit for bit, for bf16 and fp32
buffers only. Block formats share exponents between neighbors and use the NumPy code.
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
_ZERO = np.float32(0.0)


class Rules(NamedTuple):
    """`plan.Machine` for compiled loops."""

    high: np.uint32  # arithmetic_jit.FIDELITY_MASKS
    low: np.uint32
    narrow: bool
    narrow_sums: bool
    lanes_bf16: bool  # SrcB sees stored lane partials as bf16
    mean_bf16: bool  # forward: SrcB sees the stored mean as bf16
    bf16_buffers: bool  # else fp32
    bf16_output: bool  # pack outputs to bf16; else leave them as they are in Dst


@jit
def _stored(value: np.float32, bf16: bool) -> np.float32:
    """Return the value as a later op reads it from a bf16 or fp32 buffer."""
    return pack_bf16(value) if bf16 else tf32_zero(value)


@jit
def _vector(value: np.float32, narrow: bool) -> np.float32:
    """Return the value as an SFPU store leaves it in Dst."""
    return bf16_zero(value) if narrow else value


@jit
def _matrix(value: np.float32, narrow: bool) -> np.float32:
    """Return the value as the FPU leaves it in Dst."""
    return pack_bf16(value) if narrow else value


@jit
def _reduce(partial: Array, reciprocal: np.float32, rules: Rules) -> np.float32:
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
def _xhat(x: np.float32, mean: np.float32, rstd: np.float32, rules: Rules) -> np.float32:
    centred = _matrix(align_add(x, -mean), rules.narrow)
    return _stored(_vector(vector_multiply(centred, rstd), rules.narrow), rules.bf16_buffers)


@jit
def backward_rows(
    x: Array,
    dy: Array,
    gamma: Array,
    mean: Array,
    rstd: Array,
    scale: Array,
    stale: Array,
    first_tiles: Flags,
    second_tiles: Flags,
    width: int,
    dgamma_rows: int,
    reciprocal: np.float32,
    s1_times: int,
    rules: Rules,
    dx: Array,
    dgamma: Array,
    dbeta: Array,
) -> None:
    """Compute one block of rows in place: dx (packed when the rules say so) and its column sums.

    x, dy, dx are (rows, N); mean, rstd, scale (rows,); the others as in `backward.Operands`.
    `width` is N, or the padded width when the padding isn't masked. The first `dgamma_rows` rows
    enter dgamma.
    """
    rows, features = x.shape
    tiles = first_tiles.shape[0]
    xhat = np.empty(features, dtype=np.float32)
    products = np.empty(features, dtype=np.float32)
    first = np.empty(LANES, dtype=np.float32)
    second = np.empty(LANES, dtype=np.float32)
    for row in range(rows):
        first[:] = stale
        second[:] = _ZERO
        for tile in range(tiles):
            start = tile * LANES
            for lane in range(min(LANES, width - start)):
                column = start + lane
                if column < features:
                    dy_here = read_source(dy[row, column], False)
                    normal = _xhat(read_source(x[row, column], False), mean[row], rstd[row], rules)
                    term = _matrix(
                        product(dy_here, gamma[column], rules.high, rules.low), rules.narrow
                    )
                    xhat[column] = normal
                    products[column] = term
                    if row < dgamma_rows:
                        component = _stored(
                            _vector(vector_multiply(dy_here, normal), rules.narrow),
                            rules.bf16_buffers,
                        )
                        dgamma[column] = accumulate(dgamma[column], component, rules.narrow)
                    dbeta[column] = accumulate(dbeta[column], dy_here, rules.narrow)
                else:
                    normal = xhat[column % features]
                    term = products[column % features]
                if first_tiles[tile]:
                    first[lane] = accumulate(first[lane], term, rules.narrow_sums)
                if second_tiles[tile]:
                    second[lane] = accumulate(
                        second[lane],
                        _vector(vector_multiply(term, normal), rules.narrow),
                        rules.narrow_sums,
                    )
        s1 = read_source(_reduce(first, reciprocal, rules), rules.narrow)
        s2 = read_source(_reduce(second, reciprocal, rules), rules.narrow)
        for column in range(features):
            left = products[column]
            for _ in range(s1_times):
                left = _vector(vector_subtract(left, s1), rules.narrow)
            left = _vector(
                vector_subtract(left, _vector(vector_multiply(xhat[column], s2), rules.narrow)),
                rules.narrow,
            )
            result = _vector(vector_multiply(left, scale[row]), rules.narrow)
            dx[row, column] = pack_bf16(result) if rules.bf16_output else result


@jit
def forward_rows(
    x: Array,
    gamma: Array,
    beta: Array,
    stale: Array,
    first_tiles: Flags,
    width: int,
    reciprocal: np.float32,
    variance_reciprocal: np.float32,
    epsilon: np.float32,
    rstd_factor: np.float32,
    subtract_mean: bool,
    rules: Rules,
    y: Array,
    mean: Array,
    rstd: Array,
) -> None:
    """Compute one block of rows in place: y (packed when the rules say so), mean and rstd.

    mean and rstd are as they are in Dst. x, y are (rows, N); mean, rstd (rows,); the others as in
    `forward.Sums`. `width` is N, or the padded width.
    """
    rows, features = x.shape
    tiles = first_tiles.shape[0]
    partial = np.empty(LANES, dtype=np.float32)
    x_row = np.empty(width, dtype=np.float32)
    for row in range(rows):
        partial[:] = stale
        for column in range(features):
            x_row[column] = read_source(x[row, column], False)
        for column in range(features, width):
            x_row[column] = x_row[column - features]
        for tile in range(tiles):
            if first_tiles[tile]:
                start = tile * LANES
                for lane in range(min(LANES, width - start)):
                    partial[lane] = accumulate(
                        partial[lane], x_row[start + lane], rules.narrow_sums
                    )
        for lane in range(LANES):
            partial[lane] = _stored(partial[lane], rules.bf16_buffers)
        mean[row] = _reduce(partial, reciprocal, rules)
        stored_mean = _stored(mean[row], rules.bf16_buffers)

        partial[:] = _ZERO
        for tile in range(tiles):
            start = tile * LANES
            for lane in range(min(LANES, width - start)):
                centred = _vector(vector_subtract(x_row[start + lane], stored_mean), rules.narrow)
                partial[lane] = accumulate(
                    partial[lane],
                    _vector(vector_multiply(centred, centred), rules.narrow),
                    rules.narrow_sums,
                )
        for lane in range(LANES):
            partial[lane] = _stored(partial[lane], rules.bf16_buffers)
        variance = _reduce(partial, variance_reciprocal, rules)
        shifted = _vector(vector_add(variance, epsilon), rules.narrow)
        root = reciprocal_root(shifted, rules.narrow)
        rstd[row] = vector_multiply(root, rstd_factor)
        scale = vector_multiply(_stored(root, rules.bf16_buffers), rstd_factor)

        subtracted = read_source(stored_mean, rules.mean_bf16) if subtract_mean else _ZERO
        for column in range(features):
            normal = _xhat(x_row[column], subtracted, scale, rules)
            scaled = _stored(
                _matrix(product(normal, gamma[column], rules.high, rules.low), rules.narrow),
                rules.bf16_buffers,
            )
            result = _matrix(align_add(scaled, beta[column]), rules.narrow)
            y[row, column] = pack_bf16(result) if rules.bf16_output else result
