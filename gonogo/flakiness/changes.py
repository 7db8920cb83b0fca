"""Change points over builds or days: of a number (log error), and of a rate."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.contrasts import Array, welch
from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Rate, rate

_lgamma = np.frompyfunc(math.lgamma, 1, 1)
_EARLY = 10
"""A permutation test stops when so many permutations beat the series: p is then far from the alarm (Besag and Clifford, Biometrika 78, 1991)."""
_BATCHES = (99, 900)
"""Permutations drawn at a time: few first, since most series are stable."""
_MOST_POINTS = 4096
"""Longer histories are joined to means of neighbours: the place of a change is then known to a 4096th of the history."""


@dataclass(frozen=True)
class Change:
    """A change at point `place` (the first one after it, counted from 0 in the given series), inside [low, high] at `level`."""

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
            "place": self.place, "low": self.low, "high": self.high, "level": self.level, "before": self.before, "after": self.after,
            "p": self.p, "odds": odds, "rates": rates, "words": self.words,
        }


@dataclass(frozen=True)
class Changes:
    """The change points in order; `points` that say something, `left_out` without a number, `moved` that stood out of order."""

    changes: tuple[Change, ...]
    points: int
    left_out: int
    moved: int
    words: str

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {
            "changes": [each.to_json() for each in self.changes], "points": self.points, "left_out": self.left_out, "moved": self.moved,
            "words": self.words,
        }


def in_order(at: Sequence[float] | None, count: int) -> tuple[NDArray[np.intp], int]:
    """(indices that sort the points, how many stood before an earlier one). Clocks go back: the order key is sorted, stably, and the caller
    is told. A NaN has no place in time and keeps that of its predecessor."""
    if at is None:
        return np.arange(count), 0
    if len(at) != count:
        raise ValueError(f"{len(at)} places for {count} points")
    keys = np.array([math.nan if key is None else float(key) for key in at], dtype=np.float64)
    last = np.maximum.accumulate(np.where(np.isnan(keys), -1, np.arange(count))) if count else np.arange(0)
    keys = np.where(last < 0, -np.inf, keys[np.maximum(last, 0)]) if count else keys
    moved = int((keys[1:] < keys[:-1]).sum()) if count > 1 else 0
    return np.argsort(keys, kind="stable"), moved


def number_changes(
    points: Sequence[float | None | Iterable[float | None]] | Array, policy: FlakinessPolicy = POLICY, at: Sequence[float] | None = None,
    logarithm: bool = True,
) -> Changes:
    """Change points of a positive number, such as an error, over builds or days; each point a number, or one per seed.

    Binary segmentation on log values: the split with the largest two-sample t, accepted by its test, then both sides again. With 16 points
    or more a point's mean is one observation (what varies from build to build is noise, too) and the test permutes them: the largest |t|
    over all splits against that of permuted series, exact for exchangeable points of any distribution (E-divisive's test, James and
    Matteson 2014, with the t of a difference of means). With fewer points all seeds are observations, and Welch's p after Bonferroni over
    the places must be at most 1e-4. The interval of the place is the central part of the likelihood over the splits of its neighbourhood
    (equal normal errors, flat prior: likelihood ~ RSS^((2-n)/2)).

    Zeros count as half the smallest positive value, and as a change where they begin or end. NaN, Inf and None are left out; points
    without a number are counted. `at` (build sequence, time): sorted first. Constant series have no change. Linear in points but for the
    permutations; 4,096 points are kept of longer histories.
    """
    order, moved = in_order(at, len(points))
    kept, original = _sorted_samples(points, order)
    left_out = len(points) - len(kept)
    if len(kept) < 2 * policy.change_least:
        return Changes((), len(kept), left_out, moved, f"not enough points: {len(kept)} of {2 * policy.change_least}")
    if logarithm:
        kept = _logarithms(kept)
    width = -(-len(kept) // _MOST_POINTS)
    if width > 1:
        kept = [np.concatenate(kept[start : start + width]) for start in range(0, len(kept), width)]
        original = original[::width]
    by_seed = len(kept) < policy.change_points

    def test(start: int, end: int) -> tuple[int, float] | None:
        return _welch_split(kept, start, end, policy) if by_seed else _mean_split(means[start:end], start, policy)

    means = np.array([sample.mean() for sample in kept])
    cuts = _segments(0, len(kept), test)
    changes = []
    for number, (cut, p) in enumerate(cuts):
        start = cuts[number - 1][0] if number else 0
        end = cuts[number + 1][0] if number + 1 < len(cuts) else len(kept)
        low, high = _interval(_place_likelihood(means[start:end], policy), policy.level)
        before, after = float(means[start:cut].mean()), float(means[cut:end].mean())
        places = [original[min(each, len(original) - 1)] for each in (cut, start + low, start + high)]
        factor = f"{math.exp(min(700.0, abs(after - before))):.3g} times" if logarithm else f"{abs(after - before):.3g}"
        direction = "larger" if after > before else "smaller"
        words = f"{factor} {direction} from point {places[0]} on (between {places[1]} and {places[2]}, p = {p:.2g})"
        changes.append(Change(places[0], places[1], places[2], policy.level, before, after, p, None, None, words))
    words = "; ".join(each.words for each in changes) or f"no change in {len(means)} points"
    return Changes(tuple(changes), len(means), left_out, moved, words)


def _sorted_samples(points: Sequence[Any] | Array, order: NDArray[np.intp]) -> tuple[list[Array], list[int]]:
    """The finite numbers of each point that has one, in order, and the points' places in the given series."""
    if isinstance(points, np.ndarray) and points.ndim == 1:
        values = points.astype(np.float64)[order]
        told = np.isfinite(values)
        return list(values[told].reshape(-1, 1)), [int(index) for index in order[told]]
    samples = [(_numbers(points[int(index)]), int(index)) for index in order]
    return [sample for sample, _ in samples if len(sample)], [index for sample, index in samples if len(sample)]


def _numbers(point: Any) -> Array:
    values = point if isinstance(point, Iterable) else [point]
    array = np.array([math.nan if each is None else float(each) for each in values], dtype=np.float64)
    return array[np.isfinite(array)]


def _logarithms(samples: list[Array]) -> list[Array]:
    """log |value|, with zeros at half the smallest positive value; constant series of zeros stay constant."""
    joined = np.abs(np.concatenate(samples))
    positive = joined[joined > 0]
    least = math.log(float(positive.min())) - math.log(2) if len(positive) else 0.0
    logs = np.where(joined > 0, np.log(np.where(joined > 0, joined, 1.0)), least)
    return np.split(logs, np.cumsum([len(sample) for sample in samples])[:-1])


def _segments(start: int, end: int, test: Callable[[int, int], tuple[int, float] | None]) -> list[tuple[int, float]]:
    """Binary segmentation without recursion's depth: accepted (place, p or odds), in order."""
    found, open_ = [], [(start, end)]
    while open_:
        first, last = open_.pop()
        split = test(first, last)
        if split is not None:
            found.append(split)
            open_ += [(first, split[0]), (split[0], last)]
    return sorted(found)


def _residuals(rows: Array, least: int) -> Array:
    """Residual sums of squares (series, splits) of a mean on either side of every allowed split of each row."""
    count = rows.shape[1]
    sums = np.cumsum(rows, axis=1)[:, least - 1 : count - least]
    left = np.arange(least, count - least + 1)
    total, square = rows.sum(axis=1, keepdims=True), np.square(rows).sum(axis=1, keepdims=True)
    return np.asarray(square - sums**2 / left - (total - sums) ** 2 / (count - left), dtype=np.float64)


def _standardised(values: Array) -> Array | None:
    """Mean 0 and spread 1; None for a constant, up to the last bits of its numbers."""
    centred = values - values.mean()
    spread = float(np.sqrt(np.square(centred).mean()))
    return None if spread <= 1e-12 * max(1.0, float(np.abs(values).max())) else centred / spread


def _mean_split(values: Array, start: int, policy: FlakinessPolicy) -> tuple[int, float] | None:
    """The best split of one mean per point, if permuted points rarely split as well."""
    least = policy.change_least
    if len(values) < max(2 * least, 8):
        return None
    ready = _standardised(values)
    if ready is None:
        return None
    residuals = _residuals(ready[None, :], least)[0]
    best, place = float(residuals.min()), int(residuals.argmin()) + least
    rng = np.random.Generator(np.random.Philox(len(values)))
    beaten = drawn = 0
    sizes = [*_BATCHES]
    while drawn < policy.change_permutations:
        size = min(sizes.pop(0) if sizes else 1000, policy.change_permutations - drawn, max(1, 4_000_000 // len(values)))
        permuted = rng.permuted(np.broadcast_to(ready, (size, len(ready))), axis=1)
        beaten += int((_residuals(permuted, least).min(axis=1) <= best + 1e-9).sum())
        drawn += size
        if beaten >= _EARLY:
            return None
    p = (beaten + 1) / (drawn + 1)
    return (start + place, p) if p <= policy.change_alarm else None


def _welch_split(samples: Sequence[Array], start: int, end: int, policy: FlakinessPolicy) -> tuple[int, float] | None:
    """The best split of few points by Welch's test on all their seeds."""
    least = 1 if min(len(each) for each in samples[start:end]) >= policy.change_least else policy.change_least
    places = range(start + least, end - least + 1)
    if not places:
        return None
    found = []
    for place in places:
        contrast = welch(np.concatenate(samples[start:place]), np.concatenate(samples[place:end]))
        found.append((contrast.p, -abs(contrast.t or 0.0), place))
    p, _, place = min(found)
    p = min(1.0, p * len(found))
    return (place, p) if p <= policy.change_welch else None


def _place_likelihood(values: Array, policy: FlakinessPolicy) -> Array:
    """Normalised likelihood of each split 1..n-1 of a segment that holds one change."""
    ready = _standardised(values)
    count = len(values)
    if ready is None or count < 3:
        return np.full(max(1, count - 1), 1.0 / max(1, count - 1))
    residuals = np.maximum(_residuals(ready[None, :], 1)[0], 1e-12 * count)
    logs = (2 - count) / 2 * np.log(residuals)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _interval(likelihood: Array, level: float) -> tuple[int, int]:
    """The central interval of the split (1 = before the second point) that holds `level` of the likelihood."""
    grown = np.cumsum(likelihood)
    low = int(np.searchsorted(grown, (1 - level) / 2))
    high = int(np.searchsorted(grown, 1 - (1 - level) / 2 - 1e-12))
    return low + 1, min(high, len(likelihood) - 1) + 1


def rate_changes(
    points: Sequence[tuple[int, int]], policy: FlakinessPolicy = POLICY, at: Sequence[float] | None = None
) -> Changes:
    """Change points of a failure rate; each point (failures, runs) of a build or day.

    Beta-Bernoulli likelihood split: with Beta(prior, prior) rates the likelihood of the counts is B(f+a, s+a)/B(a, a), and the Bayes factor
    of one change against none the mean over all places of the product of both sides over the whole. Accepted above the policy's odds: since
    the mean of the factor under no change is 1, at most 1 in `rate_odds` stable series passes it (Markov). The interval of the place holds
    99% of the likelihood over the places. Points without runs are left out. Raises ValueError for counts that can't be.
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
        return _rate_splits(counts[start:end], policy.prior)

    def test(start: int, end: int) -> tuple[int, float] | None:
        if end - start < 2:
            return None
        found = logs(start, end)
        odds = float(np.logaddexp.reduce(found)) - math.log(len(found))
        return (start + int(found.argmax()) + 1, odds) if odds > math.log(policy.rate_odds) else None

    cuts = _segments(0, len(counts), test)
    changes = []
    for number, (cut, odds) in enumerate(cuts):
        start = cuts[number - 1][0] if number else 0
        end = cuts[number + 1][0] if number + 1 < len(cuts) else len(counts)
        found = logs(start, end)
        weights = np.exp(found - found.max())
        low, high = _interval(weights / weights.sum(), policy.rate_level)
        both = tuple(
            rate(int(part[:, 0].sum()), int(part[:, 1].sum()), policy, policy.rate_level) for part in (counts[start:cut], counts[cut:end])
        )
        places = [original[each] for each in (cut, start + low, start + high)]
        words = f"from {both[0].words} to {both[1].words} from point {places[0]} on (between {places[1]} and {places[2]})"
        means = [each.failures / each.runs for each in both]
        factor = math.exp(min(700.0, odds))
        change = Change(*places, policy.rate_level, means[0], means[1], None, factor, (both[0], both[1]), words)
        changes.append(change)
    return Changes(tuple(changes), len(counts), left_out, moved, "; ".join(e.words for e in changes) or f"no change in {len(counts)} points")


def _rate_splits(counts: Array, prior: float) -> Array:
    """Log Bayes factor of a change at each place against none."""
    failures, runs = np.cumsum(counts[:, 0]), np.cumsum(counts[:, 1])
    all_failures, all_runs = failures[-1], runs[-1]

    def evidence(bad: Array, of: Array) -> Array:
        return np.asarray(_lgamma(bad + prior) + _lgamma(of - bad + prior) - _lgamma(of + 2 * prior), dtype=np.float64)

    whole = float(evidence(np.array([all_failures]), np.array([all_runs]))[0])
    scale = 2 * math.lgamma(prior) - math.lgamma(2 * prior)
    left = evidence(failures[:-1], runs[:-1])
    right = evidence(all_failures - failures[:-1], all_runs - runs[:-1])
    return np.asarray(left + right - whole - scale, dtype=np.float64)
