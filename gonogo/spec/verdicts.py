"""Verdicts: is the output within the declared tolerance, and does rounding explain its error?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gonogo.spec.tolerances import Tolerance


class Verdict(StrEnum):
    """The verdict on an output, a seed, a job or a run.

    Verdicts are declared worst first: a job's verdict is its worst.
    """

    error = "error"
    crash = "crash"
    hang = "hang"
    fail = "fail"
    pass_by_tolerance = "pass_by_tolerance"
    fail_by_tolerance = "fail_by_tolerance"
    suspect = "suspect"
    inconclusive = "inconclusive"
    not_judged = "not_judged"
    skipped = "skipped"
    not_run = "not_run"
    pass_ = "pass"

    @property
    def label(self) -> str:
        """The label that people read, such as "Hollow pass"."""
        return _LABELS.get(self, self.value.replace("_", " ").capitalize())

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
        return _SENTENCES[self]

    @property
    def rank(self) -> int:
        """0 is the worst (error), 11 the best (pass)."""
        return _RANKS[str(self)]

    @property
    def judges_kernel(self) -> bool:
        """Return whether it judges the kernel: only these verdicts count in rates."""
        return self in _JUDGE_KERNEL


_LABELS = {
    Verdict.pass_by_tolerance: "Hollow pass",
    Verdict.fail_by_tolerance: "False alarm",
}

_SENTENCES = {
    Verdict.error: (
        "Infrastructure or the request failed; nothing is said about the kernel's numbers."
    ),
    Verdict.crash: "The process that ran the kernel died.",
    Verdict.hang: "The kernel didn't return within its deadline.",
    Verdict.fail: "Red and wrong: outside the tolerance, and rounding doesn't explain it.",
    Verdict.pass_by_tolerance: (
        "Green and wrong: within the tolerance, but rounding doesn't explain the error."
    ),
    Verdict.fail_by_tolerance: (
        "Red and right: rounding explains the error, but the tolerance is tighter than the formats"
        " allow."
    ),
    Verdict.suspect: (
        "Within the tolerance, and at the edge of what rounding explains: more seeds decide."
    ),
    Verdict.inconclusive: (
        "The inputs or the arithmetic model can't tell a right kernel from a wrong one."
    ),
    Verdict.not_judged: "Green or red without arrays: whether rounding explains it is unknown.",
    Verdict.skipped: "The test was skipped.",
    Verdict.not_run: (
        "The test isn't in this build, or nothing was selected; zero tests run is never green."
    ),
    Verdict.pass_: "Green and right: within the tolerance, and rounding explains the error.",
}
_RANKS = {str(verdict): rank for rank, verdict in enumerate(Verdict)}
_JUDGE_KERNEL = frozenset(
    {
        Verdict.fail,
        Verdict.pass_by_tolerance,
        Verdict.fail_by_tolerance,
        Verdict.suspect,
        Verdict.pass_,
    },
)

WORST_FIRST: tuple[Verdict, ...] = tuple(Verdict)


class Explanation(StrEnum):
    """The answer to the question: does rounding explain the error?

    Members are declared worst first: a seed's explanation is the worst of its outputs.
    """

    unexplained = "unexplained"
    suspect = "suspect"
    inconclusive = "inconclusive"
    not_judged = "not_judged"
    explained = "explained"

    @property
    def sentence(self) -> str:
        """Return the meaning of the value in one sentence."""
        return _EXPLANATIONS[self]


_EXPLANATIONS = {
    Explanation.unexplained: "No rounding of this kernel's formats makes such an error.",
    Explanation.suspect: "Larger than rounding should be, smaller than a wrong term usually is.",
    Explanation.inconclusive: (
        "Every row was left out or has a constant x, or a red output without one of its terms would"
        " be explained, too."
    ),
    Explanation.not_judged: "There are no arrays to judge.",
    Explanation.explained: "The rounding of the formats accounts for all of it.",
}


@dataclass(frozen=True)
class Policy:
    """The thresholds of *explained* and *suspect*, as versioned data.

    Stored rows can be re-judged by another policy.

    Derivations: a budget B is a worst case and s a standard deviation, so right kernels stay near 1
    for budget_ratio, chi and rms directions; 3, 2 and 4 leave room for an arithmetic that was
    modeled only roughly. A maximum over `count` rows or columns of noise grows like sqrt(2 ln
    count). `chi_of_small_counts[n]` is sqrt(chi2 quantile(1 - 1e-6, n degrees of freedom) / n), the
    chi that pure noise on n elements passes once in a million: above n = 13 it is below 2 and no
    longer matters (checked against scipy in the tests).
    """

    version: str
    budget_ratio: float
    chi: float
    chi_of_small_counts: tuple[float, ...]
    direction: float
    suspect_budget_ratio: float
    suspect_chi: float
    suspect_direction: float
    cell: float = 8.0
    """The largest explained distance from a replay, in standard deviations of what isn't stored."""
    suspect_cell: float = 16.0
    common_factor: float = 2.0**-22
    """The largest explained |f| of a factor 1 + f of all rows: 2 units in the last place."""
    suspect_common_factor: float = 2.0**-21
    fault_share: float = 0.9
    """The share of the error, beyond the output's rounding, that one fault explains where no
    storing of narrow quantities does: rounding has no reason to look like a fault."""

    def chi_limit(self, count: float | None) -> float:
        """Return the largest explained chi of an output of `count` elements."""
        if count is None or not 1 <= count < len(self.chi_of_small_counts):
            return self.chi
        return max(self.chi, self.chi_of_small_counts[int(count)])

    def direction_limit(self, count: float | None) -> float:
        """Return the largest explained maximum of a direction over `count` rows or columns.

        With count None, return the limit of its rms form.
        """
        return (
            self.direction
            if count is None or count < 1
            else self.direction + math.sqrt(2 * math.log(count))
        )


POLICY = Policy(
    version="2",
    budget_ratio=3.0,
    chi=2.0,
    chi_of_small_counts=(
        math.inf,
        4.8916385,
        3.7169222,
        3.1971263,
        2.8886347,
        2.6791113,
        2.5251514,
        2.4059994,
        2.3103277,
        2.2313657,
        2.1647874,
        2.1076838,
        2.0580179,
        2.0143155,
    ),
    direction=4.0,
    suspect_budget_ratio=10.0,
    suspect_chi=5.0,
    suspect_direction=20.0,
)
"""The policy in force."""

CONSTANT_X = "x"
"""The unseen term of outputs for which x is constant in every row."""

Statistics = Mapping[str, Any]
"""Stored statistics of one output: name -> number, null, or (needed_atol) a map of numbers."""


def explain(statistics: Statistics, policy: Policy = POLICY) -> Explanation:
    """Return whether rounding explains the error of one output, from its stored numbers only.

    Reads nonfinite, count, budget_ratio, chi, every `*_z` (rms of a direction) and `*_z_max` with
    its `*_count` (its largest over rows or columns). A null says nothing, unless
    nonfinite_statistics calls it infinite; when nothing says anything the answer is inconclusive.
    An output without statistics (and so without arrays) is not judged.
    """
    if not statistics:
        return Explanation.not_judged
    if has_nonfinite(statistics):
        return Explanation.unexplained
    exact = statistics.get("exact")
    if isinstance(exact, Mapping) and exact.get("explanation") == Explanation.unexplained:
        return Explanation.unexplained
    if _unreproduced(statistics):
        share = _number(statistics.get("fault_share"))
        if share is not None and share >= policy.fault_share:
            return Explanation.unexplained
        is_explained = explain(_budget_only(statistics), policy) is not Explanation.unexplained
        return Explanation.suspect if is_explained else Explanation.unexplained
    worst = Explanation.inconclusive
    for value, limit, suspect_limit in _criteria(statistics, policy):
        if value <= limit:
            explanation = Explanation.explained
        elif value <= suspect_limit:
            explanation = Explanation.suspect
        else:
            return Explanation.unexplained
        if worst is not Explanation.suspect:
            worst = explanation
    return worst


def explain_output(is_within: bool, statistics: Statistics, policy: Policy = POLICY) -> Explanation:
    """Return explain(), but inconclusive for a red output whose faults could not all be seen.

    A fault of such a term (`unseen_terms`) would be explained, too, so nothing acquits the kernel.
    Where the term is x, no row says anything, and a green output is inconclusive, too.
    """
    explanation = explain(statistics, policy)
    terms = statistics.get("unseen_terms")
    if explanation is Explanation.explained and terms and (not is_within or CONSTANT_X in terms):
        return Explanation.inconclusive
    return explanation


def evidence(statistics: Statistics, policy: Policy = POLICY) -> float | None:
    """Return how far the error of an output is beyond the largest explained one.

    It is the largest ratio of a statistic to that statistic's largest explained value; up to 1 is
    explained. Every statistic here grows in proportion to the error, so an error of the same form
    would be explained if it were smaller by this factor. None when nothing says anything: no
    numbers, or NaN or Inf in the output, where the statistics are those of the other elements.
    """
    if _number(statistics.get("nonfinite")):
        return None
    largest = None
    for value, limit, _ in _criteria(statistics, policy):
        if largest is None or value / limit > largest:
            largest = value / limit
    return largest


def severity(verdict: str, outputs: Mapping[str, Statistics]) -> tuple[int, float]:
    """Return the sort key of a (seed, repeat), worst first; every list of worst seeds has it.

    It is the verdict, then the size of its worst output; infinite for a seed without outputs.
    outputs: output -> its verdict and statistics.
    """
    _, largest = min(map(_place, outputs.values()), default=(0, -math.inf))
    return _RANKS[str(verdict)], largest


def worst_first(outputs: Mapping[str, Statistics]) -> list[str]:
    """Return the names of a seed's outputs: the worst verdict first, then the largest `size`."""
    return sorted(outputs, key=lambda name: (*_place(outputs[name]), name))


def _place(output: Statistics) -> tuple[int, float]:
    return _RANKS[str(output["verdict"])], -size(output)


def size(output: Statistics) -> float:
    """Return how bad an output is among those of its verdict: `evidence`, infinite for NaN and Inf.

    Of a false alarm it is error / tolerance, because rounding explains its error.
    """
    if has_nonfinite(output):
        return math.inf
    ratio = _number(output.get("tolerance_ratio"))
    if output["verdict"] == Verdict.fail_by_tolerance and ratio is not None:
        return ratio
    return evidence(output) or 0.0


def has_nonfinite(statistics: Statistics) -> bool:
    """Return whether an output has wrong NaN or Inf: its statistics are those of the others."""
    return bool(_number(statistics.get("nonfinite"))) or any(
        map(_explains, statistics.get("nonfinite_statistics") or ())
    )


def _explains(name: str) -> bool:
    """Return whether the statistic of that name decides the explanation.

    Infinite statistics are stored as null, with their names in nonfinite_statistics.
    """
    return name in ("budget_ratio", "chi") or name.endswith(("_z", "_z_max"))


READ_BY_SEVERITY = (
    *("tolerance_ratio", "budget_ratio", "chi", "*_z", "*_z_max", "*_count", "count"),
    *("nonfinite", "nonfinite_statistics", "arithmetic", "may_store"),
    *("cell_max", "cell_row_max", "common_factor"),
)
"""The statistics that `severity` reads; "*" stands for all names that end so."""
_EXPLAINING = ("budget_ratio", "chi", "_z", "_z_max")
"""Endings of the names of the statistics that decide the explanation."""


CELLS = ("cell_max", "cell_row_max")
COMMON = "common_factor"
REPLAY = (*CELLS, COMMON)
"""The statistics that decide alone where an output's arithmetic was found by replay."""


def _unreproduced(statistics: Statistics) -> bool:
    """Return whether no program reproduces an output that may store narrow quantities.

    Its budget then is all that there is, which tells wrong from suspect, but acquits of nothing.
    """
    return statistics.get("arithmetic", "") is None and bool(statistics.get("may_store"))


def _budget_only(statistics: Statistics) -> Statistics:
    left_out = {"arithmetic", "may_store", *REPLAY}
    return {name: value for name, value in statistics.items() if name not in left_out}


def _criteria(statistics: Statistics, policy: Policy) -> Iterable[tuple[float, float, float]]:
    """Yield (value, largest explained, largest suspect) of each statistic that says something.

    An infinite statistic is stored as null and named in nonfinite_statistics; it is yielded as
    infinity, not left out.
    """
    count = _number(statistics.get("count"))
    infinite = statistics.get("nonfinite_statistics")
    if statistics.get("cell_max") is not None and not _unreproduced(statistics):
        limits = dict.fromkeys(CELLS, (policy.cell, policy.suspect_cell))
        limits[COMMON] = (policy.common_factor, policy.suspect_common_factor)
        for name, (limit, suspect_limit) in limits.items():
            value = _number(statistics.get(name))
            if value is not None:
                yield value, limit, suspect_limit
        return
    for name, raw in statistics.items():
        if not name.endswith(_EXPLAINING):
            continue
        value = math.inf if infinite and infinite.get(name) == "inf" else _number(raw)
        if value is None:
            continue
        if name == "budget_ratio":
            yield value, policy.budget_ratio, policy.suspect_budget_ratio
        elif name == "chi":
            yield value, policy.chi_limit(count), policy.suspect_chi
        elif name.endswith("_z"):
            yield value, policy.direction, policy.suspect_direction
        elif name.endswith("_z_max"):
            along = _number(statistics.get(name.removesuffix("_z_max") + "_count"))
            yield value, policy.direction_limit(along), policy.suspect_direction


def _number(value: object) -> float | None:
    """Return the absolute value of a stored number; None for null and NaN, which say nothing."""
    if type(value) is float:  # the common case: a page reads thousands of them
        return abs(value) if value == value else None
    if (
        value is None
        or isinstance(value, bool | str | Mapping)
        or not isinstance(value, int | float)
    ):
        return None
    return None if math.isnan(value) else abs(float(value))


def worst_explanation(explanations: Iterable[Explanation]) -> Explanation:
    """Return the worst of the outputs' explanations; not judged if there are none."""
    present = set(explanations)
    return next((member for member in Explanation if member in present), Explanation.not_judged)


def within(tolerance: Tolerance | None, statistics: Statistics) -> bool:
    """Return whether every declared comparator holds on one output, from its stored numbers only.

    None (undeclared) is within unless the output holds NaN or Inf where the reference is finite,
    which is outside every tolerance. allclose is read from needed_atol when its rtol is a stored
    one (so any tolerance of that rtol can be re-judged), else from tolerance_ratio, which belongs
    to the tolerance that the job declared. An undefined metric (PCC of a constant) isn't met.
    """
    if _number(statistics.get("nonfinite")):
        return False
    if tolerance is None:
        return True
    checks = []
    if tolerance.allclose is not None:
        checks.append(_within_allclose(*tolerance.allclose, statistics))
    if tolerance.pcc is not None:
        deficit = _signed(statistics.get("pcc_deficit"))
        checks.append(deficit is not None and 1 - deficit >= tolerance.pcc)
    if tolerance.frobenius is not None:
        checks.append(_at_most(statistics.get("rel_frobenius"), tolerance.frobenius))
    if tolerance.ulp is not None:
        checks.append(_at_most(statistics.get("ulp_max"), tolerance.ulp))
    return all(checks)


def _within_allclose(rtol: float, atol: float, statistics: Statistics) -> bool:
    needed = statistics.get("needed_atol")
    if isinstance(needed, Mapping):
        for text, value in needed.items():
            if float(text) == rtol and (stored := _signed(value)) is not None:
                return stored <= atol
    return _at_most(statistics.get("tolerance_ratio"), 1.0)


def _signed(value: object) -> float | None:
    if (
        value is None
        or isinstance(value, bool)
        or not isinstance(value, int | float)
        or math.isnan(value)
    ):
        return None
    return float(value)


def _at_most(value: object, limit: float) -> bool:
    stored = _signed(value)
    return stored is not None and stored <= limit


def verdict(is_within: bool, explanation: Explanation) -> Verdict:
    """Return the verdict for the answers to the two questions."""
    match explanation:
        case Explanation.explained:
            return Verdict.pass_ if is_within else Verdict.fail_by_tolerance
        case Explanation.unexplained:
            return Verdict.pass_by_tolerance if is_within else Verdict.fail
        case Explanation.suspect:
            return Verdict.suspect if is_within else Verdict.fail
        case Explanation.inconclusive:
            return Verdict.inconclusive
        case Explanation.not_judged:
            return Verdict.not_judged


def seed_verdict(outputs: Iterable[tuple[bool, Explanation]]) -> Verdict:
    """Return the verdict of a seed from both answers of each of its outputs.

    A seed is red where an output is. A suspect output that is green makes no red seed a `fail`:
    there the red outputs decide.
    """
    answers = list(outputs)
    explanation = worst_explanation(answer for _, answer in answers)
    red = [answer for is_within, answer in answers if not is_within]
    if red and explanation is Explanation.suspect:
        explanation = worst_explanation(red)
    return verdict(not red, explanation)


def worst(verdicts: Iterable[Verdict | str]) -> Verdict:
    """Return the worst of the verdicts; not run if there are none.

    Zero tests run is never green.
    """
    return min(
        (Verdict(name) for name in verdicts),
        key=lambda verdict: verdict.rank,
        default=Verdict.not_run,
    )
