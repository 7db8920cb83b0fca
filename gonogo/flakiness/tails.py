"""Latent flakes: predict how often a green test will fail, from the tail of its tolerance_ratio.

A seed that repeats its numbers says nothing about other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gonogo.flakiness.history import Tail, Threshold
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate
from gonogo.flakiness.special import beta_cdf

Array = NDArray[np.float64]

LIMIT = 1.0
"""A test fails where its tolerance_ratio is above this."""
RUNS, SEEDS = "runs", "seeds"
# The bound's fits are shrunk towards the shape 0.2 with the weight of 10 further exceedances.
# Maxima of light tails have shape 0, of t(4) .25: without it the bound at .95 held in 78% of
# lognormal series of 20 seeds; with it the worst of six distributions has .89, Pareto(.25)
# (calibrated).
_SHRUNK_TO, _SHRUNK_BY = 0.2, 10.0
# A tail whose numbers differ by less than this share of the largest one is none.
_TIES = 1e-9
# A smaller shape is 0: an exponential tail.
_FLAT = 1e-9
# A limit that is so many tails away is never reached: its rate is below 1/(10 x seeds).
_FAR = 1e6
# Numbers in one intermediate array of the bootstrap: 16 MB.
_BLOCK = 2_000_000


def tail_of(numbers: Iterable[tuple[int | None, float | None]], left: int = 0) -> Tail:
    """Return `tail` of (seed, tolerance_ratio) pairs in which seeds may repeat.

    numbers: oldest first. Seed None: not controlled, so it counts as a distinct seed. left: runs
    that the caller left out because they repeat another bit for bit.

    - If every seed is there once: `tail`, rates per seed.
    - If a seed's numbers differ among themselves as much as from those of other seeds
      (`clustered`): each run is a new sample, and rates are per run.
    - Else one number per seed, the newest, makes the tail, per seed.
    """
    pairs = list(numbers)
    groups: dict[object, list[float]] = {}
    for place, (seed, value) in enumerate(pairs):
        if value is not None and not math.isnan(value):
            groups.setdefault(("alone", place) if seed is None else seed, []).append(abs(value))
    known, distinct = sum(map(len, groups.values())), len(groups)
    if known == distinct:
        return _too_few(tail([value for _, value in pairs]), left)
    if not clustered(list(groups.values())):
        by_run = tail([value for _, value in pairs], unit=RUNS)
        words = f"{by_run.words}, of {_seeds(distinct)}"
        return replace(by_run, distinct=distinct, per=RUNS, repeated=left, words=words)
    newest = [values[-1] for values in groups.values()] + [math.nan] * (len(pairs) - known)
    return _too_few(tail(newest), left + known - distinct)


def clustered(groups: Sequence[Sequence[float]]) -> bool:
    """Return whether numbers within a group are more alike than those of different groups.

    One-way analysis of variance on ranks (Conover and Iman, American Statistician 35, 1981) at
    POLICY.same_seed. False if no group has two numbers.
    """
    sizes = np.array([len(group) for group in groups])
    runs, count = int(sizes.sum()), len(groups)
    if count < 2 or runs <= count:
        return runs > count  # a single seed says nothing about others
    if all(min(group) == max(group) for group in groups):
        return True
    everything = np.concatenate([np.asarray(group, dtype=np.float64) for group in groups])
    _, place, ties = np.unique(everything, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(ties) - (ties - 1) / 2)[place]
    means = np.add.reduceat(ranks, np.concatenate([[0], np.cumsum(sizes)[:-1]])) / sizes
    between = float((sizes * (means - ranks.mean()) ** 2).sum())
    within = float(np.square(ranks).sum() - (sizes * means**2).sum())
    first, second = count - 1, runs - count
    ratio = between / first / (within / second)
    return beta_cdf(second / (second + first * ratio), second / 2, first / 2) <= POLICY.same_seed


def _too_few(fit: Tail, repeated: int) -> Tail:
    """Return the tail with the number of runs that were no new samples, which its words explain."""
    words = fit.words
    if repeated and fit.predicted is None and fit.seeds:
        plural = "s are" if fit.seeds > 1 else " is"
        words = (
            f"{fit.seeds} distinct seed{plural} too few to predict how often others fail"
            f" ({POLICY.least_seeds} are needed), however often they run again"
            f" ({repeated} runs did)"
        )
    return replace(fit, repeated=repeated, words=words)


def _seeds(count: int) -> str:
    return f"{count} seed{'' if count == 1 else 's'}"


def tail(ratios: Iterable[float | None] | Array, unit: str = SEEDS) -> Tail:
    """Predict P(tolerance_ratio > 1) from the ratios of many seeds of one variant.

    ratios: independent samples, in any order; None and NaN are left out, Inf is a failure outside
    the fit. unit: the name of a sample in words.

    Peaks over a threshold (Pickands, Annals of Statistics 3, 1975): the exceedances of a high
    threshold u follow a generalized Pareto distribution, so P(X > 1) = k/n (1 + xi
    (1-u)/sigma)^(-1/xi). The threshold is swept over the policy's shares: the prediction is the
    median of them, the bound the largest of their bounds, each the quantile `tail_level` of a
    parametric bootstrap. Never below 1/(10 x seeds).

    No tail can be fitted to numbers that are all equal or mostly above 1: then the observed rate
    decides, and `words` says so. Deterministic: the bootstrap's stream is fixed.
    """
    array = np.array([math.nan if ratio is None else ratio for ratio in ratios], np.float64)
    known = np.sort(np.abs(array[~np.isnan(array)]))
    seeds = len(known)
    observed = rate(int((known > LIMIT).sum()), seeds)
    known_tail = Tail(
        seeds=seeds,
        left_out=len(array) - seeds,
        observed=observed,
        predicted=None,
        upper=None,
        at_most=False,
        level=POLICY.tail_level,
        thresholds=(),
        largest=float(known[-1]) if seeds and math.isfinite(known[-1]) else None,
        words=f"not enough {unit}: {seeds} of {POLICY.least_seeds}",
        distinct=seeds,
    )
    if seeds < POLICY.least_seeds:
        return known_tail
    finite = known[np.isfinite(known)]
    fits = _sweep(finite)
    floor = 1.0 / (POLICY.tail_reach * seeds)
    if not fits:
        reason = "all equal, or ties only" if not observed.failures else "too many above the limit"
        return replace(
            known_tail,
            predicted=max(floor, observed.failures / seeds),
            upper=_counted(observed.failures, seeds),
            at_most=not observed.failures,
            words=f"no tail to fit ({reason}): {observed.words} failed",
        )
    middle = float(np.median([predicted for _, _, predicted, _ in fits]))
    bound = max(upper for _, _, _, upper in fits)
    if infinite := (seeds - len(finite)) / seeds:
        lost = _counted(seeds - len(finite), seeds)
        middle, bound = infinite + (1 - infinite) * middle, lost + (1 - lost) * bound
    predicted, at_most = max(floor, middle), middle <= floor
    upper = min(1.0, max(predicted, bound))
    return replace(
        known_tail,
        predicted=predicted,
        upper=upper,
        at_most=at_most,
        thresholds=tuple(Threshold(*fit[:3]) for fit in fits),
        words=f"{rates_in_words(predicted, upper, at_most, unit)} ({seeds} {unit})",
    )


def _counted(failures: int, seeds: int) -> float:
    """Return the one-sided bound of a rate of counts."""
    high = rate(failures, seeds, level=2 * POLICY.tail_level - 1).high
    assert high is not None
    return high


def rates_in_words(predicted: float, upper: float, at_most: bool, unit: str) -> str:
    """Return "at most 2 failures per thousand seeds predicted, 3 at 95% confidence" or alike."""
    confidence = f"at {100 * POLICY.tail_level:.3g}% confidence"
    if at_most and upper <= predicted:  # the seeds only bound the rate
        return f"fewer than {1000 * upper:.3g} failures per thousand {unit} {confidence}"
    return (
        f"{'at most ' if at_most else ''}{1000 * predicted:.3g} failures per thousand {unit}"
        f" predicted, {1000 * upper:.3g} {confidence}"
    )


def _sweep(ordered: Array) -> list[tuple[float, int, float, float]]:
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
        predicted = count / seeds * float(survival(reach, *pareto_fit(one))[0])
        fits.append((threshold, count, predicted, _bound(one, reach, seeds, rng)))
    return fits


def _bound(one: Array, reach: float, seeds: int, rng: np.random.Generator) -> float:
    """Return the quantile of the predicted rate over samples of the shrunk fit."""
    count = one.shape[1]
    shape, scale = (float(number[0]) for number in pareto_fit(one, shrink=True))
    block = max(1, _BLOCK // ((20 + int(math.sqrt(count))) * count))
    rates = []
    for start in range(0, POLICY.tail_bootstraps, block):
        draws = min(block, POLICY.tail_bootstraps - start)
        exceeding = rng.binomial(seeds, count / seeds, size=draws) / seeds
        exponential = -np.log1p(-rng.random((draws, count)))
        is_flat = abs(shape) < _FLAT
        drawn = exponential if is_flat else np.expm1(shape * exponential) / shape
        samples = np.sort(scale * drawn, axis=1)
        rates.append(exceeding * survival(reach, *pareto_fit(samples, shrink=True)))
    return float(np.quantile(np.concatenate(rates), POLICY.tail_level))


def pareto_fit(excess: Array, shrink: bool = False) -> tuple[Array, Array]:
    """Return (shape xi, scale sigma) of each row of exceedances.

    By Zhang and Stephens, Technometrics 51, 2009 (posterior mean, no iteration). excess: positive,
    (samples, k), sorted ascending in each row. The grid has 20 + sqrt(k) values of theta =
    -xi/sigma below 1/max, weighted by the profile likelihood. xi > 0 is a heavy tail.
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
