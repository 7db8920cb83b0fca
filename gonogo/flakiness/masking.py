"""Fixed, or only masked? Compare two builds by their errors, not by red and green."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median
from types import MappingProxyType
from typing import Any, NamedTuple

from gonogo.flakiness.policy import POLICY, FlakinessPolicy
from gonogo.flakiness.rates import Rate, rate
from gonogo.spec.verdicts import POLICY as VERDICTS
from gonogo.spec.verdicts import Explanation


class Change(StrEnum):
    """The change of a kernel between two builds."""

    unchanged = "unchanged"
    fix_masked = "fix_masked"
    fixed = "fixed"
    broken = "broken"
    still_wrong = "still_wrong"
    wrong_otherwise = "wrong_otherwise"
    right = "right"
    unknown = "unknown"

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
        return _SENTENCES[self]


_SENTENCES = {
    Change.unchanged: "Nothing changed in this kernel: every output is the same bit for bit.",
    Change.fix_masked: (
        "The verdict turned green, and the error stayed: the fault is masked, not fixed."
    ),
    Change.fixed: "The error was unexplained, and rounding explains it now.",
    Change.broken: "Rounding explained the error, and does not any more.",
    Change.still_wrong: "The error is unexplained on both, and looks the same.",
    Change.wrong_otherwise: (
        "The error is unexplained on both, and looks different: another fault, or one of several"
        " fixed."
    ),
    Change.right: "Rounding explains the error on both.",
    Change.unknown: "One of the builds has no judged seeds: there is no baseline.",
}


@dataclass(frozen=True)
class Coefficients:
    """The fraction of each tile's part of a term that was used, with standard errors.

    They come from gonogo.kernels.layernorm.forensics; None: it can't be determined.
    """

    values: tuple[float | None, ...]
    errors: tuple[float | None, ...]
    wrong: bool
    words: str = ""


class Seed(NamedTuple):
    """One seed of one build: its color, its explanation, and its digests and statistics.

    Digests and stored statistics are by output. `green` is the answer of the seed's own gate.
    """

    green: bool | None
    explanation: Explanation
    digests: Mapping[str, str] = MappingProxyType({})
    statistics: Mapping[str, Mapping[str, float | None]] = MappingProxyType({})


@dataclass(frozen=True)
class Record:
    """A test on a build: its seeds, and the forensic terms, named "output term"."""

    build: str
    seeds: Mapping[int, Seed]
    terms: Mapping[str, Coefficients] = field(default_factory=dict)


@dataclass(frozen=True)
class BuildChange:
    """The comparison of two builds of one test, with its evidence."""

    before: str
    after: str
    change: Change
    turned_green: bool
    red: tuple[Rate, Rate]
    unexplained: tuple[Rate, Rate]
    same: tuple[str, ...]
    """Wrong terms, or statistics, that stayed the same."""
    differing: tuple[str, ...]
    by: str
    """The basis of the comparison of the signatures: digests, coefficients, statistics, or
    nothing."""
    words: str
    policy: str


def compare_builds(before: Record, after: Record, policy: FlakinessPolicy = POLICY) -> BuildChange:
    """Return how a kernel changed from one build to the next.

    See 4-flakiness, "Fixed or only masked?". Unchanged: all seeds that both builds ran have equal
    digests. Else the explanations decide: a build counts as wrong when a seed is unexplained, as
    right when seeds are explained and none is unexplained. If both are wrong, the signature
    decides: forensic coefficients where both have them (every term that is wrong after was wrong
    before, with the same coefficients), else the statistics above their explained limits, within a
    factor. Turned green: red seeds before, and none after. Explained statistics are noise and are
    not compared.
    """
    red = _share(before, policy, _is_red), _share(after, policy, _is_red)
    unexplained = _share(before, policy, _is_wrong), _share(after, policy, _is_wrong)
    turned = red[0].failures > 0 and red[1].failures == 0 and red[1].known
    if not (unexplained[0].known and unexplained[1].known):
        missing = " and ".join(
            record.build
            for record, share in zip((before, after), unexplained, strict=True)
            if not share.known
        )
        return BuildChange(
            before.build,
            after.build,
            Change.unknown,
            turned,
            red,
            unexplained,
            (),
            (),
            "nothing",
            f"{Change.unknown.sentence} No judged seed of {missing}.",
            policy.version,
        )
    bits = _bits(before, after)
    same: tuple[str, ...] = ()
    differing: tuple[str, ...] = ()
    wrong = unexplained[0].failures > 0, unexplained[1].failures > 0
    by = "explanations"
    if bits:
        change, by = Change.unchanged, "digests"
    elif wrong == (True, True):
        same, differing, by = _signature(before, after, policy)
        if same and not differing:
            change = Change.fix_masked if turned else Change.still_wrong
        else:
            change = Change.wrong_otherwise
    elif wrong == (False, False):
        change = Change.right
    else:
        change = Change.fixed if wrong[0] else Change.broken
    words = _words(change, before, after, turned, red, unexplained, same, differing, by, bits)
    return BuildChange(
        before.build,
        after.build,
        change,
        turned,
        red,
        unexplained,
        same,
        differing,
        by,
        words,
        policy.version,
    )


def series(records: Sequence[Record], policy: FlakinessPolicy = POLICY) -> tuple[BuildChange, ...]:
    """Compare each build with the nearest earlier one that has judged seeds.

    Builds without judged seeds give `unknown` and are no baseline.
    """
    changes: list[BuildChange] = []
    base: Record | None = None
    for record in records:
        if base is not None:
            changes.append(compare_builds(base, record, policy))
        if judged(record) or base is None:
            base = record
    return tuple(changes)


def judged(record: Record) -> bool:
    """Return whether any of its seeds is explained or unexplained.

    Without such a seed a build is no baseline.
    """
    return any(_is_wrong(seed) is not None for seed in record.seeds.values())


def _is_red(seed: Seed) -> bool | None:
    return None if seed.green is None else not seed.green


def _is_wrong(seed: Seed) -> bool | None:
    """Return whether it is unexplained; None for suspect, inconclusive and not judged."""
    if seed.explanation is Explanation.unexplained:
        return True
    return False if seed.explanation is Explanation.explained else None


def _share(record: Record, policy: FlakinessPolicy, question: Any) -> Rate:
    answers = [question(seed) for seed in record.seeds.values()]
    return rate(answers.count(True), answers.count(True) + answers.count(False), policy)


def _bits(before: Record, after: Record) -> int:
    """Return the number of common seeds if all their outputs are equal bit for bit, else 0."""
    equal = 0
    for number in before.seeds.keys() & after.seeds.keys():
        one, two = before.seeds[number].digests, after.seeds[number].digests
        if not one or not two:
            continue
        if one != two:
            return 0
        equal += 1
    return equal


def _signature(
    before: Record, after: Record, policy: FlakinessPolicy
) -> tuple[tuple[str, ...], tuple[str, ...], str]:
    """Return (names that stayed, names that differ, basis of the comparison)."""
    wrong = (
        {name for name, term in after.terms.items() if term.wrong},
        {name for name, term in before.terms.items() if term.wrong},
    )
    if wrong[0] and wrong[1]:
        same = tuple(
            sorted(
                name
                for name in wrong[0] & wrong[1]
                if same_coefficients(before.terms[name], after.terms[name], policy)
            )
        )
        return same, tuple(sorted(wrong[0] - set(same))), "coefficients"
    if before.terms and after.terms and (wrong[0] or wrong[1]):
        return (), tuple(sorted(wrong[0] | wrong[1])), "coefficients"
    first, second = _typical(before), _typical(after)
    same_numbers: list[str] = []
    other: list[str] = []
    for name in sorted(first.keys() & second.keys()):
        if max(first[name] / _limit(name), second[name] / _limit(name)) <= 1:
            continue  # explained on both: noise
        close = abs(math.log(first[name]) - math.log(second[name])) <= math.log(policy.same_factor)
        (same_numbers if close else other).append(name)
    return tuple(same_numbers), tuple(other), "statistics" if same_numbers or other else "nothing"


def same_coefficients(
    first: Coefficients, second: Coefficients, policy: FlakinessPolicy = POLICY
) -> bool:
    """Return whether most tiles have the same coefficient.

    The same means: within their joint standard errors, or a twentieth. Tiles with a coefficient on
    one side only are left out. Terms that are cut into different groups of tiles, or have no tile
    in common, are not the same.
    """
    if len(first.values) != len(second.values):
        return False
    close = []
    for a, b, ea, eb in zip(first.values, second.values, first.errors, second.errors, strict=True):
        if a is None or b is None or not (math.isfinite(a) and math.isfinite(b)):
            continue
        error = math.hypot(ea or 0.0, eb or 0.0)
        error = error if math.isfinite(error) else 0.0
        close.append(abs(a - b) <= max(policy.same_coefficient, policy.same_sigmas * error))
    return bool(close) and sum(close) >= policy.same_share * len(close)


def _limit(name: str) -> float:
    """Return the largest explained value of a statistic, "output name"."""
    if name.endswith("_z"):
        return VERDICTS.direction
    return VERDICTS.chi if name.endswith("chi") else VERDICTS.budget_ratio


def _typical(record: Record) -> dict[str, float]:
    """Return the median of each positive statistic that decides the explanation, "output name".

    Only unexplained seeds count. Maxima are left out, because they scatter.
    """
    by_name: dict[str, list[float]] = {}
    for seed in record.seeds.values():
        if seed.explanation is Explanation.unexplained:
            for output, statistics in seed.statistics.items():
                for name, value in statistics.items():
                    explains = name in ("budget_ratio", "chi") or name.endswith("_z")
                    if explains and value is not None and math.isfinite(value) and value != 0:
                        by_name.setdefault(f"{output} {name}", []).append(abs(value))
    return {name: median(values) for name, values in by_name.items()}


def _words(
    change: Change,
    before: Record,
    after: Record,
    turned: bool,
    red: tuple[Rate, Rate],
    unexplained: tuple[Rate, Rate],
    same: Iterable[str],
    differing: Iterable[str],
    by: str,
    bits: int,
) -> str:
    parts = [f"{before.build} to {after.build}: {change.sentence.removesuffix('.')}"]
    if bits:
        parts.append(f"{bits} seeds compared")
        if turned:
            parts.append(
                "the verdict turned green for another reason: another tolerance, policy or set of"
                " seeds"
            )
    else:
        parts.append(
            f"red {_count(red[0])}, then {_count(red[1])};"
            f" unexplained {_count(unexplained[0])}, then {_count(unexplained[1])}"
        )
    if named := list(same):
        same_terms = [
            f"{name} ({after.terms[name].words})"
            if name in after.terms and after.terms[name].words
            else name
            for name in named[:4]
        ]
        parts.append(f"the same by {by}: {', '.join(same_terms)}")
    if others := list(differing):
        parts.append(f"different: {', '.join(others[:4])}")
    return "; ".join(parts)


def _count(share: Rate) -> str:
    return f"{share.failures} of {share.runs}" if share.known else "not known"
