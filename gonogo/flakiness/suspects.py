"""Suspect seeds: all seeds of a test decide together what one seed leaves open."""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from gonogo.flakiness.policy import POLICY
from gonogo.spec.verdicts import Explanation, Verdict

if TYPE_CHECKING:
    from gonogo.judgment.pooling import Pooled

Entry = Mapping[str, Any]
"""An output of a seed: its explanation and its statistics, as they are stored."""
Seeds = Iterable[tuple[Hashable, Mapping[str, Entry]]]
"""(seed, output -> its entry); a seed may be there several times, with its repeats."""
RED = frozenset({Verdict.fail, Verdict.fail_by_tolerance})
"""The verdicts of an output that is outside its tolerance."""
SETTLED: Mapping[Verdict, Verdict] = {
    Verdict.pass_: Verdict.pass_by_tolerance,
    Verdict.suspect: Verdict.pass_by_tolerance,
    Verdict.fail_by_tolerance: Verdict.fail,
}
"""Verdict of a seed -> its verdict where an output is unexplained together; others stay."""
MAX_SEEDS = 1000
"""More seeds than anybody runs for this: nothing larger is told."""
MOST = 1e3
"""Evidence beyond this says nothing more: a distance is no size."""
_OPEN = (Explanation.suspect, Explanation.explained)
"""Explanations that all seeds together may overrule."""


def pooled_outputs(seeds: Seeds) -> dict[str, Pooled]:
    """Return the answer about each output over several seeds.

    Repeats of a seed count once, by the worst explanation: they have the same inputs.
    """
    return {name: _pooled(entries) for name, entries in _by_output(seeds).items()}


def unexplained_together(seeds: Seeds) -> dict[str, str]:
    """Return the outputs that all seeds together leave unexplained, each with a sentence.

    They are those with several suspect seeds, and those with a common factor that is beyond its
    limit only over the seeds. Seeds that are unexplained alone are left out: they need no others.
    """
    reasons = {}
    for name, entries in _by_output(seeds).items():
        others = [one for one in entries if one.get("explanation") != Explanation.unexplained]
        reasons[name] = _pooled(others).reason if len(others) > 1 else ""
    return {name: reason for name, reason in reasons.items() if reason}


def is_settled(entry: Entry, output: str, together: Container[str]) -> bool:
    """Return whether an output of a seed becomes unexplained by all seeds together.

    together: outputs that `unexplained_together` names. One that a seed alone explains does, too:
    the same kernel computed it.
    """
    return output in together and entry.get("explanation") in _OPEN


def settled_verdict(
    verdict: Verdict | str, outputs: Mapping[str, Entry], together: Container[str]
) -> Verdict:
    """Return the final verdict of a seed. together: outputs that `unexplained_together` names."""
    alone = Verdict(verdict)
    settles = any(is_settled(entry, name, together) for name, entry in outputs.items())
    return SETTLED.get(alone, alone) if settles else alone


def _by_output(seeds: Seeds) -> dict[str, list[Entry]]:
    """Return the entries of each output that have an explanation, one of each seed."""
    outputs: dict[str, dict[Hashable, Entry]] = {}
    for seed, entries in seeds:
        judged = {n: entry for n, entry in entries.items() if entry.get("explanation")}
        for name, entry in judged.items():
            members = outputs.setdefault(name, {})
            if seed not in members or _rank(entry) < _rank(members[seed]):
                members[seed] = entry
    return {name: list(members.values()) for name, members in outputs.items()}


def _rank(entry: Entry) -> int:
    return Explanation(entry["explanation"]).rank


def _pooled(entries: Iterable[Entry]) -> Pooled:
    from gonogo.judgment.pooling import pooled_entries  # it loads NumPy, and few jobs need it

    return pooled_entries(entries)


def seeds_to_decide(outputs: Iterable[Iterable[Entry]]) -> int:
    """Return about how many more seeds would show on which side of rounding's edge the outputs are.

    A seed's evidence is the ratio of its error to the largest explained one. The mean of n seeds is
    known to s / sqrt(n), so it differs from 1 by `edge_sigmas` of that after (edge_sigmas s /
    (mean - 1))^2 seeds. 0: the seeds agree already, so more of them would stay where these are.
    """
    return max((_seeds_to_decide(list(entries)) for entries in outputs), default=0)


def _seeds_to_decide(entries: Sequence[Entry]) -> int:
    ratios = [ratio for entry in entries if (ratio := evidence(entry)) is not None]
    if len(ratios) < 2:
        return POLICY.suspect_seeds
    distance, reach = abs(fmean(ratios) - 1), POLICY.edge_sigmas * stdev(ratios)
    if reach <= distance * math.sqrt(len(ratios)):
        return 0
    if distance * math.sqrt(MAX_SEEDS) < reach:
        return MAX_SEEDS
    return math.ceil((reach / distance) ** 2) - len(ratios)


def evidence(entry: Entry) -> float | None:
    """Return how far the error of an output is beyond the largest explained one.

    It is the largest ratio of a distance, a shared error or a certain common factor to its limit,
    up to MOST; up to 1 is explained. None where nothing was judged, and for NaN and Inf.
    """
    from gonogo.arithmetic import TIE  # it loads NumPy

    if entry.get("nonfinite"):
        return None
    sizes = [entry.get(name) for name in ("distance", "shared")]
    certain = [factor for factor in entry.get("common") or () if factor["is_certain"]]
    ratios = [size / TIE for size in sizes if size is not None]
    ratios += [abs(factor["estimate"]) / factor["limit"] for factor in certain]
    return min(max(ratios), MOST) if ratios else None
