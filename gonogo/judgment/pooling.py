"""Pool seeds: what one seed can't decide, several can, since their estimates add up."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gonogo.spec.compared_outputs import BestFault, CommonFactor
from gonogo.spec.verdicts import Explanation, worst_explanation

MIN_SCORE = 4.89
"""Deviations by which a common factor must differ from 0: by chance once in a million."""
NAMED = 0.7
"""The share of the misfit that a fault must take away to be named."""
MAX_SUSPECT = 1
"""Suspect seeds of an output that may be chance: one in a thousand seeds is."""
Entry = Mapping[str, Any]
"""An output of a seed, as it is stored: the statistics of gonogo.spec.statistics."""


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
        reason: why the seeds together are worse than each alone; empty if they aren't.
        seeds: how many seeds there are.
        fault: the one that explains what rounding doesn't; None if none does.
    """

    explanation: Explanation
    factors: tuple[CommonFactor, ...]
    reason: str
    seeds: int
    fault: PooledFault | None = None


def pooled_entries(entries: Iterable[Entry]) -> Pooled:
    """Return the answer about an output on several seeds: an entry for each.

    Raises ValueError if there are none.
    """
    seeds = list(entries)
    if not seeds:
        raise ValueError("there are no seeds to pool")
    explanations = [Explanation(seed["explanation"]) for seed in seeds]
    factors = pooled_factors(
        CommonFactor(**pair) for seed in seeds for pair in seed.get("common") or ()
    )
    worst, fault = worst_explanation(explanations), pooled_fault(seeds)
    beyond = [one for one in factors if one.is_certain and abs(one.estimate) > one.limit]
    suspect = explanations.count(Explanation.suspect)
    reason = ""
    if beyond:
        largest = max(beyond, key=lambda factor: abs(factor.estimate))
        reason = f"{largest.source} has a factor of 1 {largest.estimate:+.2g}"
        reason += f" over {len(seeds):,} seeds"
    elif worst is Explanation.suspect and suspect > MAX_SUSPECT:
        reason = f"suspect in {suspect:,} of {len(seeds):,} seeds: together that is no chance"
    return Pooled(Explanation.unexplained if reason else worst, factors, reason, len(seeds), fault)


def pooled_fault(seeds: Sequence[Entry]) -> PooledFault | None:
    """Return the fault that explains most of what rounding doesn't, over the seeds with any such.

    A fault that isn't among a seed's best explains nothing of it.
    """
    rankings = [seed["faults"] for seed in seeds if seed.get("faults") is not None]
    by_id: dict[str, list[BestFault]] = defaultdict(list)
    ranks: dict[str, int] = defaultdict(int)
    for best in rankings:
        for rank, entry in enumerate(best):
            fault = BestFault(**entry)
            by_id[fault.id].append(fault)
            ranks[fault.id] += rank
    if not by_id:
        return None
    shares = {id: sum(one.share for one in of_id) / len(rankings) for id, of_id in by_id.items()}
    # of a tie, that which the seeds name first
    id = max(shares, key=lambda id: (round(shares[id], 2), -ranks[id]))
    if shares[id] < NAMED:
        return None
    label = max(by_id[id], key=lambda fault: fault.share).label
    size = sum(fault.size for fault in by_id[id]) / len(by_id[id])
    return PooledFault(id, label, size, shares[id], len(by_id[id]))


def pooled_factors(pairs: Iterable[CommonFactor]) -> tuple[CommonFactor, ...]:
    """Return the mean of the estimates of each source, each weighted by its precision."""
    by_source: dict[str, list[CommonFactor]] = defaultdict(list)
    for pair in pairs:
        if 0 < pair.deviation < math.inf:
            by_source[pair.source].append(pair)
    factors = []
    for source, estimates in by_source.items():
        weights = [pair.deviation**-2 for pair in estimates]
        total = sum(weights)
        mean = sum(w * pair.estimate for w, pair in zip(weights, estimates, strict=True)) / total
        deviation, limit = 1 / math.sqrt(total), max(pair.limit for pair in estimates)
        is_certain = abs(mean) >= MIN_SCORE * deviation
        factors.append(CommonFactor(source, mean, deviation, is_certain, limit))
    return tuple(factors)
