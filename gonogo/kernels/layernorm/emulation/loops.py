"""The emulated backward kernel as a compiled loop over rows.

It is the fast version of gonogo.kernels.normalization.emulation.backward.flow, bit for bit, for
bf16 and fp32 buffers only. Block formats share exponents between neighbors and use the NumPy code.
"""

from __future__ import annotations

import numpy as np

from gonogo.kernels.normalization.emulation.backward import Gradients
from gonogo.kernels.normalization.emulation.logic import Logic, summed_tiles, tiles_of
from gonogo.kernels.normalization.emulation.loops import (
    LANES,
    Array,
    Flags,
    Rules,
    matrix,
    normal,
    reduced,
    stored,
    vector,
)
from gonogo.kernels.normalization.emulation.machine import Machine
from gonogo.numerics.jit import jit
from gonogo.numerics.tensix import arithmetic as wh
from gonogo.numerics.tensix.arithmetic_jit import (
    accumulate,
    pack_bf16,
    product,
    read_source,
    vector_multiply,
    vector_subtract,
)

_ZERO = np.float32(0.0)


def compiled_block(
    machine: Machine, rows: Gradients, logic: Logic, stale: Array, dgamma_rows: int
) -> tuple[Array, Array, Array]:
    """Return what `flow` returns for rows as given, from the compiled loop."""
    features = rows.x.shape[1]
    assert rows.mean is not None
    dx, dgamma, dbeta = np.empty_like(rows.x), *np.zeros((2, features), np.float32)
    tiles, rules = tiles_of(features), machine.rules(machine.srcb_bf16)
    scale = wh.vector_multiply(rows.rstd, np.float32(logic.rstd_factor))
    backward_rows(
        rows.x, rows.dy, rows.gamma, rows.mean, rows.rstd, scale, stale,
        summed_tiles(logic.first_tiles, tiles), summed_tiles(logic.square_tiles, tiles),
        logic.summed_columns(features).size, dgamma_rows, wh.scaler(1.0 / features), logic.s1_times,
        rules, dx, dgamma, dbeta,
    )  # fmt: skip
    return dx if rules.bf16_output else wh.pack(dx, machine.output), dgamma, dbeta


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

    x, dy, dx are (rows, N); mean, rstd, scale (rows,); the others as in `compiled_block`.
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
                    normalized = normal(
                        read_source(x[row, column], False), mean[row], rstd[row], rules
                    )
                    term = matrix(
                        product(dy_here, gamma[column], rules.high, rules.low), rules.narrow
                    )
                    xhat[column] = normalized
                    products[column] = term
                    if row < dgamma_rows:
                        component = stored(
                            vector(vector_multiply(dy_here, normalized), rules.narrow),
                            rules.bf16_buffers,
                        )
                        dgamma[column] = accumulate(dgamma[column], component, rules.narrow)
                    dbeta[column] = accumulate(dbeta[column], dy_here, rules.narrow)
                else:
                    normalized = xhat[column % features]
                    term = products[column % features]
                if first_tiles[tile]:
                    first[lane] = accumulate(first[lane], term, rules.narrow_sums)
                if second_tiles[tile]:
                    second[lane] = accumulate(
                        second[lane],
                        vector(vector_multiply(term, normalized), rules.narrow),
                        rules.narrow_sums,
                    )
        s1 = read_source(reduced(first, reciprocal, rules), rules.narrow)
        s2 = read_source(reduced(second, reciprocal, rules), rules.narrow)
        for column in range(features):
            left = products[column]
            for _ in range(s1_times):
                left = vector(vector_subtract(left, s1), rules.narrow)
            left = vector(
                vector_subtract(left, vector(vector_multiply(xhat[column], s2), rules.narrow)),
                rules.narrow,
            )
            result = vector(vector_multiply(left, scale[row]), rules.narrow)
            dx[row, column] = pack_bf16(result) if rules.bf16_output else result
