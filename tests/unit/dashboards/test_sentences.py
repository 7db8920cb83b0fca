"""How pages name and word values: numbers, times, tolerances, tests, advice, evidence."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from gonogo import urls
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.flakiness.masking import Change as KernelChange
from gonogo.flakiness.rates import rate
from gonogo.spec.arithmetic_words import of_output
from gonogo.spec.selections import Selection
from gonogo.spec.tolerances import Tolerance
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.flags import flag_advice
from gonogo_dashboards.kit import (
    arithmetic_view,
    build_cells,
    commands,
    comparators_view,
    evidence_view,
    words,
)
from gonogo_dashboards.kit.advice import FORM_COMPARATORS, of_false_alarm, widened
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.overview import numbers
from gonogo_dashboards.tests import advice
from gonogo_service.flags.model import FlagRow
from gonogo_service.tests.standings import Standing
from gonogo_service.tests.variants import Variant

TEST = {"kernel": "layernorm_bw", "shape": [3, 32], "tolerance": {"rtol": 1e-3, "atol": 0.004}}
EPSILON, LOOSE = {**TEST, "epsilon": 1e-3}, {**TEST, "tolerance": {"atol": 0.7}}
SELECTION = Selection.parse({"selection": {"suite": "gtest:ops", "filter": "LayerNorm.*"}})


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (words.number, None, "–"),
        (words.number, 0.0, "0"),
        (words.number, 0.10123, "0.101"),
        (words.number, 157.3, "157"),
        (words.number, 4.4e-6, "4.40e-6"),
        (words.number, 12345.6, "12,300"),
        (words.number, 2e7, "2.00e7"),
        (words.duration, 0.31, "0.3 s"),
        (words.duration, 185, "3 min 5 s"),
        (words.duration, 400_000, "4 d 15 h"),
        (words.pace, 2.0, (2.0, "s")),
        (words.pace, 0.5, (30.0, "min")),
        (words.pace, 1e-4, (pytest.approx(0.36), "h")),
        (words.ago, -5, "just now"),
        (words.ago, 200, "3 min ago"),
        (words.often, 1, "once"),
        (words.often, 2000, "2,000 times"),
        (words.moment, "2026-11-23T14:28:24.490337Z", "2026-11-23 14:28:24 UTC"),
        (words.moment, None, "–"),
        (words.quantity, "core_clock_mhz", ("core_clock", "MHz")),
        (words.quantity, "fan_rpm", ("fan_rpm", "")),
        (words.brief, "x" * 200, "x" * 39 + "…"),
        (words.brief, "\u202eevil", "\u2068\u202eevil\u2069"),
        (commands.plain, 0.1 + 0.2, "0.3"),
        (commands.plain, 3.0000000000000004e-05, "3e-05"),
        (commands.plain, 1 / 3, "0.333333333333"),
        (commands.tolerance_words, {"rtol": 0.001, "atol": 0.5}, "rtol 0.001, atol 0.5"),
        (commands.tolerance_words, {"dx": {"pcc": 0.9}, "b": {"ulp": 2}}, "dx: pcc 0.9; b: ulp 2"),
        (commands.tolerance_words, {}, "no tolerance declared"),
        (urls.job, "../x?y#z", "/jobs/..%2Fx%3Fy%23z"),
        (urls.jobs, {"state": "", "build": "a b"}, "/jobs?build=a+b"),
        (build_cells.verdict_of, {"pass": 6, "pass_by_tolerance": 1}, "pass_by_tolerance"),
        (build_cells.verdict_of, {"fail": 1, "pass_by_tolerance": 9, "error": 3}, "fail"),
        (build_cells.verdict_of, {"hang": 2, "error": 1}, "error"),
        (build_cells.verdict_of, {"pass": 0}, "not_run"),
    ],
)
def test_values_are_short_and_exact(function: Any, value: Any, text: Any) -> None:
    assert function(value) == text


def test_every_verdict_and_grade_has_a_look_and_a_sentence_and_a_newer_word_is_shown() -> None:
    assert set(words.MARKS) == set(Verdict)
    judging = [words.MARKS[verdict] for verdict in Verdict if verdict.judges_kernel]
    paths, signs = {mark.path for mark in judging}, {mark.sign for mark in judging}
    assert len(paths) == len(signs) == len(judging)
    for look in {one.mark for kind in (Stability, Sharpness, KernelChange) for one in kind}:
        assert words.mark(look).label != "No verdict yet"
        assert words.sentence(look)
    assert words.mark("wobbly").label == "wobbly"
    assert words.ordered(["pass", "marginal", "error"]) == ["error", "pass", "marginal"]


BOARDS = [Listed(TEST, place={"board": board}) for board in ("n150", "n300")]


@pytest.mark.parametrize(
    ("rows", "heads"),
    [
        ([Listed(TEST, "nightly: a")], [""]),
        ([Listed(TEST, "nightly: a"), Listed(EPSILON, "nightly: b")], ["nightly: a", "nightly: b"]),
        (
            [Listed(TEST), Listed(EPSILON), Listed(LOOSE)],
            [
                "rtol 0.001, atol 0.004 · default epsilon",
                "rtol 0.001, atol 0.004 · epsilon 0.001",
                "atol 0.7 · default epsilon",
            ],
        ),
        (BOARDS, ["board n150", "board n300"]),
    ],
)
def test_what_differs_comes_first_and_only_where_two_would_be_alike(
    rows: list[Listed], heads: list[str]
) -> None:
    assert labels(rows) == [" · ".join(filter(None, (head, "layernorm_bw 3×32"))) for head in heads]


def test_a_given_head_and_a_selection_are_names_as_they_are() -> None:
    assert labels([Listed(TEST, head="small")] * 2) == ["small", "small"]
    names = ["selection suite gtest:ops, filter LayerNorm.*"]
    assert labels([Listed(SELECTION.canonical())]) == names


@pytest.mark.parametrize(
    ("pcc", "numbers", "sentence"),
    [
        (0.999, {"pcc_deficit": 0.0123}, "PCC 0.9877, needs 0.999"),
        (
            0.999,
            {"tolerance_ratio": 2.0, "pcc_deficit": None},
            "error ÷ tolerance 2 (allclose); PCC undefined, needs 0.999",
        ),
        (0.999, {"nonfinite": 3}, "3 values NaN or Inf"),
        (0.9999999, {"pcc_deficit": 2.34e-7}, "PCC 0.999999766, needs 0.9999999"),
    ],
)
def test_an_output_says_which_comparators_decided(
    pcc: float, numbers: dict[str, Any], sentence: str
) -> None:
    declared = Tolerance(rtol=1e-3, atol=0.5, pcc=pcc)
    assert comparators_view.decided(declared, {"tolerance_ratio": 0.5, **numbers}) == sentence
    assert comparators_view.decided(declared, {}) == ""


def test_a_hundred_limits_are_few_phrases_and_a_jobs_arithmetics_are_counted() -> None:
    entry = {"explanation": "explained", "arithmetic": "fused", "is_wide": True}
    pairs = [(value, form) for value in ("mean", "rstd") for form in ("bf16", "fp8")]
    limits = [f"{value} is stored in {form}" for value, form in pairs]
    limits += ["rstd is truncated to bf16", "a common factor below 0.3 %"]
    line = arithmetic_view.of_seed("y", {**entry, "detection_limits": limits})
    assert line is not None
    few = ("a common factor below 0.3 %", "mean, rstd are stored in bf16, fp8")
    assert line.detection_limits[:2] == few
    wrong = {**entry, "explanation": "unexplained"}
    output = of_output("y", [entry, entry, {**entry, "arithmetic": "eager"}, wrong])
    [line] = arithmetic_view.of_job([output], "seed")
    assert (line.relation, line.arithmetic, line.seeds) == ("explained by", "fused", "2 of 4 seeds")
    assert sorted(line.others.split(", ")) == ["eager: 1", "none: 1"]
    [line] = arithmetic_view.of_job([of_output("y", [wrong])], "seed")
    assert (line.relation, line.arithmetic, line.others) == ("closest", "fused", "")


@pytest.mark.parametrize(
    ("tolerance", "largest", "wider"),
    [
        ({"rtol": 1e-3, "atol": 0.004}, 1.0664, {"rtol": 0.0011, "atol": 0.0043}),
        ({"atol": 0.5}, 3.0, {"atol": 1.5}),
        ({"rtol": 0.0, "atol": 0.5}, 1.01, {"atol": 0.51}),
        ({"atol": 0.5}, 0.9, {}),  # no error is larger
        ({"atol": 0.5}, None, {}),
        ({"atol": 0.5, "pcc": 0.999}, 2.0, {}),  # another comparator decides, too
        ({"dx": {"atol": 0.5}}, 2.0, {}),
    ],
)
def test_a_wider_tolerance_allows_the_largest_error(
    tolerance: dict[str, Any], largest: float | None, wider: dict[str, float]
) -> None:
    assert widened(tolerance, largest) == wider
    assert all(value >= tolerance[name] * largest for name, value in wider.items())


def query_of(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query, keep_blank_values=True))


ADVISED = {"dx": {"rtol": 0.0, "atol": 0.02}}
PLACE = {"branch": "main", "arch": "wormhole", "board": "n150"}


def test_a_button_fills_in_the_advised_tolerance_and_changes_nothing_else() -> None:
    step = of_false_alarm("v1-k", TEST, {}, 1.0664)
    assert query_of(step.url) == {"test": "v1-k", "rtol": "0.0011", "atol": "0.0043"}
    assert step.label == "Submit with rtol 0.0011, atol 0.0043"
    gauged = of_false_alarm("v1-k", TEST, ADVISED, 1.0664)
    assert "The gauge advises dx: rtol 0, atol 0.02." in gauged.text
    filled = query_of(gauged.url)
    # the form would add the test's comparators of all outputs to those of dx, which is refused
    assert {filled[name] for name in FORM_COMPARATORS} == {""}


def test_a_test_s_page_advises_the_next_step() -> None:
    inputs = {"inputs": {"regime": "normal"}}
    given = "v1-k", PLACE
    test = {**TEST, **inputs}
    [step] = advice.steps(*given, "pass", False, "job", test, "blunt", ADVISED, ())
    assert json.loads(query_of(step.url)["rest"]) == {**inputs, "tolerance": ADVISED}
    steps = tuple(advice.steps(*given, "pass_by_tolerance", True, "job", test, None, {}, ()))
    assert [step.label for step in steps] == ["Show the worst seeds", "Gauge this test"]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (FlagKind.fix_masked, ["Compare these builds", "Bisect between these builds"]),
        (FlagKind.slower, ["Compare these builds"]),  # a bisection knows no time
    ],
)
def test_a_flag_of_two_builds_offers_what_can_show_it(kind: FlagKind, labels: list[str]) -> None:
    evidence = {"rerun": {"builds": ["b2", "b4"]}}
    flag: Any = FlagRow(kind=kind, last_job="job", evidence=evidence, test_key="v1-k", **PLACE)
    session: Any = None
    assert [step.label for step in flag_advice.steps(session, flag, TEST)] == labels


def test_evidence_of_any_shape_is_facts_and_tables() -> None:
    proof = evidence_view.read(
        {
            "sentence": "said above",
            "check": ["gonogo check --seeds 1", "gonogo check --seeds 2"],
            "seeds": [1, 2, 3],
            "digest": "0123456789abcdef0123",
            "failures": asdict(rate(3, 20)),
            "missed": {"drop-s1": asdict(rate(8, 8))},
            "contexts": [{"name": "isolated", "runs": 5}, {"name": "grouped", "p": 0.00123}],
            "nothing": None,
            "many": [{"x": number} for number in range(100)],
        }
    )
    assert proof.checks == ("gonogo check --seeds 1", "gonogo check --seeds 2")
    failures = {"failures": rate(3, 20).words}
    assert dict(proof.facts) == {"seeds": "1, 2, 3", "digest": "0123456789ab", **failures}
    missed, contexts, many = proof.tables
    assert missed.rows == (("drop-s1", rate(8, 8).words),)
    assert contexts.rows == (("isolated", "5", "–"), ("grouped", "–", "0.00123"))
    assert many.left_out == 100 - evidence_view.MAX_ROWS


TODAY = date(2026, 11, 27)
WEEK_AGO = TODAY - timedelta(days=7)
GREEN = {field.name: {"bool": False, "str": ""}.get(str(field.type)) for field in fields(Standing)}


def standing_of(on: date, kinds: str) -> dict[Variant, Standing]:
    """Return tests "0", "1", ... that ran on a day, each green or hollow: `hollow green`."""
    about: dict[str, Any] = {**GREEN, "at": datetime.combine(on, time(5), UTC)}
    return {
        Variant(str(n), **PLACE): Standing(**{**about, "hollow": kind == "hollow"})
        for n, kind in enumerate(kinds.split())
    }


@pytest.mark.parametrize(
    ("now", "before", "change", "better"),
    [
        ("hollow hollow green", "hollow green green", "1 more", False),
        ("hollow green green", "hollow hollow green", "1 fewer", True),
        # the second test hasn't run for a month: that is no improvement
        ("hollow", "hollow hollow", "the same as", None),
        ("green", "", "none had run", None),
    ],
)
def test_a_number_is_compared_with_that_of_the_same_tests_a_week_ago(
    now: str, before: str, change: str, better: bool | None
) -> None:
    days = [TODAY - timedelta(days=back) for back in reversed(range(numbers.SHOWN))]
    counted = {day: dict[Variant, Standing]() for day in days}
    counted |= {WEEK_AGO: standing_of(WEEK_AGO, before), TODAY: standing_of(TODAY, now)}
    of_tests = numbers.of_tests(list(counted.items()), "main")
    (line,) = (one for one in of_tests if one.name == "hollow")
    assert (line.value, line.of) == (now.count("hollow"), len(now.split()))
    assert (line.better, line.change.startswith(change)) == (better, True)
