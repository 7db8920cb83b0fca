"""The best reading of dgamma and dbeta: rows, tiles of rows or statistics of a column sum."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells, scales, sensors
from gonogo.exact.expected import Arrays, Expected
from gonogo.exact.expected_backward import backward
from gonogo.exact.readings import moments, place, statistics, tiles
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.reading import GOOD_SHARE, Reading, best, span_in_words
from gonogo.spec.regimes import TILE

if TYPE_CHECKING:
    from gonogo.spec.test_spec import TestSpec

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]

MAX_COLUMNS = 512
"""Columns that are wrong, and columns that are right, on which hypotheses are replayed."""

MAX_LINES = 256
"""Wrong statistics whose column sums are computed at once."""

EPSILONS = (
    ("epsilon is missing, or added outside of the root", 0.0),
    ("epsilon has a factor of 0.1", 0.1),
    ("epsilon has a factor of 10", 10.0),
    ("epsilon has a factor of 100", 100.0),
    ("epsilon has a factor of 1000", 1000.0),
)
"""Wrong epsilons and their factors. 1e-5, 1e-6, 1e-8 and 1e-12 are taken for one another. dx reads
any factor; a column sum adds rows with another variance, so that it tells a few apart."""


def read(
    test: TestSpec,
    inputs: Arrays,
    name: str,
    terms: Doubles,
    expectation: Expected,
    output: Floats,
    wrong: Flags,
) -> Reading:
    """Return the reading of a column sum (1, N), from its terms (rows, N)."""
    special = place.not_finite(output, wrong)
    if special is not None:
        return special
    words, some = place.tiles_in_words(wrong)
    inside = np.ones(output.shape[1], dtype=bool)
    if some:
        inside = np.isin(np.arange(output.shape[1]) // TILE, some)
    chosen = _columns(wrong[0] & inside, inside)
    elements = Elements(
        output[0, chosen],
        expectation.exact[0, chosen],
        expectation.allowance[0, chosen],
        test.numerics.output,
    )
    readings = [*_of_rows(name, terms[:, chosen], elements)]
    if name == "dgamma":
        readings = [*_of_statistics(test, inputs, chosen, elements), *readings]
    for step in (1, -1):
        shifted = np.roll(expectation.exact[0], step)[chosen]
        readings.append(
            Reading("columns", f"{name} is shifted by a column", elements.share(shifted))
        )
    readings += _factor(name, elements)
    reading = best(readings)
    if reading.share < GOOD_SHARE:
        guess = f"no single term explains it (closest, at {reading.share:.0%}: {reading.words})"
        return Reading("unknown", guess, reading.share, some).beside(words)
    places = reading.tiles or some
    return Reading(reading.term, reading.words, reading.share, places, reading.factor).beside(words)


def _columns(wrong: Flags, inside: Flags) -> NDArray[np.intp]:
    """Return columns to replay on, in order: wrong ones and right ones, evenly spread."""
    result = []
    for group in (np.flatnonzero(wrong), np.flatnonzero(inside & ~wrong)):
        step = max(1, -(-group.size // MAX_COLUMNS))
        result.append(group[::step])
    return np.sort(np.concatenate(result))


def _of_rows(name: str, terms: Doubles, elements: Elements) -> Iterator[Reading]:
    """Yield the hypotheses about rows, and those that need the terms alone."""
    total = elements.exact
    rows = len(terms)
    missing = tiles.missing(tiles.sums(np.ascontiguousarray(terms.T))) if rows > TILE else []
    for line in missing:
        words = f"{name} {line.words}".replace("tile", "row tile", 1)
        yield Reading("rows", words, elements.share(total - line.lost))
    for row in _closest_rows(terms, elements):
        words = f"row {row + 1} of {rows}"
        yield Reading("rows", f"{name} leaves out {words}", elements.share(total - terms[row]))
        yield Reading("rows", f"{name} adds {words} twice", elements.share(total + terms[row]))
    yield Reading("output", "the outputs are 0", elements.share(0 * total))
    yield Reading("sign", f"{name} has lost its sign", elements.share(-total))


def _of_statistics(
    test: TestSpec, inputs: Arrays, columns: NDArray[np.intp], elements: Elements
) -> Iterator[Reading]:
    """Yield the hypotheses about x^: a wrong mean, rstd or epsilon, or none at all."""
    rows = np.arange(test.rows)
    parts = backward(test, inputs, rows)
    dy, xhat = parts.dy[:, columns], parts.xhat[:, columns]
    yield Reading("xhat", "dgamma sums dy, without x^", elements.share(dy.sum(axis=0)))
    lines = statistics.hypotheses(test, parts, statistics.others(test, inputs, rows))
    if elements.fmt != "fp32":
        lines += [moments.stored(line, parts.mean, parts.rstd, elements.fmt) for line in lines]
    for start in range(0, len(lines), MAX_LINES):
        block = lines[start : start + MAX_LINES]
        sums = statistics.dgammas(block, dy, xhat)
        for line, value in zip(block, sums, strict=True):
            yield Reading(line.term, line.words, elements.share(value), line.tiles)
    if scales.has_epsilon_rows(test):
        for words, ratio in EPSILONS:
            other = backward(test, inputs, rows, test.epsilon * ratio)
            value = (dy * other.xhat[:, columns]).sum(axis=0)
            yield Reading("epsilon", words, elements.share(value), factor=ratio)


def _factor(name: str, elements: Elements) -> Iterator[Reading]:
    total = elements.exact
    low, high = cells.bounds(elements.output, elements.fmt)
    some = (total != 0) & np.isfinite(low) & np.isfinite(high)
    if some.any():
        room = elements.allowance
        first, second = (low - room)[some] / total[some], (high + room)[some] / total[some]
        ends = sensors.most_covered(np.minimum(first, second), np.maximum(first, second))
        words, factor = span_in_words(*ends)
        words = f"{name} has a factor of {words}"
        yield Reading("factor", words, elements.share(factor * total), factor=factor)


def _closest_rows(terms: Doubles, elements: Elements) -> list[int]:
    """Return the rows whose terms correlate best with the error: (at most 3)."""
    off = elements.output.astype(np.float64) - elements.exact
    off[~np.isfinite(off)] = 0.0
    size = np.sqrt((terms**2).sum(axis=1)) + 1e-300
    match = np.abs(terms @ off) / size
    return [int(row) for row in np.argsort(-match, kind="stable")[:3]]
