"""Suspect seeds: the pooled statistics of more seeds decide, because one seed raises no flag."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, stdev
from typing import Any

from gonogo.flakiness.policy import POLICY as FLAKINESS
from gonogo.spec import arithmetic_words, missed_rows, unseen_terms
from gonogo.spec.verdicts import REPLAY, Explanation, Verdict, evidence, explain_output

RED = frozenset({Verdict.fail, Verdict.fail_by_tolerance})
"""The verdicts of an output that is outside its tolerance."""
SETTLED = {
    (Verdict.suspect, Explanation.explained): Verdict.pass_,
    (Verdict.suspect, Explanation.inconclusive): Verdict.pass_,
    (Verdict.suspect, Explanation.unexplained): Verdict.pass_by_tolerance,
    (Verdict.fail, Explanation.explained): Verdict.fail_by_tolerance,
    (Verdict.fail, Explanation.inconclusive): Verdict.inconclusive,
    (Verdict.fail, Explanation.unexplained): Verdict.fail,
    (Verdict.fail_by_tolerance, Explanation.unexplained): Verdict.fail,
    (Verdict.inconclusive, Explanation.unexplained): Verdict.fail,
}
"""(Verdict of a suspect seed, pooled explanation) -> its final verdict; others keep their own."""
MAX_SEEDS = 1000
"""More seeds than anybody runs for this: nothing larger is told."""


def pooled(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the statistics of one output over many seeds, under the stored names.

    rms directions and chi: the rms over the seeds. For noise alone it tends to 1; a wrong term adds
    the same to each seed, so chance averages out and a fault does not. Maxima stay maxima, and
    their counts add up, as the limit of a maximum grows with its count. budget_ratio is the second
    largest: one rare element in one seed is forgiven, but a budget is a worst case, so two seeds
    beyond it are no accident (a single wrong row or column would hide behind the median of seeds
    that it spares). The same holds for the distances from a replay. NaN, Inf and null say nothing
    here: a non-finite output is unexplained by itself, before any pooling. One seed that no
    arithmetic model reproduces is enough that none explains all of them. A term is unseen where no
    seed could have seen it.
    """
    values: dict[str, list[float]] = {}
    seeds = list(rows)
    for row in seeds:
        for name, raw in row.items():
            if isinstance(raw, int | float) and not isinstance(raw, bool) and math.isfinite(raw):
                values.setdefault(name, []).append(abs(float(raw)))
    statistics: dict[str, Any] = {}
    for name, numbers in values.items():
        if name == "budget_ratio" or name in REPLAY:
            statistics[name] = sorted(numbers)[max(len(numbers) - 2, 0)]
        elif name == "chi" or name.endswith("_z"):
            largest = max(numbers)
            statistics[name] = (
                largest * math.sqrt(sum((value / largest) ** 2 for value in numbers) / len(numbers))
                if largest > 0
                else 0.0
            )
        elif name.endswith("_z_max"):
            statistics[name] = max(numbers)
        elif name == "count" or name.endswith("_count"):
            statistics[name] = math.fsum(numbers)
    return statistics | _arithmetic(seeds)


def _arithmetic(seeds: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arithmetic model of all seeds; {} where their build names it."""
    replayed = [row for row in seeds if arithmetic_words.was_replayed(row)]
    if not replayed:
        return {}
    names = Counter(row.get("arithmetic") for row in replayed)
    terms = unseen_terms.shared(replayed)
    missed = missed_rows.pooled(replayed)
    return {
        "arithmetic": None if None in names else next(iter(arithmetic_words.counted(names))),
        "may_store": any(row.get("may_store") for row in replayed),
        **_largest(replayed, "fault_share"),
        **({} if missed is None else {missed_rows.NAME: asdict(missed)}),
        **({unseen_terms.NAME: list(terms)} if terms else {}),
    }


def _largest(rows: Iterable[Mapping[str, Any]], name: str) -> dict[str, float]:
    numbers = [row[name] for row in rows if isinstance(row.get(name), int | float)]
    return {name: max(numbers)} if numbers else {}


def pooled_explanations(
    outputs: Mapping[str, Iterable[Mapping[str, Any]]],
) -> dict[str, Explanation]:
    """Return the explanation of each output of a job with suspect seeds, from pooled statistics.

    An output that is still suspect is neither a finding nor an all-clear, unless its seeds together
    miss too many rows of their program: then it is unexplained. One that is red in a seed
    (its `verdict` there) isn't acquitted of a term that no seed could have seen: it is
    inconclusive.
    """
    explanations = {}
    for name, members in outputs.items():
        rows = list(members)
        is_within = not any(row.get("verdict") in RED or unseen_terms.is_cause(row) for row in rows)
        explanations[name] = explain_output(is_within, pooled(rows))
        if explanations[name] is Explanation.suspect and missed_rows.is_unexplained(rows):
            explanations[name] = Explanation.unexplained
    return explanations


def unexplained_together(
    seeds: Iterable[tuple[Hashable, Mapping[str, Mapping[str, Any]]]],
) -> dict[str, str]:
    """Return the suspect outputs that all seeds together leave unexplained, each with a sentence.

    Two suspect seeds of one output are no chance, and neither are too many missed rows
    (gonogo.spec.missed_rows) of a suspect one.

    seeds: (seed, output -> its statistics with `explanation`). Repeats of a seed count once.
    """
    outputs: dict[str, dict[Hashable, Mapping[str, Any]]] = {}
    for seed, entries in seeds:
        for name, entry in entries.items():
            members = outputs.setdefault(name, {})
            if seed not in members or _is_suspect(entry):
                members[seed] = entry
    together = {}
    for name, members in outputs.items():
        suspect = sum(map(_is_suspect, members.values()))
        misses = suspect and len(members) > 1 and missed_rows.is_unexplained(members.values())
        if suspect > 1 or misses:
            together[name] = (
                f"suspect in {suspect:,} of {len(members):,} seeds:"
                " rounding doesn't explain them together"
            )
    return together


def settled_verdict(
    verdict: Verdict | str, outputs: Mapping[str, Mapping[str, Any]], together: Container[str]
) -> Verdict:
    """Return the final verdict of a seed. together: outputs that `unexplained_together` names."""
    if any(name in together and _is_suspect(entry) for name, entry in outputs.items()):
        return SETTLED.get((Verdict(verdict), Explanation.unexplained), Verdict(verdict))
    return Verdict(verdict)


def _is_suspect(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("explanation") == Explanation.suspect)


def seeds_to_decide(outputs: Iterable[Iterable[Mapping[str, Any]]]) -> int:
    """Return about how many more seeds would show on which side of rounding's edge the outputs are.

    A seed's evidence is the ratio of its error to the largest explained one. The mean of n seeds is
    known to s / sqrt(n), so it differs from 1 by `edge_sigmas` of that after (edge_sigmas s /
    (mean - 1))^2 seeds. 0: the seeds agree already, so more of them would stay where these are.
    """
    return max((_seeds_to_decide(list(rows)) for rows in outputs), default=0)


def _seeds_to_decide(rows: Sequence[Mapping[str, Any]]) -> int:
    ratios = [ratio for row in rows if (ratio := evidence(row)) is not None]
    ratios = [ratio for ratio in ratios if math.isfinite(ratio)]
    if len(ratios) < 2:
        return FLAKINESS.suspect_seeds
    distance = abs(fmean(ratios) - 1)
    scatter = stdev(ratios)
    if FLAKINESS.edge_sigmas * scatter <= distance * math.sqrt(len(ratios)):
        return 0
    if distance * math.sqrt(MAX_SEEDS) < FLAKINESS.edge_sigmas * scatter:
        return MAX_SEEDS
    return math.ceil((FLAKINESS.edge_sigmas * scatter / distance) ** 2) - len(ratios)
