"""Wrong statistics of a backward kernel: its mean, rstd or epsilon, in dx and in dgamma.

A kernel with x^' = f x^ + t and rstd f r makes dx = f r (P - s1 - x^' mean(P x^')).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import scales
from gonogo.exact.expected import Arrays
from gonogo.exact.expected_backward import Backward, backward
from gonogo.exact.readings import lags, moments
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.reading import Reading, factor_in_words
from gonogo.exact.readings.sums import Others, WrongSums

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Indices = NDArray[np.intp]

NO_EPSILON = 0.05
"""An epsilon with a smaller factor is missing: rows about epsilon read it to a few percent."""


def others(test: TestSpec, inputs: Arrays, rows: Indices) -> Others:
    """Return the parts of the rows from which a stale value may come, by lag."""
    result = {}
    for lag in lags.LAGS:
        sources, exist = lags.sources(rows, lag, test.rows)
        result[lag] = backward(test, inputs, sources), exist
    return result


def hypotheses(test: TestSpec, parts: Backward, stale: Others) -> list[moments.Hypothesis]:
    """Return the wrong statistics that have a name, for the rows of `parts`.

    A kernel that is given its rstd has no variance of its own.
    """
    stats = moments.Statistics(
        parts.xhat / parts.rstd[:, None] + parts.mean[:, None],
        parts.xhat,
        parts.mean,
        parts.rstd,
        {lag: np.where(exist, other.mean, np.nan) for lag, (other, exist) in stale.items()},
        {lag: np.where(exist, other.rstd, np.nan) for lag, (other, exist) in stale.items()},
        parts.is_centered,
    )
    lines = list(moments.specific(stats))
    if not scales.has_epsilon_rows(test):
        lines = [line for line in lines if line.term != "variance"]
    return lines


def as_sums(line: moments.Hypothesis, parts: Backward) -> WrongSums:
    """Return the sums of a kernel with wrong statistics."""
    f, t = line.factor, line.offset
    with np.errstate(invalid="ignore"):  # a variance of 0 has no rstd
        s2 = f * parts.s2 + t * parts.product.mean(axis=1)
        s1 = f * (parts.s1 + t * s2)
    return WrongSums(line.term, line.words, f, s1, f * f * s2, line.tiles)


def dgammas(lines: list[moments.Hypothesis], dy: Doubles, xhat: Doubles) -> Doubles:
    """Return the sums of dy x^' over all rows, (lines, columns), from dy and x^, (rows, columns).

    A row without a value is right.
    """
    known = [np.isfinite(line.factor) & np.isfinite(line.offset) for line in lines]
    factors = [np.where(some, line.factor, 1.0) for line, some in zip(lines, known, strict=True)]
    offsets = [np.where(some, line.offset, 0.0) for line, some in zip(lines, known, strict=True)]
    result: Doubles = np.array(factors) @ (dy * xhat) + np.array(offsets) @ dy
    return result


def epsilon(test: TestSpec, inputs: Arrays, output: Floats, rows: Indices) -> Reading:
    """Return the epsilon that dx shows in `rows`, whose variance is about epsilon.

    rstd f r makes dx = r (f (P - s1) - f^3 s2 x^): f is the least squares' factor of P - s1.
    """
    parts = backward(test, inputs, rows)
    values = output[rows].astype(np.float64) / parts.rstd[:, None]
    used = np.full(rows.size, np.nan)
    for row in range(rows.size):
        some = np.isfinite(values[row])
        table = np.stack([parts.product[row] - parts.s1[row], parts.s2[row] * parts.xhat[row]], 1)
        factor = np.linalg.lstsq(table[some], values[row, some], rcond=None)[0][0]
        variance = 1 / parts.rstd[row] ** 2 - test.epsilon
        used[row] = (variance + test.epsilon) / factor**2 - variance if factor > 0 else np.nan
    ratio = float(np.nanmedian(used)) / test.epsilon if np.isfinite(used).any() else 1.0
    if abs(ratio) < NO_EPSILON:
        ratio, words = 0.0, "epsilon is missing, or added outside of the root"
    else:
        words = f"epsilon has a factor of {factor_in_words(ratio)}"
    elements = Elements.of(output[rows], parts.dx, test.numerics.output)
    value = backward(test, inputs, rows, max(0.0, test.epsilon * ratio)).dx.exact
    return Reading("epsilon", words, elements.share(value), factor=ratio)


def of_epsilon(reading: Reading, parts: Backward, usual: float) -> Iterator[WrongSums]:
    """Yield the sums of rows with a large variance, where a kernel has the epsilon of a reading."""
    if reading.factor is None:
        return
    total = 1 / parts.rstd**2
    factor = np.sqrt(total / (total + (reading.factor - 1) * usual))
    line = moments.Hypothesis("epsilon", reading.words, factor, np.zeros_like(factor))
    yield replace(as_sums(line, parts), factor=reading.factor)
