"""The best reading of dgamma and dbeta: rows or tiles of rows that a column sum leaves out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from gonogo.exact import cells, sensors
from gonogo.exact.expected import Expected
from gonogo.exact.readings import place, tiles
from gonogo.exact.readings.elements import Elements
from gonogo.exact.readings.reading import GOOD_SHARE, Reading, best, span_in_words
from gonogo.spec.regimes import TILE

Doubles = NDArray[np.float64]
Floats = NDArray[np.float32]


def read(
    name: str,
    terms: Doubles,
    dy: Doubles,
    expectation: Expected,
    output: Floats,
    wrong: NDArray[np.bool_],
    fmt: str,
    others: Sequence[tuple[str, str, Doubles]] = (),
) -> Reading:
    """Return the reading of a column sum (1, N), from its terms and dy (rows, N).

    others: further hypotheses, each with its term, its words and the sum that it gives, (1, N).
    """
    special = place.not_finite(output, wrong)
    if special is not None:
        return special
    words, some = place.tiles_in_words(wrong)
    chosen = np.ones(output.shape[1], dtype=bool)
    if some:
        chosen = np.isin(np.arange(output.shape[1]) // TILE, some)
    elements = Elements(
        output[:, chosen],
        expectation.exact[:, chosen],
        np.arange(int(chosen.sum()))[None, :],
        expectation.exact[:, chosen],
        expectation.allowance[:, chosen],
        fmt,
    )
    lines = _hypotheses(name, terms[:, chosen], dy[:, chosen], elements)
    readings = [
        Reading(term, sentence, elements.share(value[:, chosen]))
        for term, sentence, value in others
    ]
    readings += [
        Reading(term, sentence, elements.share(value), factor=factor)
        for term, sentence, value, factor in lines
    ]
    reading = best(readings)
    if reading.share < GOOD_SHARE:
        guess = f"no single term explains it (closest, at {reading.share:.0%}: {reading.words})"
        return Reading("unknown", guess, reading.share, some).beside(words)
    return Reading(reading.term, reading.words, reading.share, some, reading.factor).beside(words)


def _hypotheses(
    name: str, terms: Doubles, dy: Doubles, elements: Elements
) -> Iterator[tuple[str, str, Doubles, float | None]]:
    total = elements.exact
    rows = len(terms)
    missing = tiles.missing(tiles.sums(np.ascontiguousarray(terms.T))) if rows > 32 else []
    for line in missing:
        words = f"{name} {line.words}".replace("tile", "row tile", 1)
        yield "rows", words, total - line.lost[None], None
    nearest = _closest_rows(terms, elements)
    for row in nearest:
        yield "rows", f"{name} leaves out row {row + 1} of {rows}", total - terms[row], None
        yield "rows", f"{name} adds row {row + 1} of {rows} twice", total + terms[row], None
    yield "output", "the outputs are 0", 0 * total, None
    yield "sign", f"{name} has lost its sign", -total, None
    if name == "dgamma":
        yield "xhat", "dgamma sums dy, without x^", dy.sum(axis=0)[None], None
    for step in (1, -1):
        yield "columns", f"{name} is shifted by a column", np.roll(total, step, axis=1), None
    low, high = cells.bounds(elements.output, elements.fmt)
    some = (total != 0) & np.isfinite(low) & np.isfinite(high)
    if some.any():
        room = elements.allowance
        first, second = (low - room)[some] / total[some], (high + room)[some] / total[some]
        ends = sensors.most_covered(np.minimum(first, second), np.maximum(first, second))
        words, factor = span_in_words(*ends)
        words = f"{name} has a factor of {words}"
        yield "factor", words, factor * total, factor


def _closest_rows(terms: Doubles, elements: Elements) -> list[int]:
    """Return the rows whose terms correlate best with the error: (at most 3)."""
    off = elements.output.astype(np.float64) - elements.exact
    size = np.sqrt((terms**2).sum(axis=1)) + 1e-300
    match = np.abs(terms @ off[0]) / size
    return [int(row) for row in np.argsort(-match, kind="stable")[:3]]
