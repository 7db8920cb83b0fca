"""The layout of an exact test: the kind, the scale S and the integer mean M of each row."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isqrt, log2, sqrt
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import integers
from gonogo.exact.squares import MIN_FEATURES

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

EXACT, ROUGH, EPSILON, ALL_BITS, WIDE = range(5)
"""Kinds of rows. EXACT: mean and rstd are exact. ROUGH: N = 1 or 3, where no exact statistics
exist; elements with x^ = 0 are exact. EPSILON: the variance is about epsilon. ALL_BITS: full
mantissas, an uneven mean; such rows are for the ordinary judgment. A backward kernel has none:
its columns sum all rows. WIDE: in RMSNorm, integers of 8 bits, exact unless the kernel stores
squares or partial sums in 16 bits; in a backward kernel, vernier rows."""

EXACT_STATISTICS = (EXACT, WIDE)
"""Kinds of rows whose mean and rstd are exact."""

_MEANS = (3, -2, 1, -3, 0, 2, -1)
_EXPONENTS = (0, 2, 1, 3)
_FP16_EXPONENTS = (0, 2, 1)
"""Scales of fp16 stay below 64, so that squares stay below 65504."""

FP16_LEAST_SCALE = 2.0**-10
"""Epsilon rows of fp16: a variance of 2^-18, if it is stored, keeps two bits and a half."""


SINGLE_SCALE = 2.0**-6
"""S where N = 1 and a mean is subtracted: y is beta, to within 16 u |mean| / sqrt(eps)."""


@dataclass(frozen=True)
class Layout:
    """The rows of a test: kind, scale and mean of each, all (rows,)."""

    kind: NDArray[np.int64]
    scale: NDArray[np.float64]
    """S, a power of two."""
    mean: NDArray[np.int64]
    """M; the mean is S M."""


def least_exponent(epsilon: float) -> int:
    """Return the exponent of the smallest S whose variance absorbs epsilon.

    1/sqrt(4 S^2 + eps) is 1/(2 S) to within 2^-27 for S^2 >= 2^24 eps: a quarter of the spacing of
    fp32 below a power of two. S is at least 8, so that no value of fp16 is subnormal.
    """
    return max(3, ceil(log2(epsilon * 2.0**24) / 2))


def largest_mean(features: int) -> int:
    """Return the largest |M|: all sums of squares stay below 2^24, so N (|M| + 4)^2 <= 2^24."""
    return max(0, min(3, isqrt(2**24 // features) - 4))


def has_epsilon_rows(test: TestSpec) -> bool:
    """Return whether the kernel computes rstd itself, so that epsilon matters."""
    return "rstd" not in test.input_names


def is_centered(test: TestSpec) -> bool:
    """Return whether the kernel subtracts a mean; RMSNorm's don't."""
    return test.kernel not in ("rmsnorm_fw", "rmsnorm_bw")


def is_backward(test: TestSpec) -> bool:
    """Return whether the kernel computes gradients."""
    return "dy" in test.input_names


def is_half(test: TestSpec) -> bool:
    """Return whether a tensor of the test is in fp16."""
    return "fp16" in (*map(test.numerics.format_of, test.input_names), test.numerics.output)


def layout(test: TestSpec) -> Layout:
    """Return the layout, which depends on the test only (not on the seed)."""
    rows = np.arange(test.rows)
    rms, backward = not is_centered(test), is_backward(test)
    kind = np.full(test.rows, EXACT if rms or integers.exists(test.features) else ROUGH)
    if rms and (backward or test.features >= MIN_FEATURES):
        kind[rows % 4 == 2] = WIDE
    if has_epsilon_rows(test):
        few = (test.rows < 6) & (test.rows > 1) & (rows == test.rows - 1)
        kind[(rows % 8 == 5) | few] = EPSILON
    if backward:
        wide = (rows % 4 == 2) & (kind == EXACT)
        kind[wide] = WIDE
    else:
        kind[rows % 8 == 7] = ALL_BITS
    half = is_half(test)
    exponents = np.array(_FP16_EXPONENTS if half else _EXPONENTS)
    first = least_exponent(test.epsilon)
    scale = 2.0 ** (first + exponents[rows % len(exponents)])
    smallest = 2.0 ** round(log2(sqrt(test.epsilon) / 2))
    scale[kind == EPSILON] = max(smallest, FP16_LEAST_SCALE) if half else smallest
    most = largest_mean(test.features)
    if (
        test.features == 1 and not rms
    ):  # rstd is 1/sqrt(eps): a kernel that adds x a and b - m a loses bits
        scale[:] = SINGLE_SCALE
    means = np.array([mean for mean in _MEANS if abs(mean) <= most]) * (not rms)
    return Layout(kind, scale, means[rows % len(means)])
