"""The statistics of two arrays in one pass over blocks that fit a cache.

gonogo.closeness has the formulas and all statistics; this computes those that a captured comparison
can afford: at most 30 ns an element.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.closeness import CONSTANT, Gate, is_near_power, pcc_deficit_of, rounded, step
from gonogo.public.tensors import Tensor

Array = NDArray[Any]
Numbers = dict[str, Any]

BLOCK = 1 << 14
"""Elements of a block."""
FAR, MOST_FAR = 0.4, 0.25
"""Errors of this share of the value may be a power of two; where more elements than that are so far
off, none is isolated."""
FEW = 16
"""The least number of elements of which one can be isolated."""
ISOLATED = 0.01
"""The largest share of elements with such an error."""
BEYOND = 8.0
"""So many times the root mean square of all other errors is no rounding."""


@np.errstate(all="ignore")  # a stranger's tests may turn warnings into errors
def numbers(actual: Tensor, expected: Tensor, gate: Gate) -> Numbers:
    """Return the statistics of `actual` against `expected`, of equal shapes and not empty.

    Those of gonogo.closeness.numbers have its names. Besides: `nonfinite_both`, elements that are
    the same NaN or infinity on both sides; of the finite expected values `expected_max`, the
    largest size, and `is_constant`, whether all are equal; `outliers`, isolated errors near a power
    of two. Without a finite element there are only counts.
    """
    a, r = np.broadcast_arrays(actual.values, expected.values)
    a, r = a.reshape(-1), r.reshape(-1)
    # bfp8_b: the ulp of a value depends on its neighbors in a row
    form = None if actual.format == "bfp8_b" else actual.format
    sums = _Sums(gate, form, is_rounded=expected.format == form)
    for start in range(0, a.size, BLOCK):
        sums.add(a[start : start + BLOCK], r[start : start + BLOCK])
    kind = {"count": a.size, "dtype": actual.dtype, "format": actual.format}
    return kind | sums.result()


class _Sums:
    """Sums over the blocks so far: d is the error, b the expected value less `shift`."""

    def __init__(self, gate: Gate, form: str | None, *, is_rounded: bool) -> None:
        self.allclose, self.form, self.is_rounded = gate.allclose, form, is_rounded
        self.nonfinite = self.nonfinite_both = self.finite = 0
        self.max_abs = self.ratio = self.ulp = self.expected_max = 0.0
        self.least, self.most = math.inf, -math.inf
        self.shift = math.nan
        self.d = self.b = self.dd = self.bb = self.bd = 0.0
        self.candidates: list[Array] = []
        """The errors that are near a power of two times the expected value, block by block."""

    def add(self, a: Array, r: Array) -> None:
        """Add a block."""
        a, r = a.astype(np.float64), r.astype(np.float64)
        error = a - r
        finite = np.isfinite(error)
        if not finite.all():
            odd_a, odd_r = a[~finite], r[~finite]
            same = (odd_a == odd_r) | (np.isnan(odd_a) & np.isnan(odd_r))
            self.nonfinite_both += int(same.sum())
            self.nonfinite += int((~same).sum())
            a, r, error = a[finite], r[finite], error[finite]
            if not r.size:
                return
        if not self.finite:
            self.shift = float(r.mean())
        self.finite += r.size
        self.least, self.most = min(self.least, float(r.min())), max(self.most, float(r.max()))
        about = r - self.shift
        self.b, self.bb = self.b + float(about.sum()), self.bb + _dot(about, about)
        if not error.any():
            return
        self.d, self.dd = self.d + float(error.sum()), self.dd + _dot(error, error)
        self.bd += _dot(about, error)
        size, magnitude = np.abs(error), np.abs(r)
        self.max_abs = max(self.max_abs, float(size.max()))
        if self.allclose is not None:
            rtol, atol = self.allclose
            ratios = size / (atol + rtol * magnitude)
            self.ratio = max(self.ratio, float(np.fmax.reduce(ratios)))  # NaN: 0 / 0, an exact 0
        if self.form is not None:
            golden = r if self.is_rounded else rounded(r, self.form)
            distance = size if self.is_rounded else np.abs(a - golden)
            self.ulp = max(self.ulp, float(np.max(distance / step(golden, self.form))))
        self._add_candidates(a, r, size > FAR * magnitude)

    def _add_candidates(self, a: Array, r: Array, is_far: Array) -> None:
        if not 0 < np.count_nonzero(is_far) <= MOST_FAR * is_far.size:
            return
        a, r = a[is_far], r[is_far]
        self.candidates.append(np.abs(a - r)[is_near_power(a, r)])

    def result(self) -> Numbers:
        """Return the statistics; without finite elements only their counts."""
        counts = {"nonfinite": self.nonfinite, "nonfinite_both": self.nonfinite_both}
        if not self.finite:
            return counts
        n, largest = self.finite, max(abs(self.least), abs(self.most))
        squares = self.bb + 2 * self.shift * self.b + n * self.shift**2
        return {
            **counts,
            "max_abs": self.max_abs,
            "rms": math.sqrt(self.dd / n),
            "rel_frobenius": math.sqrt(self.dd / squares) if squares > 0 else None,
            "pcc_deficit": pcc_deficit_of(
                self.dd - self.d**2 / n,
                self.bb - self.b**2 / n,
                self.bd - self.b * self.d / n,
                n * (largest * CONSTANT) ** 2,
            ),
            "ulp_max": None if self.form is None else self.ulp,
            "tolerance_ratio": None if self.allclose is None else self.ratio,
            "outliers": self._outliers(),
            "expected_max": largest,
            "is_constant": self.most - self.least <= CONSTANT * largest,
        }

    def _outliers(self) -> int:
        """Return how many errors near a power of two are isolated and larger than all others."""
        sizes = np.concatenate(self.candidates) if self.candidates else np.zeros(0)
        if not 0 < sizes.size <= max(1, ISOLATED * self.finite) or self.finite < FEW:
            return 0
        usual = math.sqrt(max(0.0, self.dd - _dot(sizes, sizes)) / (self.finite - sizes.size))
        return int((sizes > BEYOND * usual).sum())


def _dot(x: Array, y: Array) -> float:
    """Return the sum of products, without the threads of a BLAS, which tests may count on."""
    return float(np.einsum("i,i->", x, y))
