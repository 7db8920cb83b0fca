"""Change points over builds or days: of a number (log error), and of a rate."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.contrasts import Array
from gonogo.flakiness.history import Change, Changes
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate
from gonogo.flakiness.splits import (
    Builds,
    Split,
    build_splits,
    exchangeable,
    interval,
    mean_split,
    place_likelihood,
    rate_splits,
    repeated_splits,
    segments,
    welch_split,
)

_MAX_POINTS = 4096
"""Longer histories are reduced to means of neighbors: the place of a change is then known to a
4096th of the history."""


def in_order(at: Sequence[float] | None, count: int) -> tuple[NDArray[np.intp], int]:
    """Return the indices that sort the points, and how many stood before an earlier one.

    Clocks go back, so the sort is by the order key, stable, and the count is reported. A NaN key
    takes the place of its predecessor.
    """
    if at is not None and len(at) != count:
        raise ValueError(f"{len(at)} places for {count} points")
    if at is None or not count:
        return np.arange(count), 0
    keys = np.array([math.nan if key is None else float(key) for key in at], dtype=np.float64)
    last = np.maximum.accumulate(np.where(np.isnan(keys), -1, np.arange(count)))
    keys = np.where(last < 0, -np.inf, keys[last])
    moved = int((keys[1:] < keys[:-1]).sum())
    return np.argsort(keys, kind="stable"), moved


def number_changes(
    points: Sequence[float | Iterable[float | None] | None] | Array,
    at: Sequence[float] | None = None,
) -> Changes:
    """Find the change points of a positive number, such as an error, over builds or days.

    points: a number each, or one per seed. at (build sequence, time): the points are sorted by it
    first.

    Binary segmentation on log values: the best split, accepted by a test, then both sides again. A
    point's mean is one observation, since stable builds differ, too. Two tests of the means decide:

    - With `change_builds` (6) points or more, Student's t of the best split or window, with the
      spread of points and the spread of their seeds (`build_splits`). No count of arrangements
      limits its p.
    - With `change_points` (16) points or more, also a permutation test: the largest |t| over all
      splits against that of permuted series, exact for exchangeable points of any distribution
      (E-divisive's test, James and Matteson 2014, with the t of a difference of means).

    With fewer than 6 points, all seeds are observations, and Welch's p after Bonferroni over the
    places must be at most 1e-4. The interval of the place is the central part of the likelihood
    over the splits of its neighborhood (equal normal errors, flat prior: likelihood ~
    RSS^((2-n)/2)).

    Zeros count as half the smallest positive value, and as a change where they begin or end. NaN,
    Inf and None are left out; points without a number are counted. Constant series have no change.
    Time is linear in points except for the permutations; longer histories are reduced to 4,096
    points.
    """
    order, moved = in_order(at, len(points))
    samples, original = _sorted_samples(points, order)
    left_out = len(points) - len(samples)
    enough = (
        2 if samples and min(map(len, samples)) >= POLICY.change_least else 2 * POLICY.change_least
    )
    if len(samples) < enough:
        return Changes(
            (), len(samples), left_out, moved, f"not enough points: {len(samples)} of {enough}"
        )
    samples = _logarithms(samples)
    width = -(-len(samples) // _MAX_POINTS)
    if width > 1:
        samples = [
            np.concatenate(samples[start : start + width])
            for start in range(0, len(samples), width)
        ]
        original = original[::width]
    means = np.array([sample.mean() for sample in samples])
    cuts = _number_splits(samples, means)
    changes = []
    for start, (cut, p), end in _between(cuts, len(samples)):
        low, high = interval(place_likelihood(means[start:end]), POLICY.level)
        before, after = float(means[start:cut].mean()), float(means[cut:end].mean())
        place, earliest, latest = (
            original[min(index, len(original) - 1)] for index in (cut, start + low, start + high)
        )
        factor = f"{math.exp(min(700.0, abs(after - before))):.3g} times"
        direction = "larger" if after > before else "smaller"
        words = (
            f"{factor} {direction} from point {place} on"
            f" (between {earliest} and {latest}, p = {p:.2g})"
        )
        at_place = partial(Change, place, earliest, latest, POLICY.level, before, after)
        changes.append(at_place(p, None, None, words))
    return _changes(changes, len(means), left_out, moved)


def _between(cuts: Sequence[Split], count: int) -> Iterable[tuple[int, Split, int]]:
    """Return each cut with the places of the one before it, or 0, and of the next, or `count`."""
    edges = [0, *(place for place, _ in cuts), count]
    return zip(edges, cuts, edges[2:], strict=False)


def _changes(changes: Sequence[Change], count: int, left_out: int, moved: int) -> Changes:
    words = "; ".join(change.words for change in changes) or f"no change in {count} points"
    return Changes(tuple(changes), count, left_out, moved, words)


def _number_splits(samples: Sequence[Array], means: Array) -> list[Split]:
    """Return the accepted splits of samples in order, with their p-values."""
    builds = Builds.from_samples(samples)
    few = len(samples) < POLICY.change_points

    def by_seeds(start: int, end: int) -> list[Split]:
        split = welch_split(samples, start, end)
        return [] if split is None else [split]

    def by_means(start: int, end: int) -> list[Split]:
        part = builds.part(start, end)
        split = None if few else mean_split(means[start:end], start)
        if split is not None and exchangeable(part, split[0] - start):
            return [split]
        if not few or part.counts.min() < POLICY.change_least:
            return build_splits(part, start, POLICY.change_least)
        return repeated_splits(part, start) or build_splits(part, start, POLICY.change_seeded)

    return segments(0, len(samples), by_seeds if len(samples) < POLICY.change_builds else by_means)


def _sorted_samples(
    points: Sequence[Any] | Array, order: NDArray[np.intp]
) -> tuple[list[Array], list[int]]:
    """Return the finite numbers of each point that has any, in order, and those points' indices.

    The indices refer to the given series.
    """
    if isinstance(points, np.ndarray) and points.ndim == 1:
        values = points.astype(np.float64)[order]
        finite = np.isfinite(values)
        return list(values[finite].reshape(-1, 1)), [int(index) for index in order[finite]]
    samples = [(_numbers(points[int(index)]), int(index)) for index in order]
    return [sample for sample, _ in samples if len(sample)], [
        index for sample, index in samples if len(sample)
    ]


def _numbers(point: Any) -> Array:
    values = point if isinstance(point, Iterable) else [point]
    array = np.array(
        [math.nan if value is None else float(value) for value in values], dtype=np.float64
    )
    return array[np.isfinite(array)]


def _logarithms(samples: list[Array]) -> list[Array]:
    """Return log |value|, with zeros at half the smallest positive value.

    Constant series of zeros stay constant.
    """
    joined = np.abs(np.concatenate(samples))
    positive = joined[joined > 0]
    floor = math.log(float(positive.min())) - math.log(2) if len(positive) else 0.0
    logs = np.where(joined > 0, np.log(np.where(joined > 0, joined, 1.0)), floor)
    return np.split(logs, np.cumsum([len(sample) for sample in samples])[:-1])


def rate_changes(points: Sequence[tuple[int, int]], at: Sequence[float] | None = None) -> Changes:
    """Find the change points of a failure rate.

    points: (failures, runs) of each build or day.

    Beta-Bernoulli likelihood split: with Beta(prior, prior) rates the likelihood of the counts is
    B(f+a, s+a)/B(a, a), and the Bayes factor of one change against none is the mean over all places
    of the product of both sides over the whole. A change is accepted above the policy's odds: since
    the mean of the factor under no change is 1, at most 1 in `rate_odds` stable series passes it
    (Markov). The interval of the place holds 99% of the likelihood over the places. Points without
    runs are left out. Raises ValueError for impossible counts.
    """
    order, moved = in_order(at, len(points))
    for failures, runs in points:
        if not 0 <= failures <= runs:
            raise ValueError(f"impossible counts: {failures} failures of {runs} runs")
    original = [int(index) for index in order if points[int(index)][1] > 0]
    counts = np.array([points[index] for index in original], dtype=np.float64).reshape(-1, 2)
    left_out = len(points) - len(original)
    if len(counts) < 2:
        return Changes((), len(counts), left_out, moved, f"not enough points: {len(counts)} of 2")

    def logs(start: int, end: int) -> Array:
        return rate_splits(counts[start:end], POLICY.prior)

    def test(start: int, end: int) -> list[Split]:
        if end - start < 2:
            return []
        log_odds = logs(start, end)
        odds = float(np.logaddexp.reduce(log_odds)) - math.log(len(log_odds))
        accepted = odds > math.log(POLICY.rate_odds)
        return [(start + int(log_odds.argmax()) + 1, odds)] if accepted else []

    cuts = segments(0, len(counts), test)
    changes = []
    for start, (cut, odds), end in _between(cuts, len(counts)):
        log_odds = logs(start, end)
        weights = np.exp(log_odds - log_odds.max())
        low, high = interval(weights / weights.sum(), POLICY.rate_level)
        first, second = (
            rate(int(part[:, 0].sum()), int(part[:, 1].sum()), POLICY.rate_level)
            for part in (counts[start:cut], counts[cut:end])
        )
        place, earliest, latest = (original[index] for index in (cut, start + low, start + high))
        words = (
            f"from {first.words} to {second.words} from point {place} on"
            f" (between {earliest} and {latest})"
        )
        before, after = (side.failures / side.runs for side in (first, second))
        factor = math.exp(min(700.0, odds))
        at_place = partial(Change, place, earliest, latest, POLICY.rate_level, before, after)
        changes.append(at_place(None, factor, (first, second), words))
    return _changes(changes, len(counts), left_out, moved)
