"""Change points over builds or days: of a number (log error), and of a rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.contrasts import Array
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Rate, rate
from gonogo.flakiness.splits import (
    interval,
    mean_split,
    place_likelihood,
    rate_splits,
    segments,
    welch_split,
)

_MOST_POINTS = 4096
"""Longer histories are joined to means of neighbours: the place of a change is then known to a
4096th of the history."""


@dataclass(frozen=True)
class Change:
    """A change at point `place` (the first one after it, counted from 0 in the given series),
    inside [low, high] at `level`.
    """

    place: int
    low: int
    high: int
    level: float
    before: float
    """Mean of the logarithm (of a number), or the failure rate, from the change before."""
    after: float
    p: float | None
    """Of the test for numbers."""
    odds: float | None
    """Bayes factor against no change, for rates."""
    rates: tuple[Rate, Rate] | None
    words: str

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        odds = self.odds if self.odds is not None and math.isfinite(self.odds) else None
        rates = None if self.rates is None else [each.to_json() for each in self.rates]
        return {
            "place": self.place,
            "low": self.low,
            "high": self.high,
            "level": self.level,
            "before": self.before,
            "after": self.after,
            "p": self.p,
            "odds": odds,
            "rates": rates,
            "words": self.words,
        }


@dataclass(frozen=True)
class Changes:
    """The change points in order; `points` that say something, `left_out` without a number, `moved`
    that stood out of order.
    """

    changes: tuple[Change, ...]
    points: int
    left_out: int
    moved: int
    words: str

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "changes": [each.to_json() for each in self.changes],
            "points": self.points,
            "left_out": self.left_out,
            "moved": self.moved,
            "words": self.words,
        }


def in_order(at: Sequence[float] | None, count: int) -> tuple[NDArray[np.intp], int]:
    """(indices that sort the points, how many stood before an earlier one). Clocks go back: the
    order key is sorted, stably, and the caller is told. A NaN has no place in time and keeps that
    of its predecessor.
    """
    if at is None:
        return np.arange(count), 0
    if len(at) != count:
        raise ValueError(f"{len(at)} places for {count} points")
    keys = np.array([math.nan if key is None else float(key) for key in at], dtype=np.float64)
    last = (
        np.maximum.accumulate(np.where(np.isnan(keys), -1, np.arange(count)))
        if count
        else np.arange(0)
    )
    keys = np.where(last < 0, -np.inf, keys[np.maximum(last, 0)]) if count else keys
    moved = int((keys[1:] < keys[:-1]).sum()) if count > 1 else 0
    return np.argsort(keys, kind="stable"), moved


def number_changes(
    points: Sequence[float | Iterable[float | None] | None] | Array,
    policy: FlakinessPolicy = POLICY,
    at: Sequence[float] | None = None,
    logarithm: bool = True,
) -> Changes:
    """Change points of a positive number, such as an error, over builds or days; each point a
    number, or one per seed.

    Binary segmentation on log values: the split with the largest two-sample t, accepted by its
    test, then both sides again. With 16 points or more a point's mean is one observation (what
    varies from build to build is noise, too) and the test permutes them: the largest |t| over all
    splits against that of permuted series, exact for exchangeable points of any distribution
    (E-divisive's test, James and Matteson 2014, with the t of a difference of means). With fewer
    points all seeds are observations, and Welch's p after Bonferroni over the places must be at
    most 1e-4. The interval of the place is the central part of the likelihood over the splits of
    its neighbourhood (equal normal errors, flat prior: likelihood ~ RSS^((2-n)/2)).

    Zeros count as half the smallest positive value, and as a change where they begin or end. NaN,
    Inf and None are left out; points without a number are counted. `at` (build sequence, time):
    sorted first. Constant series have no change. Linear in points but for the permutations; 4,096
    points are kept of longer histories.
    """
    order, moved = in_order(at, len(points))
    kept, original = _sorted_samples(points, order)
    left_out = len(points) - len(kept)
    enough = 2 if kept and min(map(len, kept)) >= policy.change_least else 2 * policy.change_least
    if len(kept) < enough:
        return Changes(
            (), len(kept), left_out, moved, f"not enough points: {len(kept)} of {enough}"
        )
    if logarithm:
        kept = _logarithms(kept)
    width = -(-len(kept) // _MOST_POINTS)
    if width > 1:
        kept = [np.concatenate(kept[start : start + width]) for start in range(0, len(kept), width)]
        original = original[::width]
    by_seed = len(kept) < policy.change_points

    def test(start: int, end: int) -> tuple[int, float] | None:
        return (
            welch_split(kept, start, end, policy)
            if by_seed
            else mean_split(means[start:end], start, policy)
        )

    means = np.array([sample.mean() for sample in kept])
    cuts = segments(0, len(kept), test)
    changes = []
    for number, (cut, p) in enumerate(cuts):
        start = cuts[number - 1][0] if number else 0
        end = cuts[number + 1][0] if number + 1 < len(cuts) else len(kept)
        low, high = interval(place_likelihood(means[start:end]), policy.level)
        before, after = float(means[start:cut].mean()), float(means[cut:end].mean())
        places = [
            original[min(each, len(original) - 1)] for each in (cut, start + low, start + high)
        ]
        factor = (
            f"{math.exp(min(700.0, abs(after - before))):.3g} times"
            if logarithm
            else f"{abs(after - before):.3g}"
        )
        direction = "larger" if after > before else "smaller"
        words = f"{factor} {direction} from point {places[0]} on (between {places[1]} and {places[2]}, p = {p:.2g})"
        changes.append(
            Change(
                places[0], places[1], places[2], policy.level, before, after, p, None, None, words
            )
        )
    words = "; ".join(each.words for each in changes) or f"no change in {len(means)} points"
    return Changes(tuple(changes), len(means), left_out, moved, words)


def _sorted_samples(
    points: Sequence[Any] | Array, order: NDArray[np.intp]
) -> tuple[list[Array], list[int]]:
    """The finite numbers of each point that has one, in order, and the points' places in the given
    series.
    """
    if isinstance(points, np.ndarray) and points.ndim == 1:
        values = points.astype(np.float64)[order]
        told = np.isfinite(values)
        return list(values[told].reshape(-1, 1)), [int(index) for index in order[told]]
    samples = [(_numbers(points[int(index)]), int(index)) for index in order]
    return [sample for sample, _ in samples if len(sample)], [
        index for sample, index in samples if len(sample)
    ]


def _numbers(point: Any) -> Array:
    values = point if isinstance(point, Iterable) else [point]
    array = np.array(
        [math.nan if each is None else float(each) for each in values], dtype=np.float64
    )
    return array[np.isfinite(array)]


def _logarithms(samples: list[Array]) -> list[Array]:
    """Log |value|, with zeros at half the smallest positive value; constant series of zeros stay
    constant.
    """
    joined = np.abs(np.concatenate(samples))
    positive = joined[joined > 0]
    least = math.log(float(positive.min())) - math.log(2) if len(positive) else 0.0
    logs = np.where(joined > 0, np.log(np.where(joined > 0, joined, 1.0)), least)
    return np.split(logs, np.cumsum([len(sample) for sample in samples])[:-1])


def rate_changes(
    points: Sequence[tuple[int, int]],
    policy: FlakinessPolicy = POLICY,
    at: Sequence[float] | None = None,
) -> Changes:
    """Change points of a failure rate; each point (failures, runs) of a build or day.

    Beta-Bernoulli likelihood split: with Beta(prior, prior) rates the likelihood of the counts is
    B(f+a, s+a)/B(a, a), and the Bayes factor of one change against none the mean over all places of
    the product of both sides over the whole. Accepted above the policy's odds: since the mean of
    the factor under no change is 1, at most 1 in `rate_odds` stable series passes it (Markov). The
    interval of the place holds 99% of the likelihood over the places. Points without runs are left
    out. Raises ValueError for counts that can't be.
    """
    order, moved = in_order(at, len(points))
    for failures, runs in points:
        if not 0 <= failures <= runs:
            raise ValueError(f"{failures} failures of {runs} runs can't be")
    original = [int(index) for index in order if points[int(index)][1] > 0]
    counts = np.array([points[index] for index in original], dtype=np.float64).reshape(-1, 2)
    left_out = len(points) - len(original)
    if len(counts) < 2:
        return Changes((), len(counts), left_out, moved, f"not enough points: {len(counts)} of 2")

    def logs(start: int, end: int) -> Array:
        return rate_splits(counts[start:end], policy.prior)

    def test(start: int, end: int) -> tuple[int, float] | None:
        if end - start < 2:
            return None
        found = logs(start, end)
        odds = float(np.logaddexp.reduce(found)) - math.log(len(found))
        return (
            (start + int(found.argmax()) + 1, odds) if odds > math.log(policy.rate_odds) else None
        )

    cuts = segments(0, len(counts), test)
    changes = []
    for number, (cut, odds) in enumerate(cuts):
        start = cuts[number - 1][0] if number else 0
        end = cuts[number + 1][0] if number + 1 < len(cuts) else len(counts)
        found = logs(start, end)
        weights = np.exp(found - found.max())
        low, high = interval(weights / weights.sum(), policy.rate_level)
        both = tuple(
            rate(int(part[:, 0].sum()), int(part[:, 1].sum()), policy, policy.rate_level)
            for part in (counts[start:cut], counts[cut:end])
        )
        place, least, most = (original[each] for each in (cut, start + low, start + high))
        words = f"from {both[0].words} to {both[1].words} from point {place} on (between {least} and {most})"
        means = [each.failures / each.runs for each in both]
        factor = math.exp(min(700.0, odds))
        change = Change(
            place,
            least,
            most,
            policy.rate_level,
            means[0],
            means[1],
            None,
            factor,
            (both[0], both[1]),
            words,
        )
        changes.append(change)
    words = "; ".join(each.words for each in changes) or f"no change in {len(counts)} points"
    return Changes(tuple(changes), len(counts), left_out, moved, words)
