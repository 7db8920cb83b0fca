"""The tail of seeds that ran more than once: a seed that gives its numbers again tells nothing of
other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import rate
from gonogo.flakiness.special import beta_cdf
from gonogo.flakiness.tails import LIMIT, Tail, rates_in_words, tail

MOST_SEEDS = 32
"""Seeds with a tail of their own, the worst ones: each costs some milliseconds."""
RUNS, SEEDS = "runs", "seeds"


def tail_of(
    numbers: Iterable[tuple[int | None, float | None]],
    policy: FlakinessPolicy = POLICY,
    level: float | None = None,
    left: int = 0,
) -> Tail:
    """`tails.tail` of (seed, tolerance_ratio), oldest first, where seeds may come more than once
    with other numbers.

    Seed None: not controlled, each a seed of its own. left: runs that the caller left out already
    because they repeat one bit for bit.

    - Every seed once: `tail`, rates per seed.
    - A seed's numbers differ as much among themselves as from those of other seeds (one-way
      analysis of variance on ranks, Conover and Iman, American Statistician 35, 1981; p >
      policy.same_seed): each run is a new sample, and rates are per run.
    - Else the seeds are few samples seen many times, whatever the number of runs: one number per
      seed, the newest, makes the tail, per seed. Beside it the runs of each seed with enough of
      them have a tail of their own; the mean over these seeds is how often one of their runs fails.
      It is told where it is the larger one, and says nothing of other seeds.
    """
    told = [(seed, value) for seed, value in numbers]
    groups = _by_seed(told)
    known = [value for values in groups.values() for value in values]
    if len(known) == len(groups):
        return _too_few(tail([value for _, value in told], policy, level), left, policy)
    distinct = len(groups)
    if not clustered(list(groups.values()), policy):
        found = tail([value for _, value in told], policy, level, RUNS)
        return replace(
            found,
            distinct=distinct,
            per=RUNS,
            repeated=left,
            words=f"{found.words}, {_count(distinct)}",
        )
    again = left + len(known) - distinct
    newest = [values[-1] for values in groups.values()] + [math.nan] * (len(told) - len(known))
    others = _too_few(tail(newest, policy, level), again, policy)
    own = _of_these(groups, policy, others.level)
    if own is None:
        return others
    if not own.at_most and (
        others.predicted is None or others.at_most or (own.predicted or 0.0) > others.predicted
    ):
        return replace(own, left_out=others.left_out, repeated=left)
    return (
        replace(others, words=f"{others.words}; {own.words}")
        if others.predicted is None
        else others
    )


def clustered(groups: Sequence[Sequence[float]], policy: FlakinessPolicy = POLICY) -> bool:
    """Whether numbers of one group are more alike than those of different groups; False where none
    has two.
    """
    sizes = np.array([len(each) for each in groups])
    runs, count = int(sizes.sum()), len(groups)
    if count < 2 or runs <= count:
        return runs > count  # one seed alone stands for no other
    everything = np.concatenate([np.asarray(each, dtype=np.float64) for each in groups])
    _, place, often = np.unique(everything, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(often) - (often - 1) / 2)[place]
    means = np.add.reduceat(ranks, np.concatenate([[0], np.cumsum(sizes)[:-1]])) / sizes
    between = float((sizes * (means - ranks.mean()) ** 2).sum())
    within = float(np.square(ranks).sum() - (sizes * means**2).sum())
    if within <= 1e-9 * max(between, 1.0):
        return True
    ratio = between / (count - 1) / (within / (runs - count))
    first, second = count - 1, runs - count
    return beta_cdf(second / (second + first * ratio), second / 2, first / 2) <= policy.same_seed


def _by_seed(told: Sequence[tuple[int | None, float | None]]) -> dict[object, list[float]]:
    groups: dict[object, list[float]] = {}
    for place, (seed, value) in enumerate(told):
        if value is not None and not math.isnan(value):
            groups.setdefault(("alone", place) if seed is None else seed, []).append(abs(value))
    return groups


def _of_these(
    groups: Mapping[object, Sequence[float]], policy: FlakinessPolicy, level: float
) -> Tail | None:
    """How often a run of these very seeds fails, by the tail of each one's runs; None where none
    has enough of them.
    """
    enough = sorted(
        (values for values in groups.values() if len(values) >= policy.least_seeds),
        key=lambda values: -max(values),
    )
    if not enough:
        return None
    tails = [tail(values, policy, level, RUNS) for values in enough[:MOST_SEEDS]]
    weights = [1.0] * (len(tails) - 1) + [
        1.0 + len(enough) - len(tails)
    ]  # the milder rest counts as the mildest that was looked at
    runs = sum(map(len, enough))
    mean = sum(
        weight * (0.0 if each.at_most else each.predicted or 0.0)
        for each, weight in zip(tails, weights, strict=True)
    ) / len(enough)
    bound = sum(
        weight * (each.upper or 0.0) for each, weight in zip(tails, weights, strict=True)
    ) / len(enough)
    predicted = max(1.0 / (policy.tail_reach * runs), mean)
    upper = min(1.0, max(predicted, bound))
    observed = rate(sum(value > LIMIT for values in enough for value in values), runs, policy)
    finite = [value for values in enough for value in values if math.isfinite(value)]
    words = f"of these {_count(len(enough))[3:]} themselves {rates_in_words(predicted, upper, mean < predicted, level, RUNS)} ({runs} runs)"
    worst = next((each for each in tails if not each.at_most), tails[0])
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


def _too_few(found: Tail, again: int, policy: FlakinessPolicy) -> Tail:
    """With the runs that were no new samples, and in words that they were none where that leaves
    too few.
    """
    if not again:
        return found
    words = found.words
    if found.predicted is None and found.seeds:
        plural = "s are" if found.seeds > 1 else " is"
        words = f"{found.seeds} distinct seed{plural} too few to predict how often others fail ({policy.least_seeds} are needed), "
        words += f"however often they run again ({again} runs did)"
    return replace(found, repeated=again, words=words)


def _count(seeds: int) -> str:
    return f"of {seeds} seed{'' if seeds == 1 else 's'}"
