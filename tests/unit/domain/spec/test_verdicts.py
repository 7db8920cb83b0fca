"""Verdicts: the two-by-two, the order of errors, and tolerances judged from stored numbers."""

from __future__ import annotations

import importlib
import math
import pkgutil
from typing import Any

import pytest

from gonogo import flakiness
from gonogo.spec.described import Described
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import (
    WORST_FIRST,
    Explanation,
    Verdict,
    has_nonfinite,
    seed_verdict,
    severity,
    size,
    verdict,
    within,
    worst,
    worst_explanation,
    worst_first,
)


@pytest.mark.parametrize(
    ("explanation", "green", "red"),
    [
        ("explained", "pass", "fail_by_tolerance"),
        ("unexplained", "pass_by_tolerance", "fail"),
        ("suspect", "suspect", "fail"),
        ("inconclusive", "inconclusive", "inconclusive"),
        ("not_judged", "not_judged", "not_judged"),
    ],
)
def test_two_questions_give_one_word(explanation: str, green: str, red: str) -> None:
    assert verdict(True, Explanation(explanation)) == green
    assert verdict(False, Explanation(explanation)) == red


def test_worst_first_is_the_missions_order() -> None:
    assert " ".join(WORST_FIRST) == (
        "error crash hang fail pass_by_tolerance fail_by_tolerance suspect inconclusive "
        "not_judged skipped not_run pass"
    )
    assert [member.rank for member in WORST_FIRST] == list(range(12))
    judging = {member.value for member in Verdict if member.judges_kernel}
    assert judging == {"fail", "pass_by_tolerance", "fail_by_tolerance", "suspect", "pass"}


def test_every_verdict_class_and_cause_says_what_it_means() -> None:
    for module in pkgutil.iter_modules(flakiness.__path__, "gonogo.flakiness."):
        importlib.import_module(module.name)
    described = Described.__subclasses__()
    assert len(described) >= 10
    assert [member for kind in described for member in kind if not member.sentence] == []


def test_the_worst_of_some() -> None:
    assert worst(["pass", "fail_by_tolerance", "pass_by_tolerance"]) is Verdict.pass_by_tolerance
    assert worst([]) is Verdict.not_run, "zero tests run is never green"
    words = [Explanation(word) for word in ("explained", "inconclusive", "suspect")]
    assert [worst_explanation(words[: n + 1]) for n in range(3)] == words
    assert worst_explanation([]) is Explanation.not_judged


def entry(word: str, **statistics: Any) -> dict[str, Any]:
    return {"verdict": word, "rounding_ratio": 0.5, "tolerance_ratio": 2.0, **statistics}


def test_the_worst_outputs_are_the_worst_verdicts_and_then_the_largest_errors() -> None:
    outputs = {
        "right": entry("pass", rounding_ratio=0.9),
        "huge": entry("fail", rounding_ratio=900.0),
        "large": entry("fail", rounding_ratio=90.0, distance=1e9),
        "broken": entry("fail", rounding_ratio=None, nonfinite=3),
        "infinite": entry("fail", nonfinite_statistics={"rounding_ratio": "inf"}),
        "tight": entry("fail_by_tolerance", rounding_ratio=0.9, tolerance_ratio=1.5),
        "tighter": entry("fail_by_tolerance", rounding_ratio=0.1, tolerance_ratio=1.6),
    }
    order = ["broken", "infinite", "huge", "large", "tighter", "tight", "right"]
    assert worst_first(outputs) == order
    assert [size(outputs[name]) for name in order] == [math.inf, math.inf, 900, 90, 1.6, 1.5, 0.9]
    assert size(entry("fail_by_tolerance", tolerance_ratio=None)) == 0.5, "that of its error"
    assert size({"verdict": "not_judged"}) == 0.0


def test_seeds_are_sorted_by_verdict_and_then_by_their_worst_output() -> None:
    keys = [
        severity("crash", {}),
        severity("fail", {"y": entry("fail", rounding_ratio=9.0)}),
        severity("fail", {"y": entry("fail")}),
        severity("pass_by_tolerance", {"y": entry("pass_by_tolerance", rounding_ratio=1e9)}),
    ]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize(
    ("statistics", "is_nonfinite"),
    [
        ({"nonfinite": 1}, True),
        ({"nonfinite_statistics": {"rounding_ratio": "inf"}}, True),
        ({"nonfinite": 0, "nonfinite_statistics": {"ulp_max": "inf"}}, False),
        ({"nonfinite": None}, False),
    ],
)
def test_an_output_with_nan_or_inf_is_known_by_its_numbers(
    statistics: dict[str, Any], is_nonfinite: bool
) -> None:
    assert has_nonfinite(statistics) is is_nonfinite


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ("green suspect, red explained", "fail_by_tolerance"),
        ("green suspect, red inconclusive", "inconclusive"),
        ("green suspect, red suspect", "fail"),
        ("green explained, red suspect", "fail"),
        ("green unexplained, red explained", "fail"),
        ("green suspect, green explained", "suspect"),
        ("green unexplained, green suspect", "pass_by_tolerance"),
    ],
)
def test_a_suspect_output_that_is_green_makes_no_red_seed_a_fail(
    outputs: str, expected: str
) -> None:
    answers = (output.split() for output in outputs.split(", "))
    assert seed_verdict([(color == "green", Explanation(word)) for color, word in answers]) == (
        expected
    )


FINE: dict[str, Any] = {
    "nonfinite": 0,
    "tolerance_ratio": 0.03,
    "needed_atol": {"0": 0.014, "1e-05": 0.014, "0.001": 0.0135, "0.1": 0.0},
    "pcc_deficit": 4.4e-6,
    "rel_frobenius": 0.003,
    "ulp_max": 12.0,
}
NAN = {"nonfinite": 1, "nonfinite_kinds": {"nan": 1}}
RATIO = "tolerance_ratio"
NIGHTLY = {"rtol": 1e-3, "atol": 0.5}
BOTH = {**NIGHTLY, "pcc": 0.999}
OTHER = {"rtol": 0.5, "atol": 0.5}
"""A tolerance of whose rtol no needed atol is stored."""


@pytest.mark.parametrize(
    ("tolerance", "statistics", "is_within"),
    [
        # nothing is declared, or the output has NaN
        (None, {}, True),
        ({}, {}, True),
        (None, NAN, False),
        ({"atol": 1e9, "rtol": 0.0}, NAN, False),
        # a stored rtol by its needed atol, though the stored ratio, of another tolerance, is .03
        ({"rtol": 1e-3, "atol": 0.0135}, {}, True),
        ({"rtol": 1e-3, "atol": 0.0134}, {}, False),
        ({"rtol": 0.1, "atol": 0.0}, {}, True),
        ({"rtol": 0.0, "atol": 0.0}, {}, False),
        ({"rtol": 1e-5, "atol": 0.5}, {}, True),
        (NIGHTLY, {"needed_atol": {"0.001": None}, RATIO: None}, False),
        (NIGHTLY, {"needed_atol": None}, True),
        (NIGHTLY, {"needed_atol": {"of a hostile host": 0.0, "0.001": 0.6}}, False),
        # another rtol by the stored ratio
        (OTHER, {}, True),
        (OTHER, {RATIO: 1.0}, True),
        *((OTHER, {RATIO: n}, False) for n in (1.0000001, None, True, "0", math.nan)),
        # other comparators; an undefined metric is not met
        ({"pcc": 0.999}, {"pcc_deficit": 0.0009}, True),
        ({"pcc": -1.0}, {"pcc_deficit": 2.0}, True),
        ({"pcc": 0.0}, {"pcc_deficit": 1.5}, False),
        *(({"pcc": 0.999}, {"pcc_deficit": n}, False) for n in (0.0011, None, math.nan)),
        ({"frobenius": 0.015}, {"rel_frobenius": 0.015}, True),
        *(({"frobenius": 0.015}, {"rel_frobenius": n}, False) for n in (0.0151, None, math.nan)),
        ({"ulp": 32}, {"ulp_max": 32.0}, True),
        *(({"ulp": 32}, {"ulp_max": n}, False) for n in (32.5, None, math.nan)),
        # each that is declared
        (BOTH, {}, True),
        (BOTH, {"pcc_deficit": 0.1}, False),
        (BOTH, {"needed_atol": {"0.001": 0.6}}, False),
    ],
)
def test_stored_numbers_decide_whether_an_output_is_within_a_tolerance(
    tolerance: dict[str, Any] | None, statistics: dict[str, Any], is_within: bool
) -> None:
    declared = None if tolerance is None else Tolerance(**tolerance)
    assert within(declared, {**FINE, **statistics}) is is_within
