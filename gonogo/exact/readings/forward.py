"""The best reading of a forward kernel's y: gamma, beta, mean, variance, epsilon, or a place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells, expected, scales, sensors
from gonogo.exact.readings import columns, lags, moments, place
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.reading import (
    GOOD_SHARE,
    STORED_TIE,
    TIE,
    Reading,
    best,
    factor_in_words,
    rows_in_words,
)
from gonogo.spec.regimes import TILE

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Indices = NDArray[np.intp]

MAX_ROWS = 48
"""Rows that are read; more would say the same. 48 rows tell thousands of tiles apart."""

MAX_ELEMENTS = 2**17
"""Elements on which hypotheses are replayed."""

CLOSE = 0.05
"""Hypotheses about rows whose share of the readings is so close to the best one's are replayed."""

MAX_REPLAYS = 24
"""Hypotheses about rows that are replayed."""

CONSISTENT = 0.98
"""Where a smaller share of a row's elements agrees with one factor and offset, x^ or rstd is stored
in 16 bits: then a specific term is preferred to a factor that fits a little better."""


def read(test: TestSpec, inputs: expected.Arrays, output: Floats, wrong: Flags) -> Reading:
    """Return the reading of y (rows, N).

    wrong: the elements whose exact value is outside of their cell by more than the allowance.
    """
    kind = scales.layout(test).kind
    bad_rows = np.flatnonzero(wrong.any(axis=1))
    special = place.not_finite(output, wrong) or place.copied(output, bad_rows)
    if special is not None:
        judged = int((kind != scales.ALL_BITS).sum())
        return special.beside(rows_in_words(list(bad_rows), judged))
    exact = np.isin(kind, (scales.EXACT, scales.WIDE, scales.ROUGH))
    exact_rows = bad_rows[exact[bad_rows]]
    if exact_rows.size == 0:
        return _epsilon(test, inputs, output, bad_rows[:MAX_ROWS])
    words, some_tiles = place.tiles_in_words(wrong[exact_rows])
    few = max(4, MAX_ELEMENTS // test.features)
    epsilon_rows = bad_rows[kind[bad_rows] == scales.EPSILON][:MAX_ROWS]
    by_columns = _columns(test, inputs, output, exact_rows[:few], some_tiles)
    by_rows, tie = _moments(test, inputs, output, exact_rows[:MAX_ROWS], few, epsilon_rows)
    reading = best([*by_columns, *by_rows], tie)
    everywhere = rows_in_words(list(exact_rows), int(exact.sum()))
    where = ", ".join(part for part in (words, everywhere) if part)
    if reading.share < GOOD_SHARE:
        guess = f"no single term explains it (closest, at {reading.share:.0%}: {reading.words})"
        return Reading("unknown", guess, reading.share, some_tiles).beside(where)
    return replace(reading, tiles=reading.tiles or some_tiles).beside(where)


def _columns(
    test: TestSpec,
    inputs: expected.Arrays,
    output: Floats,
    rows: Indices,
    some_tiles: tuple[int, ...],
) -> list[Reading]:
    chosen = np.ones(output.shape[1], dtype=bool)
    if some_tiles:
        chosen = np.isin(np.arange(output.shape[1]) // TILE, some_tiles)
    parts = expected.forward(test, inputs, rows)
    gamma = np.asarray(inputs["gamma"], np.float64).reshape(-1)
    beta = np.asarray(inputs["beta"], np.float64).reshape(-1) if "beta" in inputs else None
    index = expected.channels(test)
    index = np.broadcast_to(index[rows] if len(index) > 1 else index, parts.x.shape)
    elements = Elements(
        output[rows][:, chosen],
        parts.y.exact[:, chosen],
        parts.y.allowance[:, chosen],
        test.numerics.output,
    )
    return columns.readings(elements, parts.xhat[:, chosen], index[:, chosen], gamma, beta)


def _sensed(
    test: TestSpec, parts: expected.Forward, output: Floats, rows: Indices
) -> sensors.Readings:
    low, high = cells.bounds(output[rows], test.numerics.output)
    room = parts.y.allowance
    return sensors.read(low - room, high + room, parts.gamma, parts.xhat, parts.beta)


def _moments(
    test: TestSpec,
    inputs: expected.Arrays,
    output: Floats,
    rows: Indices,
    few: int,
    epsilon_rows: Indices,
) -> tuple[list[Reading], float]:
    """Return the hypotheses about rows that fit the sensors best, replayed on a few rows.

    The second result is the difference in share below which two are equal.
    """
    parts = expected.forward(test, inputs, rows)
    other_mean, other_rstd = {}, {}
    for lag in lags.LAGS:
        sources, exist = lags.sources(rows, lag, test.rows)
        other = expected.forward(test, inputs, sources)
        other_mean[lag] = np.where(exist, other.mean, np.nan)
        other_rstd[lag] = np.where(exist, other.rstd, np.nan)
    stats = moments.Statistics(
        parts.x,
        parts.xhat,
        parts.mean,
        parts.rstd,
        other_mean,
        other_rstd,
        scales.is_centered(test),
    )
    seen = _sensed(test, parts, output, rows)
    known = _epsilons(test, inputs, output, epsilon_rows, parts) if epsilon_rows.size else []
    lines = moments.hypotheses(seen, stats, test.numerics.output, known)
    if not lines:
        return [], TIE
    stored = float(np.median(seen.share)) < CONSISTENT
    most = max(share for _, share in lines)
    enough = max(
        most - CLOSE, sorted((share for _, share in lines), reverse=True)[:MAX_REPLAYS][-1]
    )
    near = [(line, share) for line, share in lines if share >= enough]
    some = expected.forward(test, inputs, rows[:few])
    elements = Elements.of(output[rows[:few]], some.y, test.numerics.output)
    result = []
    for line, share in near:
        xhat = line.factor[:few, None] * some.xhat + line.offset[:few, None]
        replayed = elements.share(some.gamma * xhat + some.beta)
        constant = np.ptp(line.factor) < 1e-12 and line.factor[0] != 1
        factor = float(line.factor[0]) if constant else None
        total = share if stored else min(share, replayed)
        result.append(Reading(line.term, line.words, total, line.tiles, factor, line.vague))
    return result, STORED_TIE if stored else TIE


def _epsilons(
    test: TestSpec,
    inputs: expected.Arrays,
    output: Floats,
    rows: Indices,
    parts: expected.Forward,
) -> list[moments.Hypothesis]:
    """Return the wrong epsilon of rows about epsilon as a hypothesis about exact rows.

    A much larger epsilon isn't absorbed by their variance: in fp32 it shows there, too.
    """
    reading = _epsilon(test, inputs, output, rows)
    if reading.factor is None:
        return []
    total = 1 / parts.rstd**2
    factor = np.sqrt(total / (total + (reading.factor - 1) * test.epsilon))
    return [moments.Hypothesis("epsilon", reading.words, factor, np.zeros_like(factor))]


def _epsilon(test: TestSpec, inputs: expected.Arrays, output: Floats, rows: Indices) -> Reading:
    """Return the epsilon that rows about epsilon show, where all exact rows are right."""
    parts = expected.forward(test, inputs, rows)
    sensed = _sensed(test, parts, output, rows)
    factor = sensed.factor.middle
    variance = 1 / parts.rstd**2 - test.epsilon
    with np.errstate(divide="ignore", invalid="ignore"):
        used = (variance + test.epsilon) / factor**2 - variance
    ratio = float(np.median(used)) / test.epsilon
    share = float(np.median(sensed.share))
    outside = 1 / (np.sqrt(variance) + test.epsilon) / parts.rstd
    if (2 * expected.STORED * np.sqrt(variance) < test.epsilon).all() and np.allclose(
        factor, outside, rtol=expected.STORED
    ):
        return Reading("epsilon", "epsilon is added outside of the root", share)
    if abs(ratio) < 0.05:
        words = "epsilon is missing, or added outside of the root"
        return Reading("epsilon", words, share, factor=0.0)
    words = f"epsilon has a factor of {factor_in_words(ratio)}"
    return Reading("epsilon", words, share, factor=ratio)
