"""Verdicts: the two-by-two, the policy's thresholds, and tolerances judged from stored numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest
from scipy.stats import chi2

from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import (
    POLICY,
    WORST_FIRST,
    Explanation,
    Verdict,
    evidence,
    explain,
    explain_output,
    seed_verdict,
    verdict,
    within,
    worst,
    worst_explanation,
)

FINE: dict[str, Any] = {
    "nonfinite": 0,
    "nonfinite_kinds": None,
    "nonfinite_statistics": None,
    "count": 100_000,
    "budget_ratio": 0.99,
    "chi": 0.7,
    "row_z": 1.1,
    "row_z_max": 3.9,
    "row_count": 819,
    "xhat_z": None,
    "xhat_z_max": None,
    "tolerance_ratio": 0.03,
    "needed_atol": {"0": 0.014, "1e-05": 0.014, "0.001": 0.0135, "0.1": 0.0},
    "pcc_deficit": 4.4e-6,
    "rel_frobenius": 0.003,
    "ulp_max": 12.0,
    "digest": "0123456789abcdef",
    "worst_index": [3, 7],
}

TABLE = [
    (True, "explained", "pass"),
    (False, "explained", "fail_by_tolerance"),
    (True, "unexplained", "pass_by_tolerance"),
    (False, "unexplained", "fail"),
    (True, "suspect", "suspect"),
    (False, "suspect", "fail"),
    (True, "inconclusive", "inconclusive"),
    (False, "inconclusive", "inconclusive"),
    (True, "not_judged", "not_judged"),
    (False, "not_judged", "not_judged"),
]


@pytest.mark.parametrize(("is_within", "explanation", "expected"), TABLE)
def test_two_questions_give_one_word(is_within: bool, explanation: str, expected: str) -> None:
    assert verdict(is_within, Explanation(explanation)) == expected


def test_worst_first_is_the_missions_order() -> None:
    words = (
        "error, crash, hang, fail, pass_by_tolerance, fail_by_tolerance, suspect, "
        "inconclusive, not_judged, skipped, not_run, pass"
    )
    assert ", ".join(WORST_FIRST) == words
    assert [member.rank for member in WORST_FIRST] == list(range(12))


def test_the_worst_of_some() -> None:
    assert worst(["pass", "fail_by_tolerance", "pass_by_tolerance"]) is Verdict.pass_by_tolerance
    assert worst([Verdict.pass_, Verdict.pass_]) is Verdict.pass_
    assert worst([]) is Verdict.not_run, "zero tests run is never green"
    assert (
        worst_explanation([Explanation.explained, Explanation.inconclusive, Explanation.suspect])
        is Explanation.suspect
    )
    assert (
        worst_explanation([Explanation.explained, Explanation.inconclusive])
        is Explanation.inconclusive
    )
    assert worst_explanation([]) is Explanation.not_judged


def test_every_word_has_its_sentence() -> None:
    for word in (*Verdict, *Explanation):
        assert word.sentence.endswith(".")
    assert Verdict("pass") is Verdict.pass_
    assert {member for member in Verdict if member.judges_kernel} == {
        "fail",
        "pass_by_tolerance",
        "fail_by_tolerance",
        "suspect",
        "pass",
    }


def test_right_numbers_are_explained() -> None:
    assert explain(FINE) is Explanation.explained


LIMITS = [
    ("budget_ratio", 3.0, 10.0),
    ("chi", 2.0, 5.0),
    ("row_z", 4.0, 20.0),
    ("scale_z", 4.0, 20.0),
    ("xhat_z", 4.0, 20.0),
    ("row_z_max", 4 + math.sqrt(2 * math.log(819)), 20.0),
    ("cell_max", 8.0, 16.0),
    ("cell_row_max", 8.0, 16.0),
    ("common_factor", 2.0**-22, 2.0**-21),
]


@pytest.mark.parametrize(("name", "explained", "suspect"), LIMITS)
def test_each_statistic_has_its_limits(name: str, explained: float, suspect: float) -> None:
    replayed = {"cell_max": 1.0} if name.startswith(("cell", "common")) else {}

    def explanation(value: float) -> str:
        return explain({**FINE, **replayed, name: value}).value

    assert explanation(explained) == "explained"
    assert explanation(math.nextafter(explained, math.inf)) == "suspect"
    assert explanation(suspect) == "suspect"
    assert explanation(math.nextafter(suspect, math.inf)) == "unexplained"
    assert explanation(math.inf) == "unexplained"


def test_the_sign_of_a_direction_does_not_matter() -> None:
    assert explain({**FINE, "row_z": -21.0}) is Explanation.unexplained
    assert explain({**FINE, "row_z": -21}) is Explanation.unexplained


NARROW: dict[str, Any] = {**FINE, "arithmetic": None, "may_store": ["rstd"]}
"""No program reproduces it, and it may store narrow quantities."""


@pytest.mark.parametrize(
    ("statistics", "explanation"),
    [
        ({**FINE, "budget_ratio": 99.0, "cell_max": 1.0}, "explained"),  # the replay decides alone
        ({**FINE, "budget_ratio": 99.0, "cell_max": None}, "unexplained"),
        (NARROW, "suspect"),  # the budget acquits of nothing
        (NARROW | {"budget_ratio": 5.0}, "suspect"),
        (NARROW | {"budget_ratio": 11.0}, "unexplained"),
        (NARROW | {"cell_max": 99.0}, "suspect"),  # no program's cells count
        (NARROW | {"arithmetic": "fp32"}, "explained"),
        (NARROW | {"may_store": []}, "explained"),
        (NARROW | {"fault_share": 0.9}, "unexplained"),
        (NARROW | {"fault_share": 0.89}, "suspect"),
        (FINE | {"fault_share": 0.9}, "explained"),
        (FINE | {"exact": {"explanation": "unexplained"}}, "unexplained"),
        (FINE | {"exact": {"explanation": "explained"}}, "explained"),
        (FINE | {"row_z_max": None, "nonfinite_statistics": {"row_z_max": "nan"}}, "unexplained"),
        (FINE | {"row_z": math.nan, "chi": True, "xhat_z": "9"}, "explained"),  # these say nothing
    ],
)
def test_who_decides_the_explanation(statistics: dict[str, Any], explanation: str) -> None:
    assert explain(statistics) == explanation


@pytest.mark.parametrize(
    ("is_within", "statistics", "explanation"),
    [
        (False, {"unseen_terms": ["beta"]}, "inconclusive"),
        (True, {"unseen_terms": ["beta"]}, "explained"),
        (False, {"unseen_terms": []}, "explained"),
        (False, {"unseen_terms": ["beta"], "chi": 9.0}, "unexplained"),
    ],
)
def test_a_red_output_whose_faults_could_not_all_be_seen_is_not_acquitted(
    is_within: bool, statistics: dict[str, Any], explanation: str
) -> None:
    assert explain_output(is_within, FINE | statistics) == explanation


@pytest.mark.parametrize(
    ("statistics", "beyond"),
    [
        ({"budget_ratio": 6.0, "chi": 3.0}, 2.0),
        ({"chi": 3.0, "budget_ratio": 6.6}, 2.2),
        ({"row_z": -2.0}, 0.5),
        ({"row_z_max": 8.0, "row_count": 1}, 2.0),
        ({"row_z_max": 8.0}, 2.0),
        ({"chi": None, "budget_ratio": math.nan}, None),
        ({"chi": None, "nonfinite_statistics": {"chi": "inf"}}, math.inf),
        ({"max_abs": 9.0}, None),
        ({"chi": 3.0, "nonfinite": 2}, None),
    ],
)
def test_evidence_is_the_largest_ratio_to_what_is_explained(
    statistics: dict[str, Any], beyond: float | None
) -> None:
    assert evidence(statistics) == (None if beyond is None else pytest.approx(beyond))


def test_a_maximum_over_one_row_has_the_rms_limit_and_over_unknown_many_too() -> None:
    assert explain({**FINE, "row_z_max": 4.0, "row_count": 1}) is Explanation.explained
    assert explain({**FINE, "row_z_max": 4.1, "row_count": 1}) is Explanation.suspect
    del (without := dict(FINE))["row_count"]
    assert explain({**without, "row_z_max": 4.1}) is Explanation.suspect


def test_a_suspect_does_not_hide_what_is_unexplained_in_any_order() -> None:
    assert explain({**FINE, "budget_ratio": 5.0, "row_z": 21.0}) is Explanation.unexplained
    assert explain({**FINE, "row_z": 5.0, "xhat_z": 1.0}) is Explanation.suspect


def test_null_says_nothing_and_nothing_said_is_inconclusive() -> None:
    silent = dict.fromkeys(FINE) | {
        "count": 8,
        "nonfinite": 0,
        "rows_left_out": 8,
        "max_abs": 0.891,
    }
    assert explain(silent) is Explanation.inconclusive
    assert explain({**silent, "row_z": 1.0}) is Explanation.explained
    assert explain({}) is Explanation.not_judged


def test_an_infinite_statistic_is_stored_as_null_and_still_unexplained() -> None:
    assert (
        explain({**FINE, "budget_ratio": None, "nonfinite_statistics": {"budget_ratio": "inf"}})
        is Explanation.unexplained
    )
    assert (
        explain({**FINE, "pcc_deficit": None, "nonfinite_statistics": {"tolerance_ratio": "inf"}})
        is Explanation.explained
    )


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        ([(True, "suspect"), (False, "explained")], "fail_by_tolerance"),
        ([(True, "suspect"), (False, "inconclusive")], "inconclusive"),
        ([(True, "suspect"), (False, "suspect")], "fail"),
        ([(True, "explained"), (False, "suspect")], "fail"),
        ([(True, "unexplained"), (False, "explained")], "fail"),
        ([(True, "suspect"), (True, "explained")], "suspect"),
        ([(True, "unexplained"), (True, "suspect")], "pass_by_tolerance"),
    ],
)
def test_a_suspect_output_that_is_green_makes_no_red_seed_a_fail(
    outputs: list[tuple[bool, str]], expected: str
) -> None:
    answers = [(is_within, Explanation(answer)) for is_within, answer in outputs]
    assert seed_verdict(answers) == expected


def test_nan_in_the_output_is_unexplained_and_outside_everything() -> None:
    broken = {**FINE, "nonfinite": 1, "nonfinite_kinds": {"nan": 1}}
    assert explain(broken) is Explanation.unexplained
    assert not within(None, broken)
    assert not within(Tolerance(atol=1e9, rtol=0.0), broken)
    assert verdict(within(None, broken), explain(broken)) is Verdict.fail


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 13, 14, 15, 100, 10**7])
def test_chis_limit_is_the_millionth_quantile_where_that_exceeds_two(count: int) -> None:
    expected = max(2.0, math.sqrt(chi2.isf(1e-6, count) / count))
    assert POLICY.chi_limit(count) == pytest.approx(expected, rel=1e-7)


def test_chi_of_few_elements_may_be_larger() -> None:
    assert explain({**FINE, "count": 1, "chi": 4.8}) is Explanation.explained
    assert explain({**FINE, "count": 1, "chi": 4.9}) is Explanation.suspect
    assert explain({**FINE, "count": None, "chi": 2.1}) is Explanation.suspect


def test_undeclared_is_within() -> None:
    assert within(None, FINE)
    assert within(Tolerance(), FINE)


def test_allclose_of_a_stored_rtol_is_judged_anew_from_the_needed_atol() -> None:
    assert within(Tolerance(rtol=1e-3, atol=0.0135), FINE)
    assert not within(Tolerance(rtol=1e-3, atol=0.0134), FINE), (
        "although tolerance_ratio, of the declared tolerance, is .03"
    )
    assert within(Tolerance(rtol=0.1, atol=0.0), FINE)
    assert not within(Tolerance(rtol=0.0, atol=0.0), FINE)
    assert within(Tolerance(rtol=1e-5, atol=0.5), FINE)


def test_allclose_of_another_rtol_is_the_stored_ratio() -> None:
    assert within(Tolerance(rtol=0.5, atol=0.5), FINE)
    assert within(Tolerance(rtol=0.5, atol=0.5), {**FINE, "tolerance_ratio": 1.0})
    assert not within(Tolerance(rtol=0.5, atol=0.5), {**FINE, "tolerance_ratio": 1.0000001})
    for nothing in (None, True, "0", math.nan):
        assert not within(Tolerance(rtol=0.5, atol=0.5), {**FINE, "tolerance_ratio": nothing})
    assert not within(
        Tolerance(rtol=1e-3, atol=0.5),
        {**FINE, "needed_atol": {"0.001": None}, "tolerance_ratio": None},
    )
    assert within(Tolerance(rtol=1e-3, atol=0.5), {**FINE, "needed_atol": None})


COMPARATORS = [
    (Tolerance(pcc=0.999), "pcc_deficit", 0.0009, 0.0011),
    (Tolerance(frobenius=0.015), "rel_frobenius", 0.015, 0.0151),
    (Tolerance(ulp=32), "ulp_max", 32.0, 32.5),
]


@pytest.mark.parametrize(("tolerance", "name", "good", "bad"), COMPARATORS)
def test_other_comparators(tolerance: Tolerance, name: str, good: float, bad: float) -> None:
    assert within(tolerance, {**FINE, name: good})
    assert not within(tolerance, {**FINE, name: bad})
    assert not within(tolerance, {**FINE, name: None}), "an undefined metric is not met"
    assert not within(tolerance, {**FINE, name: math.nan})


def test_every_declared_comparator_must_hold() -> None:
    both = Tolerance(rtol=1e-3, atol=0.5, pcc=0.999)
    assert within(both, FINE)
    assert not within(both, {**FINE, "pcc_deficit": 0.1})
    assert not within(both, {**FINE, "needed_atol": {"0.001": 0.6}})


def test_a_negative_pcc_counts() -> None:
    assert within(Tolerance(pcc=-1.0), {**FINE, "pcc_deficit": 2.0})
    assert not within(Tolerance(pcc=0.0), {**FINE, "pcc_deficit": 1.5})
