"""The lower edge of every tolerance: how far a right kernel may be from the raw reference.

It follows from the budget, before any kernel runs, or from the program that reproduces one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gonogo.judging.named import programs
from gonogo.kernels import registry
from gonogo.kernels.kind import EVERYTHING, Piece
from gonogo.numerics import compare
from gonogo.numerics.expectation import Array, Expectation, binade, output_step
from gonogo.numerics.formats import FORMATS, half_ulp
from gonogo.numerics.replay import spans
from gonogo.numerics.tails import upper_tail
from gonogo.spec.arithmetic_names import budget_of
from gonogo.spec.program_name import ProgramName
from gonogo.spec.verdicts import POLICY

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

DEVIATIONS = 7.5
"""A right kernel's error stays below min(B, 7.5 s).

B is a worst case. Beyond 7.5 standard deviations a normal error comes once in 1.6e13 elements, more
than any suite runs.
"""


@dataclass
class Edges:
    """The smallest tolerance of each comparator that no right kernel should exceed on one seed.

    It is infinite where nothing is known. needed_atol: rtol -> atol. The others are named as the
    statistics. `alarm` is the probability that a right kernel is outside the declared allclose on
    this seed, None where the test declares none.
    """

    needed_atol: dict[float, float]
    rel_frobenius: float = 0.0
    pcc_deficit: float = 0.0
    ulp_max: float = 0.0
    alarm: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain numbers, null for an infinite one; rtols as the statistics write them."""

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
    """Running sums over the blocks of one output."""

    edges: Edges
    allclose: tuple[float, float] | None
    shrink: float = 1.0  # of the variance, for the alarm only
    count: int = 0
    distances: float = 0.0  # squares of the reference's shifts by quantization
    variances: float = 0.0
    raw_squares: float = 0.0
    centred: float = 0.0  # squares of the raw reference, about its first value
    total: float = 0.0
    worst: float = 0.0  # squares of the largest possible errors
    log_no_alarm: float = 0.0  # log of the probability that no element is outside
    first: float | None = None

    def add(self, expected: Expectation, raw: Array) -> None:
        """Add one block: an expectation and the raw reference of its shape."""
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
            self.log_no_alarm += log_no_alarm(
                distance, atol + rtol * size, bound, self.shrink * variance, step
            )

    def finished(self) -> Edges:
        """Return the edges of the whole output."""
        error = math.sqrt(
            min(self.distances + POLICY.chi_limit(self.count) ** 2 * self.variances, self.worst)
        )
        norm = math.sqrt(self.raw_squares)
        self.edges.rel_frobenius = error / norm if norm else (math.inf if error else 0.0)
        spread = math.sqrt(max(self.centred - self.total**2 / max(self.count, 1), 0.0))
        self.edges.pcc_deficit = _pcc_deficit(error / spread) if spread > error else math.inf
        if self.allclose is not None:
            self.edges.alarm = -math.expm1(self.log_no_alarm) + 0.0  # never -0
        return self.edges


def _pcc_deficit(relative: float) -> float:
    """Return the largest 1 - PCC of an error with that norm, relative to the centered reference's.

    For a = b + d of fixed |d| < |b| the angle is largest where d is at right angles to a: sin =
    |d|/|b|.
    """
    return 1.0 - math.sqrt(1.0 - relative**2) if relative > 1e-4 else relative**2 / 2


def log_no_alarm(
    distance: Array, threshold: Array, bound: Array, variance: Array, step: Array
) -> float:
    """Return the log of the probability that no element of a right kernel is outside its threshold.

    An element errs by the rounding of the output, uniform on +-step, and by what came before,
    normal with the rest of its variance; together never by more than its bound. Elements count as
    independent: with errors that rows share, this probability is a little too small.
    """
    some = np.abs(distance) + bound > threshold
    if not some.any():
        return 0.0
    d, t, b, h = (values[some] for values in (distance, threshold, bound, step))
    sigma = np.sqrt(np.maximum(variance[some] - h**2 / 3, 0.0))
    outside = _beyond(t - d, b, h, sigma) + _beyond(t + d, b, h, sigma)
    return float(np.log1p(-np.minimum(outside, 1.0 - 1e-15)).sum())


def _beyond(limit: Array, bound: Array, h: Array, sigma: Array) -> Array:
    """Return P(U + G > limit) for U uniform on +-h and G normal; 0 where the bound forbids it.

    With Phi' = phi and I(z) = z Phi(z) + phi(z) the integral of Phi, P = 1 - sigma/(2h) [I((limit +
    h)/sigma) - I((limit - h)/sigma)].
    """
    h = np.maximum(h, 1e-300)
    s = np.maximum(sigma, 1e-6 * h)

    def upper(z: Array) -> Array:  # the integral of 1 - Phi from z to infinity
        return np.asarray(np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi) - z * upper_tail(z))

    probability = np.clip(s / (2 * h) * (upper((limit - h) / s) - upper((limit + h) / s)), 0.0, 1.0)
    return np.where(limit < bound, probability, 0.0)


def edges(
    test: TestSpec,
    raw: Mapping[str, NDArray[Any]],
    given: Mapping[str, NDArray[Any]],
    arithmetic: str | None,
    rtols: Sequence[float],
    *,
    chi: Mapping[str, float | None] | None = None,
    models: Mapping[str, str | None] | None = None,
) -> dict[str, Edges]:
    """Return the edges of every output for one seed.

    For |e| they are min(B, 7.5 s) plus the distance of the quantized and the raw reference. For the
    norms (Frobenius, PCC) they use the expected square of the error, with chi at the most that is
    still explained. Rows that aren't informative make the edges infinite: a right kernel may give
    anything there.

    raw, given: as gonogo.judging.inputs makes them. chi: output -> the chi of a right kernel's run.
    s is chosen not to be too small. The chance of an alarm uses chi s in its place, where that is
    smaller. The edges don't. models: output -> the program that reproduces it, in place of the
    budget; None: no program does, and nothing is known of the output.
    """
    numerics = registry.numerics(test)
    references = numerics.reference(test, raw)
    models = models or {}
    sums_by_output: dict[str, _Sums] = {}
    pieces: Iterable[Piece] = _replayed(test, given, models)
    if set(test.outputs) - set(models):
        budgets = numerics.pieces(test, given, budget_of(arithmetic))
        pieces = chain(pieces, (piece for piece in budgets if piece[0] not in models))
    for name, expected, rows, columns in pieces:
        tolerance = test.tolerance_for(name)
        allclose = tolerance.allclose if tolerance is not None else None
        shown = (chi or {}).get(name)
        shrink = 1.0 if shown is None else min(1.0, shown) ** 2
        sums = sums_by_output.setdefault(
            name, _Sums(Edges(dict.fromkeys(rtols, 0.0)), allclose, shrink)
        )
        reference = np.asarray(references[name], np.float64)
        matrix = reference.reshape(1, -1)[:, columns] if reference.ndim == 1 else reference[rows]
        sums.add(_unbounded(expected), matrix)
    return {
        name: sums_by_output[name].finished() for name in test.outputs if name in sums_by_output
    }


def _replayed(
    test: TestSpec, given: Mapping[str, NDArray[Any]], models: Mapping[str, str | None]
) -> Iterator[Piece]:
    """Yield the expectations of outputs that programs reproduce, in parts that fit in memory."""
    graphs = registry.numerics(test).graphs(test, given)
    form = test.numerics.output
    for name, model in models.items():
        program_name = None if model is None else ProgramName.parse(model)
        if program_name is None:
            continue
        graph = graphs[name]
        program = next(programs(graph, program_name, ()))
        blocks = spans.even(*graph.shape)
        for start, stop in blocks:
            part = graph if len(blocks) == 1 else graph.some(np.arange(start, stop))
            replay = part.replay(program)
            half = half_ulp(replay.values, form)
            noise = np.broadcast_to(replay.variance, half.shape)
            allowed = np.broadcast_to(replay.slack, half.shape)
            expected = Expectation(
                replay.values,
                half + allowed + DEVIATIONS * np.sqrt(noise),
                noise + (half**2 + allowed**2) / 3,
                FORMATS[form].unit_roundoff,
            )
            if test.is_per_row(name):
                expected = replace(
                    expected,
                    reference=expected.reference.T,
                    bound=expected.bound.T,
                    noise=expected.noise.T,
                )
                yield name, expected, EVERYTHING, slice(start, stop)
            else:
                yield name, expected, slice(start, stop), EVERYTHING


def _unbounded(expected: Expectation) -> Expectation:
    """Return the expectation with infinite bounds and variances in rows that aren't informative."""
    if expected.informative is None or expected.informative.all():
        return expected
    silent = ~expected.informative[:, None]
    return replace(
        expected,
        bound=np.where(silent, np.inf, expected.bound),
        noise=np.where(silent, np.inf, expected.noise),
    )
