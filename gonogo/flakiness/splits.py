"""The tests behind the change points: the best split of a series, and its significance."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from gonogo.flakiness.contrasts import Array, welch
from gonogo.flakiness.policy import FlakinessPolicy

_lgamma = np.frompyfunc(math.lgamma, 1, 1)
_BATCHES = (99, 900)
"""Permutations drawn at a time: few first, since most series are stable."""


def segments(
    start: int, end: int, test: Callable[[int, int], tuple[int, float] | None]
) -> list[tuple[int, float]]:
    """Return the accepted splits (place, p or odds) of binary segmentation, in order.

    It uses a stack, so that the depth isn't limited by recursion.
    """
    splits, open_ = [], [(start, end)]
    while open_:
        first, last = open_.pop()
        split = test(first, last)
        if split is not None:
            splits.append(split)
            open_ += [(first, split[0]), (split[0], last)]
    return sorted(splits)


def residuals(rows: Array, least: int) -> Array:
    """Return the residual sums of squares (series, splits) of every allowed split of each row.

    The model is one mean on either side of the split.
    """
    count = rows.shape[1]
    sums = np.cumsum(rows, axis=1)[:, least - 1 : count - least]
    left = np.arange(least, count - least + 1)
    total, square = rows.sum(axis=1, keepdims=True), np.square(rows).sum(axis=1, keepdims=True)
    return np.asarray(
        square - sums**2 / left - (total - sums) ** 2 / (count - left), dtype=np.float64
    )


def standardized(values: Array) -> Array | None:
    """Return the values with mean 0 and spread 1; None for a constant, up to the last bits."""
    centered = values - values.mean()
    spread = float(np.sqrt(np.square(centered).mean()))
    return None if spread <= 1e-12 * max(1.0, float(np.abs(values).max())) else centered / spread


def mean_split(values: Array, start: int, policy: FlakinessPolicy) -> tuple[int, float] | None:
    """Return the best split of one mean per point, if permuted points rarely split as well."""
    least = policy.change_least
    if len(values) < max(2 * least, 8):
        return None
    ready = standardized(values)
    if ready is None:
        return None
    left = residuals(ready[None, :], least)[0]
    best, place = float(left.min()), int(left.argmin()) + least
    rng = np.random.Generator(np.random.Philox(len(values)))
    beaten = drawn = 0
    sizes = [*_BATCHES]
    while drawn < policy.change_permutations:
        size = min(
            sizes.pop(0) if sizes else 1000,
            policy.change_permutations - drawn,
            max(1, 4_000_000 // len(values)),
        )
        permuted = rng.permuted(np.broadcast_to(ready, (size, len(ready))), axis=1)
        beaten += int((residuals(permuted, least).min(axis=1) <= best + 1e-9).sum())
        drawn += size
        if beaten + 1 > policy.change_alarm * (policy.change_permutations + 1):
            # the other permutations can't change that (Besag and Clifford, Biometrika 78, 1991)
            return None
    return start + place, (beaten + 1) / (drawn + 1)


def welch_split(
    samples: Sequence[Array], start: int, end: int, policy: FlakinessPolicy
) -> tuple[int, float] | None:
    """Return the best split of few points, by Welch's test on all their seeds."""
    least = (
        1
        if min(len(sample) for sample in samples[start:end]) >= policy.change_least
        else policy.change_least
    )
    places = range(start + least, end - least + 1)
    if not places:
        return None
    contrasts = []
    for place in places:
        contrast = welch(np.concatenate(samples[start:place]), np.concatenate(samples[place:end]))
        contrasts.append((contrast.p, -abs(contrast.t or 0.0), place))
    p, _, place = min(contrasts)
    p = min(1.0, p * len(contrasts))
    return (place, p) if p <= policy.change_welch else None


def place_likelihood(values: Array) -> Array:
    """Return the normalized likelihood of each split 1..n-1 of a segment with one change."""
    ready = standardized(values)
    count = len(values)
    if ready is None or count < 3:
        return np.full(max(1, count - 1), 1.0 / max(1, count - 1))
    left = np.maximum(residuals(ready[None, :], 1)[0], 1e-12 * count)
    logs = (2 - count) / 2 * np.log(left)
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def interval(likelihood: Array, level: float) -> tuple[int, int]:
    """Return the central interval of the split that holds `level` of the likelihood.

    A split of 1 is before the second point.
    """
    grown = np.cumsum(likelihood)
    low = int(np.searchsorted(grown, (1 - level) / 2))
    high = int(np.searchsorted(grown, 1 - (1 - level) / 2 - 1e-12))
    return low + 1, min(high, len(likelihood) - 1) + 1


def rate_splits(counts: Array, prior: float) -> Array:
    """Return the log Bayes factor of a change at each place against none."""
    failures, runs = np.cumsum(counts[:, 0]), np.cumsum(counts[:, 1])
    all_failures, all_runs = failures[-1], runs[-1]

    def evidence(bad: Array, of: Array) -> Array:
        return np.asarray(
            _lgamma(bad + prior) + _lgamma(of - bad + prior) - _lgamma(of + 2 * prior),
            dtype=np.float64,
        )

    whole = float(evidence(np.array([all_failures]), np.array([all_runs]))[0])
    scale = 2 * math.lgamma(prior) - math.lgamma(2 * prior)
    left = evidence(failures[:-1], runs[:-1])
    right = evidence(all_failures - failures[:-1], all_runs - runs[:-1])
    return np.asarray(left + right - whole - scale, dtype=np.float64)
