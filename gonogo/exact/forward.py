"""Exact inputs of the forward kernels: x, gamma, and beta where the kernel has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import draws, integers, scales, squares, vernier

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]


def all_bits(seed: int, rows: int, features: int) -> Doubles:
    """Return rows of U[-1, 1) + 3/8 with the mantissas of fp32, in whole steps of 2^-23."""
    steps = draws.words(seed, "all bits", (rows, features)) >> np.uint64(40)
    return steps.astype(np.float64) * 2.0**-23 - 1.0 + 0.375


def normalized(test: TestSpec, seed: int) -> dict[str, Doubles]:
    """Return x, gamma and beta of LayerNorm and group norm: x = S (c + M)."""
    rows = scales.layout(test)
    c = integers.patterns(seed, test.rows, test.features)
    pattern = np.arange(test.rows) % len(c)
    x = rows.scale[:, None] * (c[pattern] + rows.mean[:, None])
    full = rows.kind == scales.ALL_BITS
    x[full] = all_bits(seed, int(full.sum()), test.features)
    (count,) = test.flat_shape_of("gamma")
    most = scales.largest_mean(test.features)
    gamma, beta = vernier.columns(seed, count, test.numerics.output, most)
    return {"x": x, "gamma": gamma, "beta": beta}


def root_mean_square(test: TestSpec, seed: int) -> dict[str, Doubles]:
    """Return x and gamma of RMSNorm: x = S c, in every fourth row with wide integers."""
    rows = scales.layout(test)
    features = test.features
    c = integers.uncentered(seed, test.rows, features)
    fine = test.numerics.format_of("gamma") != "bf16" and test.numerics.output != "bf16"
    one = 1024 if fine else 128  # gamma has 11 or 8 bits
    numerator = one + 1 + 2 * draws.choices(seed, "numerators", (features,), one // 2)
    signs = 1 - 2 * draws.choices(seed, "gamma signs", (features,), 2)
    power = 2.0 ** (draws.choices(seed, "powers", (features,), 3) - 1)
    x = rows.scale[:, None] * c[np.arange(test.rows) % len(c)].astype(np.float64)
    wide = rows.kind == scales.WIDE
    if wide.any():
        count = int(wide.sum())
        bits = vernier.precision(test.numerics.output)
        values = squares.patterns(seed, min(count, integers.MAX_PATTERNS), numerator, bits)
        unit = 2.0 * rows.scale[wide] / 2.0 ** squares.exponent(features)
        x[wide] = unit[:, None] * values[np.arange(count) % len(values)]
    full = rows.kind == scales.ALL_BITS
    x[full] = all_bits(seed, int(full.sum()), features)
    return {"x": x, "gamma": signs * power * numerator / one}
