"""Pool seeds: what one seed can't decide, several can, since their estimates add up."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gonogo.arithmetic.formats import unit_roundoff
from gonogo.judgment.common import MAX_COMMON, MIN_SCORE, Common
from gonogo.judgment.diagnosis import NAMED, RankedFault
from gonogo.judgment.verdict import Explanation, OutputJudgment

WIDE_SHARE = 1 / 4
"""The share of a format's unit up to which pooled factors stay rounding where only an unknown order
explains a seed: its roundings have biases that seeds share."""


@dataclass(frozen=True)
class PooledFault:
    """The fault that explains the seeds that rounding doesn't.

    Attributes:
        label: what is wrong, as the seed says it where it explains most.
        size: the mean of the sizes; 1 for faults without one.
        share: the mean of the shares of the misfit that it takes away.
        seeds: on how many seeds it is among the best.
    """

    id: str
    label: str
    size: float
    share: float
    seeds: int


@dataclass(frozen=True)
class Pooled:
    """The answer about an output on several seeds.

    Attributes:
        explanation: the answer; suspect, where more seeds are needed.
        factors: the pooled common factors.
        reason: the factor that is too large; empty if none is.
        seeds: how many seeds there are.
        fault: the one that explains what rounding doesn't; None if none does.
    """

    explanation: Explanation
    factors: tuple[Common, ...]
    reason: str
    seeds: int
    fault: PooledFault | None = None


def pooled(seeds: Sequence[OutputJudgment]) -> Pooled:
    """Return the answer about an output on several seeds. Raises ValueError if there are none."""
    if not seeds:
        raise ValueError("there are no seeds to pool")
    factors = pooled_factors(pair for seed in seeds for pair in seed.common)
    limit = max(_limit(seed) for seed in seeds)
    beyond = [factor for factor in factors if factor.size > limit]
    worst = max((seed.explanation for seed in seeds), key=lambda explanation: explanation.rank)
    fault = pooled_fault(seeds)
    if not beyond:
        return Pooled(worst, factors, "", len(seeds), fault)
    largest = max(beyond, key=lambda factor: factor.size)
    reason = f"{largest.key} has a factor of {1 + largest.estimate:.7g} over {len(seeds)} seeds"
    return Pooled(Explanation.UNEXPLAINED, factors, reason, len(seeds), fault)


def pooled_fault(seeds: Iterable[OutputJudgment]) -> PooledFault | None:
    """Return the fault that explains most of what rounding doesn't, over the seeds with any such.

    A fault that isn't among a seed's best, or that its right values refute, explains nothing of it.
    """
    diagnoses = [seed.diagnosis for seed in seeds if seed.diagnosis is not None]
    by_id: dict[str, list[RankedFault]] = defaultdict(list)
    ranks: dict[str, int] = defaultdict(int)
    for diagnosis in diagnoses:
        for rank, ranked in enumerate(diagnosis.best):
            if not ranked.is_refuted:
                by_id[ranked.fault.id].append(ranked)
                ranks[ranked.fault.id] += rank
    if not by_id:
        return None
    shares = {id: sum(one.share for one in best) / len(diagnoses) for id, best in by_id.items()}
    # of a tie, that which the seeds name first
    id = max(shares, key=lambda id: (round(shares[id], 2), -ranks[id]))
    best, share = by_id[id], shares[id]
    if share < NAMED:
        return None
    label = max(best, key=lambda ranked: ranked.share).fault.label
    size = sum(ranked.size for ranked in best) / len(best)
    return PooledFault(id, label, size, share, len(best))


def pooled_factors(pairs: Iterable[Common]) -> tuple[Common, ...]:
    """Return the mean of the estimates of each source, each weighted by its precision."""
    by_key: dict[str, list[Common]] = defaultdict(list)
    for pair in pairs:
        if 0 < pair.deviation < math.inf:
            by_key[pair.key].append(pair)
    factors = []
    for key, estimates in by_key.items():
        weights = [pair.deviation**-2 for pair in estimates]
        total = sum(weights)
        mean = sum(w * pair.estimate for w, pair in zip(weights, estimates, strict=True)) / total
        deviation = 1 / math.sqrt(total)
        factors.append(Common(key, mean, deviation, abs(mean) >= MIN_SCORE * deviation))
    return tuple(factors)


def _limit(seed: OutputJudgment) -> float:
    """Return the largest factor that is rounding on a seed."""
    narrow = seed.program.narrow
    return max(MAX_COMMON, WIDE_SHARE * unit_roundoff(narrow)) if narrow else MAX_COMMON
