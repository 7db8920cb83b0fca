"""The best reading of dx: s1, s2, gamma, rstd, or a place.

dx = r (P - s1 - x^ s2). A kernel that uses s1' and s2' is off by r (d1 + d2 x^), with d1 = s1 - s1'
and d2 = s2 - s2': the sensors of a row read d1 as an offset, and d2 as a factor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells, expected, scales, sensors
from gonogo.exact.expected_backward import EPSILONS, Backward, backward
from gonogo.exact.readings import place, tiles
from gonogo.exact.readings.columns import SHIFTS
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.moments import LAGS, Hypothesis, readings_share
from gonogo.exact.readings.reading import (
    GOOD_SHARE,
    Reading,
    best,
    factor_in_words,
    rows_in_words,
    span_in_words,
)
from gonogo.numerics.formats import round_to
from gonogo.spec.regimes import TILE

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Indices = NDArray[np.intp]

MAX_ROWS = 48
MAX_ELEMENTS = 2**17
MAX_REPLAYS = 24

PARTIAL = 2.0**-9
"""Partial sums of a lane are read as TF32, which cuts 2^-10 of each, and s1 is once more."""

CONSISTENT = 0.99
"""The share of elements that must lie on the line d1 + d2 x^ of their row."""


def read(
    test: TestSpec, inputs: expected.Arrays, output: Floats, wrong: NDArray[np.bool_]
) -> Reading:
    """Return the reading of dx (rows, N); wrong: the elements beyond their allowance."""
    bad_rows = np.flatnonzero(wrong.any(axis=1))
    special = place.not_finite(output, wrong) or place.copied(output, bad_rows)
    if special is not None:
        return special.beside(rows_in_words(list(bad_rows), test.rows))
    kind = scales.layout(test).kind
    if (kind[bad_rows] == scales.EPSILON).all():
        guesses = [*_epsilons(test, inputs, output, bad_rows[:MAX_ROWS])]
        words = "epsilon is wrong: dx differs only where the variance is about epsilon"
        reading = best([*guesses, Reading("epsilon", words, GOOD_SHARE)])
        return reading
    kinds: tuple[int, ...] = (scales.EXACT, scales.ROUGH)
    if not np.isin(kind[bad_rows], kinds).any():
        kinds = (scales.WIDE,)
    exact_rows = bad_rows[np.isin(kind[bad_rows], kinds)]
    where = rows_in_words(list(exact_rows), int(np.isin(kind, kinds).sum()))
    rows = exact_rows[:MAX_ROWS]
    some_rows = max(8, MAX_ELEMENTS // test.features)
    parts, some = backward(test, inputs, rows), backward(test, inputs, rows[:some_rows])
    elements = _elements_of(test, some, output[rows[:some_rows]])
    earlier = {lag: backward(test, inputs, np.maximum(rows - lag, 0)) for lag in LAGS}
    readings = [
        *_elements(some, elements),
        *_epsilons(test, inputs, output, bad_rows[:some_rows]),
        *_sums(test, parts, some, output[rows], elements, earlier, rows),
    ]
    reading = best(readings)
    if reading.share < GOOD_SHARE:
        guess = f"no single term explains it (closest, at {reading.share:.0%}: {reading.words})"
        return Reading("unknown", guess, reading.share).beside(where)
    return reading.beside(where)


def is_partial(test: TestSpec, inputs: expected.Arrays, output: Floats, rows: Indices) -> bool:
    """Return whether vernier rows are off as coarse partial sums make them, and no other way.

    Each row must be off by r (d1 + d2 x^) in all its elements, with d1 and d2 within PARTIAL of the
    mean of |P| and of |P x^|. A factor on dx is no such line: P has both signs at the same x^.
    """
    parts = backward(test, inputs, rows)
    seen = _sensed(test, parts, output[rows])
    least = PARTIAL * np.abs(parts.product).mean(axis=1)
    most = PARTIAL * np.abs(parts.product * parts.xhat).mean(axis=1)
    fits = (seen.offset.away(0.0) <= least) & (seen.factor.away(0.0) <= most)
    line = seen.offset.middle[:, None] + seen.factor.middle[:, None] * parts.xhat
    width = (seen.offset.high - seen.offset.low)[:, None]
    width = width + (seen.factor.high - seen.factor.low)[:, None] * np.abs(parts.xhat)
    r = parts.rstd[:, None]
    outside = cells.distance(output[rows], parts.dx.exact + r * line, test.numerics.output)
    agree = outside <= parts.dx.allowance + r * width
    return bool(fits.all() and agree.mean() >= CONSISTENT)


def _sensed(test: TestSpec, parts: Backward, output: Floats) -> sensors.Readings:
    low, high = cells.bounds(output, test.numerics.output)
    room = parts.dx.allowance
    r = np.broadcast_to(parts.rstd[:, None], low.shape)
    return sensors.read(low - room, high + room, r, parts.xhat, parts.dx.exact)


def _elements_of(test: TestSpec, parts: Backward, output: Floats) -> Elements:
    index = np.arange(test.features)[None, :]
    exact, room = parts.dx.exact, parts.dx.allowance
    return Elements(output, parts.xhat, index, exact, room, test.numerics.output)


def _epsilons(
    test: TestSpec, inputs: expected.Arrays, output: Floats, rows: Indices
) -> Iterator[Reading]:
    """Yield the hypotheses about epsilon, where the kernel computes rstd itself."""
    if not scales.has_epsilon_rows(test):
        return
    elements = _elements_of(test, backward(test, inputs, rows), output[rows])
    for words, ratio in EPSILONS:
        other = backward(test, inputs, rows, test.epsilon * ratio)
        share = elements.share(other.dx.exact)
        yield Reading("epsilon", words, share, factor=ratio)


def _sums(
    test: TestSpec,
    parts: Backward,
    some: Backward,
    output: Floats,
    elements: Elements,
    earlier: dict[int, Backward],
    rows: Indices,
) -> Iterator[Reading]:
    """Yield the hypotheses about s1 and s2 that fit the sensors best, replayed on some rows."""
    seen = _sensed(test, parts, output)
    named = [*_specific(parts, earlier, rows)]
    if test.numerics.output != "fp32":
        named += [_stored(line, parts, test.numerics.output) for line in named]
    lines = [*named, *_general(parts, seen)]
    scored = [(line, readings_share(seen, line, 0.0)) for line in lines]
    scored = [(line, share) for line, share in scored if np.isfinite(share)]
    top = sorted((share for _, share in scored), reverse=True)[:MAX_REPLAYS]
    few = len(some.s1)
    for line, share in scored:
        if share >= top[-1] and share > 0:
            off = line.offset[:few, None] + line.factor[:few, None] * some.xhat
            replayed = elements.share(some.dx.exact + some.rstd[:, None] * off)
            total = min(share, replayed)
            yield Reading(line.term, line.words, total, line.tiles, vague=line.vague)


def _stored(line: Hypothesis, parts: Backward, fmt: str) -> Hypothesis:
    """Return the hypothesis with its s1 and s2 rounded to `fmt`."""
    s1 = round_to(parts.s1 - line.offset, fmt).astype(np.float64)
    s2 = round_to(parts.s2 - line.factor, fmt).astype(np.float64)
    return replace(line, offset=parts.s1 - s1, factor=parts.s2 - s2)


def _specific(parts: Backward, earlier: dict[int, Backward], rows: Indices) -> Iterator[Hypothesis]:
    zero = np.zeros_like(parts.s1)
    count = parts.xhat.shape[1]
    padded = -(-count // TILE) * TILE
    for name, value in (("s1", parts.s1), ("s2", parts.s2)):

        def off(error: Doubles, name: str = name) -> tuple[Doubles, Doubles]:
            return (zero, error) if name == "s1" else (error, zero)

        yield Hypothesis(name, f"{name} is not subtracted", *off(value))
        yield Hypothesis(name, f"{name} is subtracted twice", *off(-value))
        yield Hypothesis(name, f"{name} is added", *off(2 * value))
        terms = parts.product if name == "s1" else parts.product * parts.xhat
        for line in tiles.missing(tiles.sums(terms)):
            yield Hypothesis(name, f"{name} {line.words}", *off(line.lost / count), line.tiles)
        if count > 1:
            words = f"{name} divides by N - 1"
            yield Hypothesis(name, words, *off(value * (1 - count / (count - 1))))
        if padded != count:
            words = f"{name} divides by {padded} instead of {count}"
            yield Hypothesis(name, words, *off(value * (1 - count / padded)))
        for lag in LAGS:
            old = earlier[lag].s1 if name == "s1" else earlier[lag].s2
            old = np.where(rows >= lag, old, np.nan)
            back = "the previous row" if lag == 1 else f"the row {lag} before"
            yield Hypothesis("stale row", f"{name} is that of {back}", *off(value - old))
    yield Hypothesis("s1 and s2", "neither s1 nor s2 is subtracted", parts.s2, parts.s1)
    lost = [tiles.missing(tiles.sums(parts.product * at)) for at in (1.0, parts.xhat)]
    for one, two in zip(*lost, strict=True):
        words = f"s1 and s2 {one.words}".replace("leaves", "leave").replace("sums", "sum")
        yield Hypothesis("s1 and s2", words, two.lost / count, one.lost / count, one.tiles)
    raw = parts.mean * parts.rstd  # x^ without the mean: x^ + raw, and s2 + raw s1
    yield Hypothesis("mean", "the mean is not subtracted in s2 alone", -raw * parts.s1, zero)


def _general(parts: Backward, seen: sensors.Readings) -> Iterator[Hypothesis]:
    zero = np.zeros_like(parts.s1)
    for name, value, read in (
        ("s1", parts.s1, seen.offset.middle),
        ("s2", parts.s2, seen.factor.middle),
    ):
        some = value != 0
        if some.any():
            part = float(np.median(read[some] / value[some]))
            words = f"{name} has a factor of {factor_in_words(1 - part)}"
            pair = (zero, part * value) if name == "s1" else (part * value, zero)
            yield Hypothesis(name, words, *pair)
    yield Hypothesis(
        "s1", "s1 is wrong, by another amount in each row", zero, seen.offset.middle, vague=True
    )
    yield Hypothesis(
        "s2", "s2 is wrong, by another amount in each row", seen.factor.middle, zero, vague=True
    )
    both = seen.factor.middle, seen.offset.middle
    yield Hypothesis(
        "s1 and s2", "s1 and s2 are wrong, by another amount in each row", *both, vague=True
    )


def _elements(parts: Backward, elements: Elements) -> Iterator[Reading]:
    """Yield the hypotheses that need every element: gamma, the mean, a factor on dx."""
    gamma = parts.gamma
    others = [("gamma is missing", np.ones_like(gamma)), ("gamma is applied twice", gamma**2)]
    others += [
        (f"gamma is read {words}", np.roll(gamma, step))
        for step, words in SHIFTS
        if abs(step) < gamma.size
    ]
    for words, other in others:
        value = _gradient(parts, parts.dy * other, parts.xhat)
        yield Reading("gamma", words, elements.share(value))
    raw = parts.xhat + (parts.mean * parts.rstd)[:, None]
    yield Reading(
        "mean",
        "the mean is not subtracted",
        elements.share(_gradient(parts, parts.product, raw)),
    )
    yield Reading("output", "the outputs are 0", elements.share(0 * parts.dx.exact))
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


def _gradient(parts: Backward, product: Doubles, xhat: Doubles) -> Doubles:
    s1 = product.mean(axis=1, keepdims=True)
    s2 = (product * xhat).mean(axis=1, keepdims=True)
    result: Doubles = parts.rstd[:, None] * (product - s1 - xhat * s2)
    return result
