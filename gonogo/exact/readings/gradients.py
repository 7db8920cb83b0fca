"""The best reading of dx: s1, s2, gamma, the statistics, epsilon, or a place.

dx = r (P - s1 - x^ s2). Where P = s1 + s2 x^, a right dx is 0: these are the zero sensors, and
there every wrong sum or statistic makes a line r (d1 + d2 x^), see `sums`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells, expected, scales, sensors
from gonogo.exact.expected_backward import Backward, backward, gradient
from gonogo.exact.readings import moments, place, statistics, sums
from gonogo.exact.readings.columns import SHIFTS
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.moments import readings_share
from gonogo.exact.readings.reading import (
    GOOD_SHARE,
    Reading,
    best,
    rows_in_words,
    span_in_words,
)
from gonogo.exact.readings.sums import WrongSums
from gonogo.spec.regimes import TILE

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Indices = NDArray[np.intp]
Flags = NDArray[np.bool_]

MAX_ROWS = 48
MAX_ELEMENTS = 2**17
MAX_REPLAYS = 24

PARTIAL = 2.0**-9
"""Partial sums of a lane are read as TF32, which cuts 2^-10 of each, and s1 is once more."""

CONSISTENT = 0.99
"""The share of elements that must lie on the line d1 + d2 x^ of their row."""


def read(test: TestSpec, inputs: expected.Arrays, output: Floats, wrong: Flags) -> Reading:
    """Return the reading of dx (rows, N); wrong: the elements beyond their allowance."""
    kind = scales.layout(test).kind
    wrong = _beyond_partial_sums(test, inputs, output, wrong)
    bad_rows = np.flatnonzero(wrong.any(axis=1))
    special = place.not_finite(output, wrong) or place.copied(output, bad_rows)
    if special is not None:
        return special.beside(rows_in_words(list(bad_rows), test.rows))
    about_epsilon = bad_rows[kind[bad_rows] == scales.EPSILON][:MAX_ROWS]
    epsilon = None
    if about_epsilon.size:
        epsilon = statistics.epsilon(test, inputs, output, about_epsilon)
    if epsilon is not None and (kind[bad_rows] == scales.EPSILON).all():
        words = "epsilon is wrong: dx differs only where the variance is about epsilon"
        return best([epsilon, Reading("epsilon", words, GOOD_SHARE)])
    kinds: tuple[int, ...] = (scales.EXACT, scales.ROUGH)
    if not np.isin(kind[bad_rows], kinds).any():
        kinds = (scales.WIDE,)
    exact_rows = bad_rows[np.isin(kind[bad_rows], kinds)]
    rows, few = exact_rows[:MAX_ROWS], max(8, MAX_ELEMENTS // test.features)
    parts, some = backward(test, inputs, rows), backward(test, inputs, rows[:few])
    if kinds == (scales.WIDE,):
        some, _ = _partial(test, some, output[rows[:few]])
    seen = _sensed(test, parts, output[rows])
    elements = Elements.of(output[rows[:few]], some.dx, test.numerics.output)
    lines = _wrong_sums(test, inputs, parts, rows)
    if epsilon is not None:
        lines = [*statistics.of_epsilon(epsilon, parts, test.epsilon), *lines]
    vernier = np.flatnonzero(kind == scales.WIDE)[:few]
    signals = _signals(test, inputs, output, vernier) if vernier.size else None
    lines += sums.general(parts, seen, signals)
    readings = [
        *_of_elements(some, elements, seen),
        *_replayed(lines, parts, some, seen, elements),
    ]
    reading = best(readings)
    where = rows_in_words(list(exact_rows), int(np.isin(kind, kinds).sum()))
    if reading.share < GOOD_SHARE:
        guess = f"no single term explains it (closest, at {reading.share:.0%}: {reading.words})"
        return Reading("unknown", guess, reading.share).beside(where)
    return reading.beside(where)


def _beyond_partial_sums(
    test: TestSpec, inputs: expected.Arrays, output: Floats, wrong: Flags
) -> Flags:
    """Return the wrong elements without those that coarse partial sums explain, if any is left."""
    vernier = scales.layout(test).kind == scales.WIDE
    rows = np.flatnonzero(wrong.any(axis=1) & vernier)
    left = wrong.copy()
    if rows.size:
        parts, _ = _partial(test, backward(test, inputs, rows), output[rows])
        left[rows] = wrong[rows] & Elements.of(output[rows], parts.dx, test.numerics.output).wrong
    return left if left.any() else wrong


def is_partial(test: TestSpec, inputs: expected.Arrays, output: Floats, rows: Indices) -> bool:
    """Return whether vernier rows are off as coarse partial sums make them, and no other way."""
    parts, fits = _partial(test, backward(test, inputs, rows), output[rows])
    elements = Elements.of(output[rows], parts.dx, test.numerics.output)
    return bool(fits.all() and elements.wrong.mean() <= 1 - CONSISTENT)


def _partial(test: TestSpec, parts: Backward, output: Floats) -> tuple[Backward, Flags]:
    """Return vernier rows with the dx that coarse partial sums make, and which rows fit, (rows,).

    Such a row is off by r (d1 + d2 x^) in all its elements, with d1 and d2 within PARTIAL of the
    mean of |P| and of |P x^|. A factor on dx is no such line: P has both signs at the same x^.
    Rows that don't fit are unchanged.
    """
    seen = _read(test, parts, output, np.ones(parts.xhat.shape, dtype=bool))
    least = PARTIAL * np.abs(parts.product).mean(axis=1) * parts.is_centered
    most = PARTIAL * np.abs(parts.product * parts.xhat).mean(axis=1)
    fits = (seen.offset.away(0.0) <= least) & (seen.factor.away(0.0) <= most)
    return replace(parts, dx=_moved(parts, seen, fits)), fits


def _moved(parts: Backward, seen: sensors.Readings, moves: Flags) -> expected.Expected:
    """Return dx off by the line that the sensors read, in the rows that move, within its width."""
    some = len(parts.rstd)
    offset, factor = seen.offset, seen.factor
    line = offset.middle[:some, None] + factor.middle[:some, None] * parts.xhat
    width = (offset.high - offset.low)[:some, None]
    width = width + (factor.high - factor.low)[:some, None] * np.abs(parts.xhat)
    r = np.where(moves, parts.rstd, 0.0)[:, None]
    dx = parts.dx
    return expected.Expected(dx.exact + r * line, dx.allowance + r * width, dx.strict)


def _sensed(test: TestSpec, parts: Backward, output: Floats) -> sensors.Readings:
    """Return the line d1 + d2 x^ of each row from its zero sensors; without any, from all."""
    zero = parts.dx.exact == 0
    zero[~zero.any(axis=1)] = True
    return _read(test, parts, output, zero)


def _read(test: TestSpec, parts: Backward, output: Floats, senses: Flags) -> sensors.Readings:
    low, high = cells.bounds(output, test.numerics.output)
    room = parts.dx.allowance
    r = np.where(senses, parts.rstd[:, None], 0.0)
    return sensors.read(low - room, high + room, r, parts.xhat, parts.dx.exact)


def _signals(
    test: TestSpec, inputs: expected.Arrays, output: Floats, rows: Indices
) -> tuple[Backward, Elements]:
    """Return the parts of vernier rows, and their elements that aren't zero sensors."""
    parts = backward(test, inputs, rows)
    signal = parts.dx.exact != 0
    dx = _partial(test, parts, output[rows])[0].dx
    flat = expected.Expected(dx.exact[signal], dx.allowance[signal], dx.strict[signal])
    return parts, Elements.of(output[rows][signal], flat, test.numerics.output)


def _wrong_sums(
    test: TestSpec, inputs: expected.Arrays, parts: Backward, rows: Indices
) -> list[WrongSums]:
    """Return the wrong sums and statistics that have a name, exact and stored in 16 bits."""
    stale = statistics.others(test, inputs, rows)
    fmt = test.numerics.output
    lines = list(sums.specific(parts, stale))
    wrong = statistics.hypotheses(test, parts, stale)
    lines += [line.read_as_tf32() for line in lines]
    if fmt != "fp32":
        lines += [line.stored(fmt) for line in lines]
        wrong += [moments.stored(line, parts.mean, parts.rstd, fmt) for line in wrong]
    return lines + [statistics.as_sums(line, parts) for line in wrong]


def _replayed(
    lines: list[WrongSums],
    parts: Backward,
    some: Backward,
    seen: sensors.Readings,
    elements: Elements,
) -> Iterator[Reading]:
    """Yield the hypotheses about sums that fit the sensors best, replayed on some rows."""
    scored = [(line, readings_share(seen, *line.line(parts), right=0.0)) for line in lines]
    scored = [(line, share) for line, share in scored if share > 0]
    least = sorted((share for _, share in scored), reverse=True)[:MAX_REPLAYS][-1:]
    for line, share in scored:
        if share >= least[0]:
            total = min(share, elements.share(line.gradient(some)))
            yield Reading(line.term, line.words, total, line.tiles, line.factor, line.vague)


def _of_elements(parts: Backward, elements: Elements, seen: sensors.Readings) -> Iterator[Reading]:
    """Yield the hypotheses that need every element: gamma, a factor on dx, zeros."""
    line = _moved(parts, seen, np.ones(len(parts.rstd), dtype=bool))
    apart = elements.distance(line.exact) > line.allowance
    words, some_tiles = place.tiles_in_words(apart)
    inside = np.isin(np.arange(parts.gamma.size) // TILE, some_tiles)
    for sentence, gamma in _wrong_gammas(parts.gamma):
        value = gradient(parts, parts.dy * gamma)
        yield Reading("gamma", sentence, elements.share(value))
        if some_tiles:
            value = gradient(parts, parts.dy * np.where(inside, gamma, parts.gamma))
            reading = Reading("gamma", sentence, elements.share(value), some_tiles)
            yield reading.beside(words)
    yield Reading("output", "the outputs are 0", elements.share(0 * parts.dx.exact))
    r = parts.rstd[:, None]
    for words, value in (("left out", parts.dx.exact / r), ("applied twice", parts.dx.exact * r)):
        yield Reading("rstd", f"the outer rstd is {words}", elements.share(value))
    ends = cells.bounds(elements.output, elements.fmt)
    exact = elements.exact
    some = (exact != 0) & np.isfinite(ends[0]) & np.isfinite(ends[1])
    low, high = ends[0] - elements.allowance, ends[1] + elements.allowance
    if some.any():
        first, second = low[some] / exact[some], high[some] / exact[some]
        span = sensors.most_covered(np.minimum(first, second), np.maximum(first, second))
        words, factor = span_in_words(*span)
        words = f"dx has a factor of {words}: rstd, or gamma"
        yield Reading("factor", words, elements.share(factor * exact), factor=factor)


def _wrong_gammas(gamma: Doubles) -> Iterator[tuple[str, Doubles]]:
    yield "gamma is missing", np.ones_like(gamma)
    yield "gamma is applied twice", gamma**2
    yield "gamma has lost its sign", np.abs(gamma)
    for step, words in SHIFTS:
        if abs(step) < gamma.size:
            yield f"gamma is read {words}", np.roll(gamma, step)
