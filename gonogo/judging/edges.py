"""How far a right kernel may be from the raw reference: the lower edge of every tolerance, from the
budget, before any kernel ran.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.kernels import registry
from gonogo.numerics import compare
from gonogo.numerics.expectation import Array, Expectation, binade, output_step
from gonogo.spec.verdicts import POLICY

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

DEVIATIONS = 7.5
"""A right kernel's error stays below min(B, 7.5 s): B is a worst case, and beyond 7.5 standard
deviations a normal error comes once in 1.6e13 elements, beyond what any suite runs."""


@dataclass
class Edges:
    """The least tolerance of each comparator that no right kernel should exceed on one seed;
    infinite where nothing can be said.

    needed_atol: rtol -> atol. The others as the statistics of the same names. `alarm` is the
    probability that a right kernel is outside the declared allclose on this seed, None where the
    test declares none.
    """

    needed_atol: dict[float, float]
    rel_frobenius: float = 0.0
    pcc_deficit: float = 0.0
    ulp_max: float = 0.0
    alarm: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, null for an infinite one; rtols as the statistics write them."""

        def plain(value: float | None) -> float | None:
            return value if value is not None and math.isfinite(value) else None

        return {
            "needed_atol": {repr(rtol): plain(atol) for rtol, atol in self.needed_atol.items()},
            **{
                name: plain(getattr(self, name))
                for name in ("rel_frobenius", "pcc_deficit", "ulp_max", "alarm")
            },
        }


@dataclass
class _Sums:
    """What is added up over the blocks of one output."""

    edges: Edges
    allclose: tuple[float, float] | None
    shrink: float = 1.0  # of the variance, for the alarm only
    count: int = 0
    distances: float = 0.0  # squares of what quantising moved the reference
    variances: float = 0.0
    raw_squares: float = 0.0
    centred: float = 0.0  # the raw reference's, about its first value
    total: float = 0.0
    worst: float = 0.0  # of the error at most, as a 2-norm
    silent: float = 0.0  # log of the probability that no element is outside
    first: float | None = None

    def add(self, expected: Expectation, raw: Array) -> None:
        """One block: an expectation and the raw reference of its shape."""
        distance = expected.reference - raw
        variance = np.asarray(np.broadcast_to(expected.variance, raw.shape))
        bound = np.asarray(np.broadcast_to(expected.bound, raw.shape))
        error = np.minimum(bound, DEVIATIONS * np.sqrt(variance))
        size = np.abs(raw)
        most = error + np.abs(distance)
        for rtol in self.edges.needed_atol:
            self.edges.needed_atol[rtol] = max(
                self.edges.needed_atol[rtol], float((most - rtol * size).max())
            )
        golden = compare.rounded(raw, expected.out, expected.out_block)
        ulp = 2 * expected.out * np.maximum(binade(golden), compare.SMALLEST_NORMAL)
        self.edges.ulp_max = max(
            self.edges.ulp_max, float(((most + np.abs(golden - raw)) / ulp).max())
        )
        self.first = float(raw.flat[0]) if self.first is None else self.first
        self.count += raw.size
        self.distances += float((distance**2).sum())
        self.variances += float(variance.sum())
        self.worst += float((most**2).sum())
        self.raw_squares += float((raw**2).sum())
        self.centred += float(((raw - self.first) ** 2).sum())
        self.total += float((raw - self.first).sum())
        if self.allclose is not None:
            rtol, atol = self.allclose
            step = output_step(expected.reference, expected.out, expected.out_block)
            self.silent += silence(
                distance, atol + rtol * size, bound, self.shrink * variance, step
            )

    def finished(self) -> Edges:
        """The edges of the whole output."""
        error = math.sqrt(
            min(self.distances + POLICY.chi_limit(self.count) ** 2 * self.variances, self.worst)
        )
        norm = math.sqrt(self.raw_squares)
        self.edges.rel_frobenius = error / norm if norm else (math.inf if error else 0.0)
        spread = math.sqrt(max(self.centred - self.total**2 / max(self.count, 1), 0.0))
        self.edges.pcc_deficit = _pcc_deficit(error / spread) if spread > error else math.inf
        if self.allclose is not None:
            self.edges.alarm = -math.expm1(self.silent) + 0.0  # never -0
        return self.edges


def _pcc_deficit(relative: float) -> float:
    """The largest 1 - PCC of an error of that norm relative to the centred reference's.

    For a = b + d of fixed |d| < |b| the angle is largest where d is at right angles to a: sin =
    |d|/|b|.
    """
    return 1.0 - math.sqrt(1.0 - relative**2) if relative > 1e-4 else relative**2 / 2


def silence(distance: Array, threshold: Array, bound: Array, variance: Array, step: Array) -> float:
    """The log of the probability that no element is outside its threshold, for a right kernel.

    An element errs by the rounding of the output, uniform on +-step, and by what came before,
    normal with the rest of its variance; together never by more than its bound. Elements are taken
    as independent: with errors that rows share, this probability is a little too small.
    """
    some = np.abs(distance) + bound > threshold
    if not some.any():
        return 0.0
    d, t, b, h = (each[some] for each in (distance, threshold, bound, step))
    sigma = np.sqrt(np.maximum(variance[some] - h**2 / 3, 0.0))
    outside = _beyond(t - d, b, h, sigma) + _beyond(t + d, b, h, sigma)
    return float(np.log1p(-np.minimum(outside, 1.0 - 1e-15)).sum())


def _beyond(limit: Array, bound: Array, h: Array, sigma: Array) -> Array:
    """P(U + G > limit) for U uniform on +-h and G normal, 0 where the bound forbids it. With Phi' =
    phi and I(z) = z Phi(z) + phi(z) the integral of Phi, P = 1 - sigma/(2h) [I((limit + h)/sigma) -
    I((limit - h)/sigma)].
    """
    from scipy.special import ndtr

    h = np.maximum(h, 1e-300)
    s = np.maximum(sigma, 1e-6 * h)

    def upper(z: Array) -> Array:  # the integral of 1 - Phi from z to infinity
        return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) - z * ndtr(-z))

    found = np.clip(s / (2 * h) * (upper((limit - h) / s) - upper((limit + h) / s)), 0.0, 1.0)
    return np.where(limit < bound, found, 0.0)


def edges(
    test: TestSpec,
    raw: Mapping[str, NDArray[Any]],
    given: Mapping[str, NDArray[Any]],
    arithmetic: str | None,
    rtols: Sequence[float],
    *,
    chi: Mapping[str, float | None] | None = None,
) -> dict[str, Edges]:
    """The edges of every output for one seed: min(B, 7.5 s) for |e|, plus the distance of the
    quantised and the raw reference.

    raw, given: as gonogo.judging.inputs makes them. For the norms (Frobenius, PCC) the expected square of
    the error, with chi at the most that is still explained. Rows of which nothing can be said make
    the edges infinite: a right kernel may give anything there.
    chi: output -> what a right kernel's run showed. s is chosen not to be too small; the chance of
    an alarm takes chi s for it, where that is smaller. The edges don't.
    """
    numerics = registry.numerics(test)
    references = numerics.reference(test, raw)
    found: dict[str, _Sums] = {}
    for name, expected, rows, columns in numerics.pieces(test, given, arithmetic):
        tolerance = test.tolerance_for(name)
        allclose = tolerance.allclose if tolerance is not None else None
        shown = (chi or {}).get(name)
        shrink = 1.0 if shown is None else min(1.0, shown) ** 2
        sums = found.setdefault(name, _Sums(Edges(dict.fromkeys(rtols, 0.0)), allclose, shrink))
        reference = np.asarray(references[name], np.float64)
        matrix = reference.reshape(1, -1)[:, columns] if reference.ndim == 1 else reference[rows]
        sums.add(_said(expected), matrix)
    return {name: found[name].finished() for name in test.outputs if name in found}


def _said(expected: Expectation) -> Expectation:
    """The expectation with infinite bounds and variances in the rows of which nothing can be
    said.
    """
    if expected.informative is None or expected.informative.all():
        return expected
    silent = ~expected.informative[:, None]
    return replace(
        expected,
        bound=np.where(silent, np.inf, expected.bound),
        noise=np.where(silent, np.inf, expected.noise),
    )
