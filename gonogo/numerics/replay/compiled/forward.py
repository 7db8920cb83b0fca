"""y of kernels that normalize rows, by programs that store nothing (see kernels.normalization)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.bits import rounding
from gonogo.numerics.replay.compiled.elements import (
    BLOCK,
    FORM,
    LANES,
    add_cells,
    add_gram,
    first_part,
    second_part,
    weigh,
)

# The orders of the products.
FACTOR_FIRST, DIRECT, SHIFTED, LINEAR = range(4)
"""(x - mean) (gamma rstd); (x - mean) rstd; x rstd - mean rstd; x (gamma rstd) + rest."""

# The numbers of a row.
MEAN, RSTD, RSTD_NOISE, SHIFT, SHIFT_NOISE, SHARED = range(6)
NUMBERS = SHARED + FORM
"""rstd is 1 / root where the kernel divides; the shift is mean rstd. At SHARED is the FORM of the
errors that the row shares."""

PATTERNS = 2


@jit
def replay_columns(
    product: int,
    centered: bool,
    width: int,
    x: Any,
    gamma: Any,
    beta: Any,
    row: Any,
    difference: Any,
    value: Any,
    noise: Any,
) -> None:
    """Compute y of some columns, its noise, and x - mean.

    gamma, beta: (width,), empty where the kernel has none. row: the row's NUMBERS.
    """
    mean, rstd, rstd_noise = row[MEAN], row[RSTD], row[RSTD_NOISE]
    has_gamma, has_beta = len(gamma) > 0, len(beta) > 0
    for j in range(width):
        difference[j] = x[j] - mean
    if product == LINEAR:
        _linear(centered, width, x, gamma, beta, row, value, noise)
        return
    if product == FACTOR_FIRST and has_gamma:
        for j in range(width):
            c, g = difference[j], gamma[j]
            factor = rstd * g
            factor_noise = rstd_noise * g * g + rounding(factor)
            centered_noise = rounding(c) if centered else 0.0
            value[j] = c * factor
            noise[j] = centered_noise * factor * factor + factor_noise * c * c + rounding(value[j])
    else:
        if product == SHIFTED:
            for j in range(width):
                value[j] = x[j] * rstd
                noise[j] = rstd_noise * x[j] * x[j] + rounding(value[j])
            if centered:
                for j in range(width):
                    value[j] -= row[SHIFT]
                    noise[j] += row[SHIFT_NOISE] + rounding(value[j])
        else:
            for j in range(width):
                c = difference[j]
                centered_noise = rounding(c) if centered else 0.0
                value[j] = c * rstd
                noise[j] = centered_noise * rstd * rstd + rstd_noise * c * c + rounding(value[j])
        if has_gamma:
            for j in range(width):
                g = gamma[j]
                value[j] *= g
                noise[j] = noise[j] * g * g + rounding(value[j])
    if has_beta:
        for j in range(width):
            value[j] += beta[j]
            noise[j] += rounding(value[j])


@jit
def _linear(
    centered: bool, width: int, x: Any, gamma: Any, beta: Any, row: Any, value: Any, noise: Any
) -> None:
    """Compute x (gamma rstd) + (beta - mean gamma rstd) of some columns."""
    mean, rstd, rstd_noise = row[MEAN], row[RSTD], row[RSTD_NOISE]
    has_gamma, has_beta = len(gamma) > 0, len(beta) > 0
    for j in range(width):
        factor, factor_noise = rstd, rstd_noise
        if has_gamma:
            g = gamma[j]
            factor = rstd * g
            factor_noise = rstd_noise * g * g + rounding(factor)
        scaled = x[j] * factor
        total_noise = factor_noise * x[j] * x[j] + rounding(scaled)
        total = scaled
        if centered:
            shift = mean * factor
            shift_noise = factor_noise * mean * mean + rounding(shift)
            if has_beta:
                rest = beta[j] - shift
                total = scaled + rest
                total_noise += shift_noise + rounding(rest) + rounding(total)
            else:
                total = scaled - shift
                total_noise += shift_noise + rounding(total)
        elif has_beta:
            total = scaled + beta[j]
            total_noise += rounding(total)
        value[j], noise[j] = total, total_noise


@jit
def measure(
    start: int,
    stop: int,
    product: int,
    centered: bool,
    x: Any,
    output: Any,
    gamma: Any,
    beta: Any,
    numbers: Any,
    unit: float,
    smallest: float,
    limit: float,
    weighted: bool,
    results: Any,
    grams: Any,
) -> None:
    """Put how near rows start..stop of y are to their replay into `results` (rows, RESULTS).

    gamma, beta: (1 or rows, N), or (1, 0) where the kernel has none. numbers: (rows, NUMBERS).
    weighted: whether to add the products of the errors' patterns to `grams`
    (rows, PATTERNS, PATTERNS + 1).
    """
    n = x.shape[1]
    difference, value, noise, variance, ratio, error, weight = (
        np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK),
        np.empty(BLOCK), np.empty(BLOCK),
    )  # fmt: skip
    patterns, lanes = np.empty((PATTERNS, BLOCK)), np.zeros((PATTERNS, PATTERNS + 1, LANES))
    for i in range(start, stop):
        own_gamma = gamma[i if gamma.shape[0] > 1 else 0]
        own_beta = beta[i if beta.shape[0] > 1 else 0]
        form = numbers[i, SHARED:]
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            width = last - first
            some_gamma = own_gamma[first:last]
            replay_columns(
                product, centered, width, x[i, first:last], some_gamma, own_beta[first:last],
                numbers[i], difference, value, noise,
            )  # fmt: skip
            for j in range(width):
                patterns[0, j] = first_part(form, difference[j], 0.0)
                patterns[1, j] = second_part(form, difference[j], 0.0)
            if len(some_gamma) > 0:
                for j in range(width):
                    patterns[0, j] *= some_gamma[j]
                    patterns[1, j] *= some_gamma[j]
            for j in range(width):
                u0, u1 = patterns[0, j], patterns[1, j]
                variance[j] = noise[j] + (u0 * u0 + u1 * u1)
            part = output[i, first:last]
            add_cells(width, first, part, value, variance, unit, smallest, limit, ratio, results[i])
            if weighted:
                weigh(width, part, value, noise, unit, smallest, error, weight)
                add_gram(patterns, PATTERNS, error, weight, width, lanes)
        if weighted:
            for k in range(PATTERNS):
                for other in range(PATTERNS + 1):
                    grams[i, k, other] = lanes[k, other].sum()
            lanes[:] = 0.0
