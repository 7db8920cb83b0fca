"""dx of LayerNorm and RMSNorm, by programs that store nothing (see kernels.layernorm.replay)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gonogo.numerics.jit import jit
from gonogo.numerics.replay.bits import inexact, rounding
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
from gonogo.numerics.replay.compiled.sums import NOISE, SLOPE, add_mean, exact_mean, scratch

# The formulas.
CENTERED, TWO_CASTS, LINEAR = range(3)

S1, S2 = range(2)
SUMS = 2
"""Sums of a row: of P, and of P x^ or, in the linear formula, of P x."""

# The numbers of a row; B and C are those of the linear formula.
MEAN, RSTD, MEAN_P, MEAN_P_XHAT, B, C, SHARED = range(7)
NUMBERS = SHARED + FORM

PATTERNS = 3
"""1, x - mean, and P - s1 - x^ s2 (in the linear formula P)."""


@jit
def rounded(value: float, noise: float, is_exact: bool) -> Any:
    """Return the noise of an operation's result whose operands have `noise`.

    is_exact: whether the operands share no error; then a result that fp32 holds isn't rounded.
    """
    return inexact(value) if is_exact and noise == 0.0 else noise + rounding(value)


@jit
def add_sums(
    start: int,
    stop: int,
    formula: int,
    centered: bool,
    given: bool,
    x: Any,
    dy: Any,
    gamma: Any,
    numbers: Any,
    order: int,
    facts: Any,
) -> None:
    """Put the sums of rows start..stop into `facts` (rows, SUMS, FACTS).

    x, dy: (rows, N). gamma: (N,). centered: whether a mean is subtracted from x, and s1 from P.
    given: whether mean and rstd are inputs, and so without error. numbers: (rows, NUMBERS) with
    MEAN and RSTD. The slope of the second sum is the mean of
    P (x - mean).
    """
    n = x.shape[1]
    memory, lanes = scratch(n), np.zeros(8)
    product, weighted, noise, weighted_noise, slope = (
        np.empty(n), np.empty(n), np.empty(n), np.empty(n), np.empty(n),
    )  # fmt: skip
    for i in range(start, stop):
        row, gradient = x[i], dy[i]
        mean, rstd = numbers[i, MEAN], numbers[i, RSTD]
        for j in range(n):
            p = gradient[j] * gamma[j]
            product[j] = p
            noise[j] = inexact(p)
        if formula == LINEAR:
            for j in range(n):
                w = product[j] * row[j]
                weighted[j] = w
                slope[j] = 0.0
                weighted_noise[j] = rounded(w, noise[j] * row[j] * row[j], True)
        else:
            for j in range(n):
                p, difference = product[j], row[j] - mean
                noise_of_difference = rounded(difference, 0.0, given) if centered else 0.0
                normalized = difference * rstd
                normalized_noise = rounded(normalized, noise_of_difference * rstd * rstd, given)
                w = p * normalized
                weighted[j] = w
                slope[j] = p * difference
                weighted_noise[j] = rounded(
                    w, noise[j] * normalized * normalized + normalized_noise * p * p, given
                )
        if centered:
            add_mean(product, n, order, memory, facts[i, S1])
            facts[i, S1, NOISE] = exact_mean(noise, n, lanes) / n
        add_mean(weighted, n, order, memory, facts[i, S2])
        facts[i, S2, NOISE] = exact_mean(weighted_noise, n, lanes) / n
        facts[i, S2, SLOPE] = exact_mean(slope, n, lanes)


@jit
def replay_columns(
    formula: int,
    centered: bool,
    given: bool,
    width: int,
    x: Any,
    dy: Any,
    gamma: Any,
    row: Any,
    difference: Any,
    third: Any,
    value: Any,
    noise: Any,
) -> None:
    """Compute dx of some columns, its noise, x - mean and the third pattern."""
    mean, rstd, s1, s2 = row[MEAN], row[RSTD], row[MEAN_P], row[MEAN_P_XHAT]
    if formula == LINEAR:
        b, c = row[B], row[C]
        for j in range(width):
            difference[j] = x[j] - mean
            p = dy[j] * gamma[j]
            third[j] = p
            scaled = p * rstd
            total_noise = rounded(scaled, inexact(p) * rstd * rstd, given)
            shifted = x[j] * b
            total = scaled + shifted
            total_noise += rounding(shifted) + rounding(total)
            value[j] = total - c
            noise[j] = total_noise + (rounding(value[j]) if centered else 0.0)
        return
    for j in range(width):
        d = x[j] - mean
        difference[j] = d
        p = dy[j] * gamma[j]
        product_noise = inexact(p)
        normalized = d * rstd
        difference_noise = rounded(d, 0.0, given) if centered else 0.0
        normalized_noise = rounded(normalized, difference_noise * rstd * rstd, given)
        share = normalized * s2
        share_noise = normalized_noise * s2 * s2 + rounding(share)
        if formula == CENTERED:
            first = p - s1
            first_noise = product_noise + (rounding(first) if centered else 0.0)
            rest = first - share
            third[j] = rest
            rest_noise = first_noise + share_noise + rounding(rest)
            value[j] = rest * rstd
            noise[j] = rest_noise * rstd * rstd + rounding(value[j])
        else:
            direct = p * rstd
            direct_noise = rounded(direct, product_noise * rstd * rstd, given)
            both = s1 + share
            third[j] = p - both
            through = both * rstd
            both_noise = share_noise + (rounding(both) if centered else 0.0)
            through_noise = both_noise * rstd * rstd + rounding(through)
            value[j] = direct - through
            noise[j] = direct_noise + through_noise + rounding(value[j])


@jit
def measure(
    start: int,
    stop: int,
    formula: int,
    centered: bool,
    given: bool,
    x: Any,
    dy: Any,
    gamma: Any,
    output: Any,
    numbers: Any,
    unit: float,
    smallest: float,
    limit: float,
    weighted: bool,
    results: Any,
    grams: Any,
) -> None:
    """Put how near rows start..stop of dx are to their replay into `results` (rows, RESULTS).

    numbers: (rows, NUMBERS). weighted: whether to add the products of the patterns to `grams`
    (rows, PATTERNS, PATTERNS + 1).
    """
    n = x.shape[1]
    patterns, lanes = np.empty((PATTERNS, BLOCK)), np.zeros((PATTERNS, PATTERNS + 1, LANES))
    difference, third, value, noise, variance, ratio, error, weight = (
        np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK),
        np.empty(BLOCK), np.empty(BLOCK), np.empty(BLOCK),
    )  # fmt: skip
    for i in range(start, stop):
        form = numbers[i, SHARED:]
        has_third = form[2] != 0.0 or form[4] != 0.0 or form[5] != 0.0
        used = PATTERNS if has_third else PATTERNS - 1
        for first in range(0, n, BLOCK):
            last = min(first + BLOCK, n)
            width = last - first
            replay_columns(
                formula, centered, given, width, x[i, first:last], dy[i, first:last],
                gamma[first:last], numbers[i], difference, third, value, noise,
            )  # fmt: skip
            for j in range(width):
                u0 = first_part(form, difference[j], third[j])
                u1 = second_part(form, difference[j], third[j])
                u2 = form[5] * third[j]
                patterns[0, j], patterns[1, j], patterns[2, j] = u0, u1, u2
                variance[j] = noise[j] + (u0 * u0 + u1 * u1 + u2 * u2)
            part = output[i, first:last]
            add_cells(width, first, part, value, variance, unit, smallest, limit, ratio, results[i])
            if weighted:
                weigh(width, part, value, noise, unit, smallest, error, weight)
                add_gram(patterns, used, error, weight, width, lanes)
        if weighted:
            for k in range(PATTERNS):
                for other in range(PATTERNS + 1):
                    grams[i, k, other] = lanes[k, other].sum()
            lanes[:] = 0.0
