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
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.tolerance_advice import FORM_COMPARATORS, of_false_alarm, widened
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
        (
            build_cells.verdict_of,
            {"pass": 6, "pass_by_tolerance": 1, "error": 3},
            "pass_by_tolerance",
        ),
        (build_cells.verdict_of, {"fail": 1, "pass_by_tolerance": 9}, "fail"),
        (build_cells.verdict_of, {"hang": 2, "error": 1}, "error"),
        (build_cells.verdict_of, {"pass": 0}, "not_run"),
    ],
)
def test_values_are_short_and_exact(function: Any, value: Any, text: Any) -> None:
    assert function(value) == text


def test_every_verdict_and_grade_has_a_look_and_a_sentence_and_a_newer_word_is_shown() -> None:
    assert set(words.MARKS) == set(Verdict)
    judging = [words.MARKS[verdict] for verdict in Verdict if verdict.judges_kernel]
    assert (
        len({mark.path for mark in judging}) == len({mark.sign for mark in judging}) == len(judging)
    )
    looks = {one.mark for kind in (Stability, Sharpness, KernelChange) for one in kind}
    assert all(
        words.mark(look).label != "No verdict yet" and words.sentence(look) for look in looks
    )
    assert words.mark("wobbly").label == "wobbly"
    assert words.ordered(["pass", "marginal", "error"]) == ["error", "pass", "marginal"]


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([Listed(TEST, "nightly: a")], ["layernorm_bw 3×32"]),
        (
            [Listed(TEST, "nightly: a"), Listed(EPSILON, "nightly: b")],
            ["nightly: a · layernorm_bw 3×32", "nightly: b · layernorm_bw 3×32"],
        ),
        (
            [Listed(TEST), Listed(EPSILON), Listed(LOOSE)],
            [
                "rtol 0.001, atol 0.004 · default epsilon · layernorm_bw 3×32",
                "rtol 0.001, atol 0.004 · epsilon 0.001 · layernorm_bw 3×32",
                "atol 0.7 · default epsilon · layernorm_bw 3×32",
            ],
        ),
        (
            [Listed(TEST, place={"board": board}) for board in ("n150", "n300")],
            ["board n150 · layernorm_bw 3×32", "board n300 · layernorm_bw 3×32"],
        ),
        ([Listed(TEST, head="small")] * 2, ["small", "small"]),
        ([Listed(SELECTION.canonical())], ["selection suite gtest:ops, filter LayerNorm.*"]),
    ],
)
def test_what_differs_comes_first_and_only_where_two_would_be_alike(
    rows: list[Listed], names: list[str]
) -> None:
    assert labels(rows) == names


@pytest.mark.parametrize(
    ("tolerance", "numbers", "sentence"),
    [
        (0.999, {"tolerance_ratio": 0.5, "pcc_deficit": 0.0123}, "PCC 0.9877, needs 0.999"),
        (
            0.999,
            {"tolerance_ratio": 2.0, "pcc_deficit": None},
            "error ÷ tolerance 2 (allclose); PCC undefined, needs 0.999",
        ),
        (0.999, {"tolerance_ratio": 0.5, "nonfinite": 3}, "3 values NaN or Inf"),
        (0.999, {}, ""),
        (
            0.9999999,
            {"tolerance_ratio": 0.5, "pcc_deficit": 2.34e-7},
            "PCC 0.999999766, needs 0.9999999",
        ),
    ],
)
def test_an_output_says_which_comparators_decided(
    tolerance: float, numbers: dict[str, Any], sentence: str
) -> None:
    declared = Tolerance(rtol=1e-3, atol=0.5, pcc=tolerance)
    assert comparators_view.decided(declared, numbers) == sentence


def test_a_hundred_limits_are_few_phrases_and_a_jobs_arithmetics_are_counted() -> None:
    entry = {"explanation": "explained", "arithmetic": "fused", "is_wide": True}
    limits = [
        *(f"{value} is stored in {form}" for value in ("mean", "rstd") for form in ("bf16", "fp8")),
        "rstd is truncated to bf16",
        "a common factor below 0.3 %",
    ]
    line = arithmetic_view.of_seed("y", {**entry, "detection_limits": limits})
    assert line is not None
    assert line.detection_limits[:2] == (
        "a common factor below 0.3 %",
        "mean, rstd are stored in bf16, fp8",
    )
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


def test_a_button_fills_in_the_advised_tolerance_and_changes_nothing_else() -> None:
    step = of_false_alarm("v1-k", TEST, {}, 1.0664)
    assert query_of(step.url) == {"test": "v1-k", "rtol": "0.0011", "atol": "0.0043"}
    assert step.label == "Submit with rtol 0.0011, atol 0.0043"
    gauged = of_false_alarm("v1-k", TEST, {"dx": {"rtol": 0.0, "atol": 0.02}}, 1.0664)
    assert "The gauge advises dx: rtol 0, atol 0.02." in gauged.text
    filled = query_of(gauged.url)
    # the form would add the test's comparators of all outputs to those of dx, which is refused
    assert {filled[name] for name in FORM_COMPARATORS} == {""}
    test = {**TEST, "inputs": {"regime": "normal"}}
    advised = {"dx": {"rtol": 0.0, "atol": 0.02}}
    place = {"branch": "main", "arch": "wormhole", "board": "n150"}
    [step] = advice.steps("v1-k", place, "pass", False, "job", test, "blunt", advised, ())
    assert json.loads(query_of(step.url)["rest"]) == {
        "inputs": {"regime": "normal"},
        "tolerance": advised,
    }
    steps = advice.steps("v1-k", place, "pass_by_tolerance", True, "job", test, None, {}, ())
    assert [step.label for step in steps] == ["Show the worst seeds", "Gauge this test"]


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (FlagKind.fix_masked, ["Compare these builds", "Bisect between these builds"]),
        (FlagKind.slower, ["Compare these builds"]),  # a bisection knows no time
    ],
)
def test_a_flag_of_two_builds_offers_what_can_show_it(kind: FlagKind, labels: list[str]) -> None:
    place = {"test_key": "v1-k", "branch": "main", "arch": "wormhole", "board": "n150"}
    evidence = {"rerun": {"builds": ["b2", "b4"]}}
    flag: Any = FlagRow(kind=kind, last_job="job", evidence=evidence, **place)
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
GREEN: dict[str, Any] = {
    field.name: {"bool": False, "str": ""}.get(str(field.type)) for field in fields(Standing)
}


def standing_of(on: date, kinds: list[str]) -> dict[Variant, Standing]:
    """Tests "0", "1", ... that ran on a day, each "green" or "hollow"."""
    at = datetime.combine(on, time(5), UTC)
    return {
        Variant(str(place), "main", "wormhole", "n150"): Standing(
            **{**GREEN, "hollow": kind == "hollow", "at": at}
        )
        for place, kind in enumerate(kinds)
    }


@pytest.mark.parametrize(
    ("now", "before", "change", "better"),
    [
        (["hollow", "hollow", "green"], ["hollow", "green", "green"], "1 more", False),
        (["hollow", "green", "green"], ["hollow", "hollow", "green"], "1 fewer", True),
        # the second test hasn't run for a month: that is no improvement
        (["hollow"], ["hollow", "hollow"], "the same as", None),
        (["green"], [], "none had run", None),
    ],
)
def test_a_number_is_compared_with_that_of_the_same_tests_a_week_ago(
    now: list[str], before: list[str], change: str, better: bool | None
) -> None:
    days = [TODAY - timedelta(days=back) for back in reversed(range(numbers.SHOWN))]
    counted = {day: dict[Variant, Standing]() for day in days}
    counted |= {WEEK_AGO: standing_of(WEEK_AGO, before), TODAY: standing_of(TODAY, now)}
    (line,) = (one for one in numbers.of_tests(list(counted.items())) if one.name == "hollow")
    assert (line.value, line.of, line.better) == (now.count("hollow"), len(now), better)
    assert line.change.startswith(change)
