"""Latent flakes: predict how often a green test will fail, from the tail of its tolerance_ratio.

The prediction has an upper bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.history import Tail, Threshold
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate

Array = NDArray[np.float64]

LIMIT = 1.0
"""A test fails where its tolerance_ratio is above this."""
_SHRUNK_TO, _SHRUNK_BY = 0.2, 10.0
"""The bound's fits are shrunk towards the shape 0.2 with the weight of 10 further exceedances.
Maxima of light tails have shape 0, of t(4) .25: without it the bound at .95 held in 78% of
lognormal series of 20 seeds; with it the worst of six distributions has .89, Pareto(.25)
(calibrated)."""
_TIES = 1e-9
"""A tail whose numbers differ by less than this share of the largest one is none."""
_FLAT = 1e-9
"""A smaller shape is 0: an exponential tail."""
_FAR = 1e6
"""A limit that is so many tails away is never reached: its rate is below 1/(10 x seeds)."""
_BLOCK = 2_000_000
"""Numbers in one intermediate array of the bootstrap: 16 MB."""


def tail(
    ratios: Iterable[float | None] | Array, level: float | None = None, unit: str = "seeds"
) -> Tail:
    """Predict P(tolerance_ratio > 1) from the ratios of many seeds of one variant.

    ratios: independent samples, in any order; None and NaN are left out, Inf is a failure outside
    the fit. unit: the name of a sample in words.

    Peaks over a threshold (Pickands, Annals of Statistics 3, 1975): the exceedances of a high
    threshold u follow a generalized Pareto distribution, so P(X > 1) = k/n (1 + xi
    (1-u)/sigma)^(-1/xi). Fits by Zhang and Stephens, Technometrics 51, 2009 (posterior mean, no
    iteration). The threshold is swept over the policy's shares: the prediction is the median of
    them, the bound the largest of their bounds, each the `level` quantile of a parametric bootstrap
    (tail and number of exceedances drawn again, fitted again, the shape shrunk towards 0.2 with the
    weight of 10 exceedances against the bias of small tails). Never below 1/(10 x seeds).

    No tail can be fitted to numbers that are all equal or mostly above 1: then the observed rate
    decides, and `words` says so. Deterministic: the bootstrap's stream is fixed.
    """
    level = POLICY.tail_level if level is None else level
    values = (
        ratios
        if isinstance(ratios, np.ndarray)
        else [math.nan if ratio is None else ratio for ratio in ratios]
    )
    array = np.asarray(values, dtype=np.float64).ravel()
    known = np.sort(np.abs(array[~np.isnan(array)]))
    seeds, left_out = len(known), len(array) - len(known)
    observed = rate(int((known > LIMIT).sum()), seeds)
    largest = float(known[-1]) if seeds and math.isfinite(known[-1]) else None
    if seeds < POLICY.least_seeds:
        words = f"not enough {unit}: {seeds} of {POLICY.least_seeds}"
        return Tail(seeds, left_out, observed, None, None, False, level, (), largest, words, seeds)
    finite = known[np.isfinite(known)]
    fits = _sweep(finite, level)
    floor = 1.0 / (POLICY.tail_reach * seeds)
    if not fits:
        reason = "all equal, or ties only" if not observed.failures else "too many above the limit"
        predicted = max(floor, observed.failures / seeds)
        words = f"no tail to fit ({reason}): {observed.words} failed"
        return Tail(
            seeds,
            left_out,
            observed,
            predicted,
            _counted(observed.failures, seeds, level),
            not observed.failures,
            level,
            (),
            largest,
            words,
            seeds,
        )
    infinite = (seeds - len(finite)) / seeds
    middle = float(np.median([predicted for _, _, predicted, _ in fits]))
    bound = max(upper for _, _, _, upper in fits)
    if infinite:
        lost = _counted(seeds - len(finite), seeds, level)
        middle, bound = infinite + (1 - infinite) * middle, lost + (1 - lost) * bound
    predicted, at_most = max(floor, middle), middle <= floor
    upper = min(1.0, max(predicted, bound))
    words = f"{rates_in_words(predicted, upper, at_most, level, unit)} ({seeds} {unit})"
    swept = tuple(Threshold(*fit[:3]) for fit in fits)
    return Tail(
        seeds, left_out, observed, predicted, upper, at_most, level, swept, largest, words, seeds
    )


def _counted(failures: int, seeds: int, level: float) -> float:
    """Return the one-sided bound of a rate of counts.

    It is the upper end of the interval that leaves twice as much outside.
    """
    high = rate(failures, seeds, level=max(0.0, 2 * level - 1)).high
    assert high is not None
    return high


def rates_in_words(predicted: float, upper: float, at_most: bool, level: float, unit: str) -> str:
    """Return the rates in a phrase.

    For example "at most 2 failures per thousand seeds predicted, 3 at 95% confidence".
    """
    if at_most and upper <= predicted:  # the seeds only bound the rate
        return (
            f"fewer than {1000 * upper:.3g} failures per thousand {unit}"
            f" at {100 * level:.3g}% confidence"
        )
    prefix = "at most " if at_most else ""
    return (
        f"{prefix}{1000 * predicted:.3g} failures per thousand {unit} predicted,"
        f" {1000 * upper:.3g} at {100 * level:.3g}% confidence"
    )


def _sweep(ordered: Array, level: float) -> list[tuple[float, int, float, float]]:
    """Return (threshold, exceedances, predicted, bound) of each threshold below the limit."""
    seeds = len(ordered)
    counts = {min(POLICY.tail_most, int(share * seeds)) for share in POLICY.tail_shares}
    rng = np.random.Generator(np.random.Philox(seeds))
    fits = []
    for count in sorted(counts, reverse=True):
        if not POLICY.tail_least <= count < seeds:
            continue
        above = ordered[seeds - count :]
        threshold = float(ordered[seeds - count - 1] / 2 + above[0] / 2)
        if threshold >= LIMIT or np.ptp(above) <= _TIES * above.max():
            continue
        excess = above - threshold
        reach = (LIMIT - threshold) / float(excess.max())
        if reach > _FAR:
            fits.append((threshold, count, 0.0, 0.0))
            continue
        one = excess[None, :] / excess.max()
        shape, scale = pareto_fit(one)
        predicted = count / seeds * float(survival(reach, shape, scale)[0])
        fits.append((threshold, count, predicted, _bound(one, reach, seeds, level, rng)))
    return fits


def _bound(one: Array, reach: float, seeds: int, level: float, rng: np.random.Generator) -> float:
    """Return the quantile `level` of the predicted rate over samples of the shrunk fit."""
    count = one.shape[1]
    shape, scale = pareto_fit(one, shrink=True)
    places = 20 + int(math.sqrt(count))
    block = max(1, _BLOCK // (places * count))
    rates = []
    for start in range(0, POLICY.tail_bootstraps, block):
        draws = min(block, POLICY.tail_bootstraps - start)
        exceeding = rng.binomial(seeds, count / seeds, size=draws) / seeds
        samples = np.sort(
            _drawn(rng.random((draws, count)), float(shape[0]), float(scale[0])), axis=1
        )
        rates.append(exceeding * survival(reach, *pareto_fit(samples, shrink=True)))
    return float(np.quantile(np.concatenate(rates), level))


def _drawn(uniform: Array, shape: float, scale: float) -> Array:
    """Return generalized Pareto numbers by the inverse of their distribution function."""
    exponential = -np.log1p(-uniform)
    return np.asarray(
        scale * (exponential if abs(shape) < _FLAT else np.expm1(shape * exponential) / shape),
        dtype=np.float64,
    )


def pareto_fit(excess: Array, shrink: bool = False) -> tuple[Array, Array]:
    """Return (shape xi, scale sigma) of each row of exceedances, by Zhang and Stephens 2009.

    excess: positive, (samples, k), sorted ascending in each row. The grid has 20 + sqrt(k) values
    of theta = -xi/sigma below 1/max, weighted by the profile likelihood. xi > 0 is a heavy tail.
    """
    count = excess.shape[1]
    grid = np.arange(1, 21 + int(math.sqrt(count)))
    largest = excess[:, -1:]
    quarter = np.maximum(excess[:, [max(0, int(count / 4 + 0.5) - 1)]], _TIES * largest)
    with np.errstate(all="ignore"):
        theta = 1 / largest + (1 - np.sqrt(len(grid) / (grid - 0.5))) / (3 * quarter)
        shapes = np.log1p(-theta[:, :, None] * excess[:, None, :]).mean(axis=2)
        logs = count * (np.log(-theta / shapes) - shapes)  # up to a constant
        logs = np.where(np.isfinite(logs), logs, -np.inf)
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        best = (weights * theta).sum(axis=1)
        best = np.where(np.abs(best) * largest[:, 0] < _FLAT, _FLAT / largest[:, 0], best)
        shape = np.log1p(-best[:, None] * excess).mean(axis=1)
        scale = -shape / best
    if shrink:
        shape = (shape * count + _SHRUNK_TO * _SHRUNK_BY) / (count + _SHRUNK_BY)
    return shape, scale


def survival(z: float, shape: Array, scale: Array) -> Array:
    """Return P(excess > z) of generalized Pareto distributions."""
    with np.errstate(all="ignore"):
        inside = np.maximum(1 + shape * z / scale, 0)  # 0 from a light tail's end on
        curved = np.exp(-np.log(inside) / shape)
        probability = np.where(np.abs(shape) < _FLAT, np.exp(-z / scale), curved)
    return np.asarray(np.nan_to_num(probability, nan=0.0), dtype=np.float64)
