"""Judge outputs with no arithmetic model named: the only module that knows the product's entry."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import gonogo
from benchmarks.libraries.cases import Case, Tensors, inputs
from gonogo.spec.kernels.registry import KERNELS

TOLERANCES: Final[Mapping[str, Mapping[str, float]]] = {
    "fp32": {"rtol": 1.3e-6, "atol": 1e-5},
    "bf16": {"rtol": 1.6e-2, "atol": 1e-5},
    "fp16": {"rtol": 1e-3, "atol": 1e-5},
}
"""The defaults of torch.testing.assert_close, which many tests use."""

UNEXPLAINED: Final = "unexplained"
SUSPECT: Final = "suspect"


@dataclass(frozen=True)
class Judgment:
    """The product's answer for one seed, and whether every output is within the tolerance."""

    answer: gonogo.Judgment
    within: bool

    @property
    def verdict(self) -> str:
        """Return the verdict, such as "pass_by_tolerance"."""
        return self.answer.verdict

    @property
    def explanation(self) -> str:
        """Return "explained", "suspect", "unexplained" or "inconclusive"."""
        return self.answer.explanation

    @property
    def arithmetic(self) -> str:
        """Return the name of the arithmetic model."""
        return self.answer.arithmetic

    @property
    def words(self) -> str:
        """Return the lines for people."""
        return self.answer.words

    @property
    def statistics(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the statistics of each output."""
        return self.answer.outputs


def can_judge(kind: str) -> bool:
    """Return whether the product knows this kind of kernel."""
    return kind in KERNELS


def judge_outputs(case: Case, seed: int, outputs: Tensors) -> Judgment:
    """Judge the outputs of one seed, some or all of the kind's."""
    answer = gonogo.judge(
        kernel=case.kind,
        inputs=inputs(case, seed),
        outputs=outputs,
        tolerance=TOLERANCES[case.format],
        epsilon=case.epsilon,
        numerics={"input": case.format, "output": case.format},
        parameters={"num_groups": case.groups} if case.groups else None,
    )
    ratios = [numbers.get("tolerance_ratio") for numbers in answer.outputs.values()]
    return Judgment(answer, all(ratio is not None and ratio <= 1 for ratio in ratios))


def pooled(judgments: Sequence[Judgment]) -> str:
    """Return the explanation of a test from all its seeds."""
    return gonogo.pool(judgment.answer for judgment in judgments).explanation


NOT_A_TERM: Final = "not a term"
TERMS: Final[Mapping[str, str]] = {
    NOT_A_TERM: r"precision|not a term",
    "row": r"\bstale\b|\brepeats?\b|holds the values|missing from the sum|last row|row tile\b",
    "s1": r"\bs1\b",
    "s2": r"\bs2\b",
    "gamma": r"\bgamma\b",
    "beta": r"\bbeta\b",
    "epsilon": r"\bepsilon\b",
    "variance": r"\bvariance\b|\bmean square\b",
    "rstd": r"\brstd\b|factors? of (its|their) own",
    "mean": r"\bmean\b(?! square)",
    "groups": r"\bgroups?\b",
    "scale": r"times what it should be|common factor|\bscaled?\b",
}
"""Term -> a regular expression that finds it in a diagnosis."""

ALIKE: Final[Mapping[str, tuple[str, ...]]] = {
    "precision": (NOT_A_TERM, "mean", "variance", "rstd"),
    "variance": ("variance", "rstd", "epsilon", "scale"),
    "epsilon": ("epsilon", "variance", "rstd", "scale"),
    "rstd": ("rstd", "variance", "scale"),
    "scale": ("scale", "rstd", "gamma", "variance"),
    "groups": ("groups", "mean", "variance", "rstd"),
}
"""Terms that change an output alike: a row's factor is its rstd, its variance or its epsilon, and
a factor of the whole output may be gamma's."""

_NUMBERS = re.compile(
    r"^\s+\w+: ([A-Z][\w ]+, (un)?\w+; |couldn't have seen|take |other |all but [\d,]+ of )"
)
"""The lines of an output that aren't its diagnosis: numbers, limits, advice, missed rows,
other models."""


def diagnosis_lines(words: str, outputs: Sequence[str]) -> str:
    """Return what a diagnosis says of these outputs, or of all where it names no output."""
    lines = [line.strip() for line in words.splitlines()[1:] if not _NUMBERS.match(line)]
    named = [line for line in lines if line.split(":")[0] in outputs]
    return "; ".join(named or lines)


def leading_term(diagnosis: str) -> str | None:
    """Return the term that a diagnosis names first, or None where it names none."""
    if "cannot tell" in diagnosis and ";" not in diagnosis:
        return None
    places = {
        term: match.start()
        for term, pattern in TERMS.items()
        if (match := re.search(pattern, diagnosis)) is not None
    }
    return min(places, key=places.__getitem__) if places else None


def names_term(words: str, term: str, outputs: Sequence[str]) -> bool | None:
    """Return whether the diagnosis leads with the term, or None where it names no term."""
    leading = leading_term(diagnosis_lines(words, outputs))
    return None if leading is None else leading in ALIKE.get(term, (term,))
