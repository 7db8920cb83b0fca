"""The tail of seeds that ran more than once.

A seed that repeats its numbers says nothing about other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gonogo.flakiness.history import Tail
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate
from gonogo.flakiness.special import beta_cdf
from gonogo.flakiness.tails import LIMIT, rates_in_words, tail

MAX_SEEDS = 32
"""Seeds that get a tail of their own, the worst ones: each takes some milliseconds."""
RUNS, SEEDS = "runs", "seeds"


def tail_of(numbers: Iterable[tuple[int | None, float | None]], left: int = 0) -> Tail:
    """Return `tails.tail` of (seed, tolerance_ratio) pairs in which seeds may repeat.

    numbers: oldest first. Seed None: not controlled, so it counts as a distinct seed. left: runs
    that the caller left out because they repeat another bit for bit.

    - If every seed is there once: `tail`, rates per seed.
    - If a seed's numbers differ among themselves as much as from those of other seeds (one-way
      analysis of variance on ranks, Conover and Iman, American Statistician 35, 1981; p >
      POLICY.same_seed): each run is a new sample, and rates are per run.
    - Else the seeds are few samples seen many times, however many runs there are: one number per
      seed, the newest, makes the tail, per seed. In addition, the runs of each seed with enough of
      them have a tail of their own; the mean over these seeds is how often one of their runs fails.
      It is reported if it is larger, and says nothing about other seeds.
    """
    pairs = [(seed, value) for seed, value in numbers]
    groups = _by_seed(pairs)
    known = [value for values in groups.values() for value in values]
    if len(known) == len(groups):
        return _too_few(tail([value for _, value in pairs]), left)
    distinct = len(groups)
    if not clustered(list(groups.values())):
        by_run = tail([value for _, value in pairs], unit=RUNS)
        return replace(
            by_run,
            distinct=distinct,
            per=RUNS,
            repeated=left,
            words=f"{by_run.words}, {_count(distinct)}",
        )
    repeated = left + len(known) - distinct
    newest = [values[-1] for values in groups.values()] + [math.nan] * (len(pairs) - len(known))
    by_seed = _too_few(tail(newest), repeated)
    of_these = _of_these(groups, by_seed.level)
    if of_these is None:
        return by_seed
    if not of_these.at_most and (
        by_seed.predicted is None or by_seed.at_most or _rates(of_these)[0] > by_seed.predicted
    ):
        return replace(of_these, left_out=by_seed.left_out, repeated=left)
    return (
        replace(by_seed, words=f"{by_seed.words}; {of_these.words}")
        if by_seed.predicted is None
        else by_seed
    )


def clustered(groups: Sequence[Sequence[float]]) -> bool:
    """Return whether numbers within a group are more alike than those of different groups.

    False if no group has two numbers.
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
    ratio = between / (count - 1) / (within / (runs - count))
    first, second = count - 1, runs - count
    return beta_cdf(second / (second + first * ratio), second / 2, first / 2) <= POLICY.same_seed


def _by_seed(pairs: Sequence[tuple[int | None, float | None]]) -> dict[object, list[float]]:
    groups: dict[object, list[float]] = {}
    for place, (seed, value) in enumerate(pairs):
        if value is not None and not math.isnan(value):
            groups.setdefault(("alone", place) if seed is None else seed, []).append(abs(value))
    return groups


def _of_these(groups: Mapping[object, Sequence[float]], level: float) -> Tail | None:
    """Return how often a run of these very seeds fails, from the tail of each seed's runs.

    None if no seed has enough of them.
    """
    enough = sorted(
        (values for values in groups.values() if len(values) >= POLICY.least_seeds),
        key=lambda values: -max(values),
    )
    if not enough:
        return None
    tails = [tail(values, level, RUNS) for values in enough[:MAX_SEEDS]]
    # the milder rest counts as the mildest seed with a tail
    rates_of = [*map(_rates, tails)] + [_rates(tails[-1])] * (len(enough) - len(tails))
    runs = sum(map(len, enough))
    mean, bound = (sum(rates) / len(enough) for rates in zip(*rates_of, strict=True))
    predicted = max(1.0 / (POLICY.tail_reach * runs), mean)
    upper = min(1.0, max(predicted, bound))
    observed = rate(sum(value > LIMIT for values in enough for value in values), runs)
    finite = [value for values in enough for value in values if math.isfinite(value)]
    rates = rates_in_words(predicted, upper, mean < predicted, level, RUNS)
    words = f"of these {_count(len(enough))[3:]} themselves {rates} ({runs} runs)"
    worst = next((fit for fit in tails if not fit.at_most), tails[0])
    return Tail(
        runs,
        0,
        observed,
        predicted,
        upper,
        mean < predicted,
        level,
        worst.thresholds,
        max(finite, default=None),
        words,
        len(enough),
        RUNS,
    )


def _rates(fit: Tail) -> tuple[float, float]:
    """Return the predicted rate and its bound, of a tail with enough samples."""
    assert fit.predicted is not None
    assert fit.upper is not None
    return 0.0 if fit.at_most else fit.predicted, fit.upper


def _too_few(fit: Tail, repeated: int) -> Tail:
    """Return the tail with the number of runs that were no new samples.

    Where too few samples are left, its words say so.
    """
    if not repeated:
        return fit
    words = fit.words
    if fit.predicted is None and fit.seeds:
        plural = "s are" if fit.seeds > 1 else " is"
        words = (
            f"{fit.seeds} distinct seed{plural} too few to predict how often others fail"
            f" ({POLICY.least_seeds} are needed), however often they run again"
            f" ({repeated} runs did)"
        )
    return replace(fit, repeated=repeated, words=words)


def _count(seeds: int) -> str:
    return f"of {seeds} seed{'' if seeds == 1 else 's'}"
