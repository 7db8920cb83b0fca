"""Wrong means, variances and factors: hypotheses about the factor and offset of each row.

With the true statistics, x^ = (x - m) r. A kernel that uses m' and r' makes f x^ + t, where
f = r' / r and t = (m - m') r'.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gonogo.exact.readings import lags, tiles
from gonogo.exact.readings.reading import factor_in_words, span_in_words
from gonogo.exact.sensors import Distance, Readings, most_covered
from gonogo.numerics.formats import round_to
from gonogo.spec.regimes import TILE

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Statistics:
    """The true statistics of the rows that were read; all (rows,) but x and xhat (rows, N)."""

    x: Doubles
    xhat: Doubles
    mean: Doubles
    rstd: Doubles
    other_mean: dict[int, Doubles]
    """By lag: the mean of the row so many rows before; NaN where there is none."""
    other_rstd: dict[int, Doubles]
    centered: bool
    """False for RMSNorm."""


@dataclass(frozen=True)
class Hypothesis:
    """A wrong logic, with the factor and offset that it gives each row."""

    term: str
    words: str
    factor: Doubles
    offset: Doubles
    tiles: tuple[int, ...] = ()
    vague: bool = False


def hypotheses(
    seen: Readings, stats: Statistics, fmt: str, known: Sequence[Hypothesis] = ()
) -> list[tuple[Hypothesis, float]]:
    """Return every hypothesis with the share of the readings that it explains.

    `known` ones come first, then the specific ones, then these with a mean and rstd that are stored
    in the output's format `fmt`, then the general ones.
    """
    named = [*known, *specific(stats)]
    if fmt != "fp32":
        named += [stored(line, stats.mean, stats.rstd, fmt) for line in named]
    lines = [*named, *_general(seen, stats)]
    scored = [(line, readings_share(seen, line.offset, line.factor)) for line in lines]
    return [(line, share) for line, share in scored if np.isfinite(share)]


def stored(line: Hypothesis, mean: Doubles, rstd: Doubles, fmt: str) -> Hypothesis:
    """Return the hypothesis with its statistics rounded to `fmt`; mean, rstd: the right ones."""
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong_mean = round_to(mean - line.offset / (line.factor * rstd), fmt).astype(np.float64)
        wrong_rstd = round_to(line.factor * rstd, fmt).astype(np.float64)
        offset = (mean - wrong_mean) * wrong_rstd
    return replace(line, factor=wrong_rstd / rstd, offset=offset)


def readings_share(
    seen: Readings, offset: Doubles, factor: Doubles, *, right: float = 1.0
) -> float:
    """Return the share of the squared readings that an offset and a factor explain, at least 0.

    offset, factor: those of a hypothesis, (rows,). right: the factor of a right kernel. NaN where
    the hypothesis is undefined in most rows. f and t weigh the same: x^ has a mean square of 1. A
    row whose reading is huge counts as much as the typical one, so that it doesn't outweigh all
    others.
    """
    distance = seen.distance(right)
    rest = seen.away(offset, factor)
    known = np.isfinite(rest) & distance.wrong
    count = int(np.count_nonzero(known))
    if count * 2 < distance.weights.size or count == 0:
        return float("nan")
    if count < distance.weights.size:
        distance = Distance.of(distance.squares, known)
    return float(max(0.0, 1 - (rest[known] * distance.weights).sum() / distance.total))


def specific(stats: Statistics) -> Iterator[Hypothesis]:
    """Yield the wrong statistics that have a name."""
    one, zero = np.ones_like(stats.rstd), np.zeros_like(stats.rstd)
    count = stats.x.shape[1]
    scaled = stats.x * stats.rstd[:, None]
    mean = stats.mean * stats.rstd
    padded = -(-count // TILE) * TILE
    if count > 1:
        words = "the variance divides by N - 1"
        yield Hypothesis("variance", words, one * np.sqrt((count - 1) / count), zero)
    if stats.centered:
        yield from _wrong_means(stats, mean, one)
        if padded != count:
            words = f"the mean divides by {padded} instead of {count}"
            yield from _wrong_mean("mean", words, mean * (1 - count / padded), one)
    elif np.abs(scaled.mean(axis=1)).max() > 0:
        average = scaled.mean(axis=1)
        words = "the mean is subtracted"
        yield Hypothesis("mean", words, one, -average)
        with np.errstate(divide="ignore"):
            factor = 1 / np.sqrt(np.maximum(1 - average**2, 0))
        yield Hypothesis("mean", words, factor, -average * factor)
        yield Hypothesis("mean", f"{words} from the squares", factor, zero)
    if padded != count:
        words = f"the variance divides by {padded} instead of {count}"
        yield Hypothesis("variance", words, one * np.sqrt(padded / count), zero)
    squares = stats.xhat if stats.centered else scaled
    name = "the variance" if stats.centered else "the mean square"
    for line in tiles.left_out(squares**2):
        with np.errstate(divide="ignore", invalid="ignore"):
            factor = 1 / np.sqrt(1 - line.lost / count)
        yield Hypothesis("variance", f"{name} {line.words}", factor, zero, line.tiles)
    yield Hypothesis("rstd", "rstd is left out", 1 / stats.rstd, zero)
    yield Hypothesis("rstd", "rstd is applied twice", stats.rstd, zero)
    for lag in lags.LAGS:
        other, factor = stats.other_mean[lag], stats.other_rstd[lag] / stats.rstd
        back = lags.named(lag)
        yield Hypothesis("stale row", f"rstd is that of {back}", factor, zero)
        if stats.centered:
            offset = (stats.mean - other) * stats.rstd
            yield from _wrong_mean("stale row", f"the mean is that of {back}", offset, one)
            words = f"mean and rstd are those of {back}"
            yield Hypothesis("stale row", words, factor, offset * factor)


def _wrong_means(stats: Statistics, mean: Doubles, one: Doubles) -> Iterator[Hypothesis]:
    yield from _wrong_mean("mean", "the mean is not subtracted", mean, one)
    words = "the mean is not subtracted from the squares"
    yield Hypothesis("variance", words, 1 / np.sqrt(1 + mean**2), 0 * mean)
    yield from _wrong_mean("mean", "the mean is subtracted twice", -mean, one)
    count = stats.x.shape[1]
    for line in tiles.left_out(stats.x * stats.rstd[:, None]):
        words = f"the mean {line.words}"
        yield from _wrong_mean("mean", words, line.lost / count, one, line.tiles)


def _wrong_mean(
    term: str, words: str, offset: Doubles, one: Doubles, some: tuple[int, ...] = ()
) -> Iterator[Hypothesis]:
    """Yield a wrong mean with the right variance, and with the variance about the wrong mean."""
    yield Hypothesis(term, words, one, offset, some)
    factor = 1 / np.sqrt(1 + offset**2)
    yield Hypothesis(term, words, factor, offset * factor, some)


def _general(seen: Readings, stats: Statistics) -> Iterator[Hypothesis]:
    """Yield a common factor, a factor on the mean, and a factor or offset for every row."""
    one, zero = np.ones_like(stats.rstd), np.zeros_like(stats.rstd)
    words, middle = span_in_words(*most_covered(seen.factor.low, seen.factor.high))
    words = f"x^ has a factor of {words}: rstd, or gamma"
    yield Hypothesis("factor", words, one * middle, zero)
    mean = stats.mean * stats.rstd
    factor, offset = seen.factor.middle, seen.offset.middle
    some = mean != 0
    if stats.centered and some.any():
        part = float(np.median(offset[some] / mean[some]))
        words = f"the mean has a factor of {factor_in_words(1 - part)}"
        yield from _wrong_mean("mean", words, part * mean, one)
    low, high = factor_in_words(float(factor.min())), factor_in_words(float(factor.max()))
    yield Hypothesis(
        "rstd", f"x^ has another factor in each row, {low} to {high}", factor, zero, vague=True
    )
    words = f"x^ has another offset in each row, {offset.min():.3g} to {offset.max():.3g}"
    yield Hypothesis("mean", words, one, offset, vague=True)
    words = f"{words}, and another factor"
    yield Hypothesis("mean", words, factor, offset, vague=True)
