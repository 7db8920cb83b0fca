"""Verdicts: the two-by-two, the order of errors, and tolerances judged from stored numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

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

FINE: dict[str, Any] = {
    "nonfinite": 0,
    "nonfinite_kinds": None,
    "nonfinite_statistics": None,
    "count": 100_000,
    "rounding_ratio": 0.99,
    "distance": 3.9,
    "shared": 1.1,
    "common": [],
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
    words = ("explained", "inconclusive", "suspect")
    for number in (1, 2, 3):
        some = [Explanation(word) for word in words[:number]]
        assert worst_explanation(some) == words[number - 1]
    assert worst_explanation([]) is Explanation.not_judged


def test_every_word_has_its_sentence() -> None:
    assert all(word.sentence.endswith(".") for word in (*Verdict, *Explanation))
    kernel = "fail pass_by_tolerance fail_by_tolerance suspect pass"
    assert {member for member in Verdict if member.judges_kernel} == set(kernel.split())


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
    small, large = {"y": entry("fail")}, {"y": entry("fail", rounding_ratio=9.0)}
    hollow = {"y": entry("pass_by_tolerance", rounding_ratio=1e9)}
    keys = [severity("crash", {}), severity("fail", large), severity("fail", small)]
    keys.append(severity("pass_by_tolerance", hollow))
    assert keys == sorted(keys)
    assert len(set(keys)) == 4


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


RATIO = "tolerance_ratio"
ANY_RTOL = Tolerance(rtol=0.5, atol=0.5)
BOTH = Tolerance(rtol=1e-3, atol=0.5, pcc=0.999)


@pytest.mark.parametrize(
    ("tolerance", "statistics", "is_within"),
    [
        # nothing is declared, or the output has NaN
        (None, {}, True),
        (Tolerance(), {}, True),
        (None, {"nonfinite": 1, "nonfinite_kinds": {"nan": 1}}, False),
        (Tolerance(atol=1e9, rtol=0.0), {"nonfinite": 1, "nonfinite_kinds": {"nan": 1}}, False),
        # a stored rtol by its needed atol, though the stored ratio, of another tolerance, is .03
        (Tolerance(rtol=1e-3, atol=0.0135), {}, True),
        (Tolerance(rtol=1e-3, atol=0.0134), {}, False),
        (Tolerance(rtol=0.1, atol=0.0), {}, True),
        (Tolerance(rtol=0.0, atol=0.0), {}, False),
        (Tolerance(rtol=1e-5, atol=0.5), {}, True),
        (Tolerance(rtol=1e-3, atol=0.5), {"needed_atol": {"0.001": None}, RATIO: None}, False),
        (Tolerance(rtol=1e-3, atol=0.5), {"needed_atol": None}, True),
        # another rtol by the stored ratio
        (ANY_RTOL, {}, True),
        (ANY_RTOL, {RATIO: 1.0}, True),
        (ANY_RTOL, {RATIO: 1.0000001}, False),
        *((ANY_RTOL, {RATIO: nothing}, False) for nothing in (None, True, "0", math.nan)),
        # other comparators; an undefined metric is not met
        (Tolerance(pcc=0.999), {"pcc_deficit": 0.0009}, True),
        (Tolerance(pcc=-1.0), {"pcc_deficit": 2.0}, True),
        (Tolerance(pcc=0.0), {"pcc_deficit": 1.5}, False),
        *((Tolerance(pcc=0.999), {"pcc_deficit": n}, False) for n in (0.0011, None, math.nan)),
        (Tolerance(frobenius=0.015), {"rel_frobenius": 0.015}, True),
        *(
            (Tolerance(frobenius=0.015), {"rel_frobenius": n}, False)
            for n in (0.0151, None, math.nan)
        ),
        (Tolerance(ulp=32), {"ulp_max": 32.0}, True),
        *((Tolerance(ulp=32), {"ulp_max": n}, False) for n in (32.5, None, math.nan)),
        # each that is declared
        (BOTH, {}, True),
        (BOTH, {"pcc_deficit": 0.1}, False),
        (BOTH, {"needed_atol": {"0.001": 0.6}}, False),
    ],
)
def test_stored_numbers_decide_whether_an_output_is_within_a_tolerance(
    tolerance: Tolerance | None, statistics: dict[str, Any], is_within: bool
) -> None:
    assert within(tolerance, {**FINE, **statistics}) is is_within
