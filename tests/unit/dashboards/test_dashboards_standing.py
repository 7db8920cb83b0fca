"""The pages of tests and flags, drawn and in words: curves over builds, evidence of any shape."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from gonogo.flakiness.grades import Sharpness, Stability
from gonogo.flakiness.history import Change, Changes
from gonogo.flakiness.masking import Change as KernelChange
from gonogo.flakiness.rates import rate
from gonogo.spec.tolerances import Tolerance
from gonogo_dashboards.kit import comparators_view, evidence_view, words
from gonogo_dashboards.tests import advice, curve_charts, error_curve
from gonogo_service.tests.build_series import MAX_BUILDS
from gonogo_service.tests.trends import Spread, Trend, TrendPoint


def trend(
    *means: float | None, red: tuple[int, ...] = (), changes: tuple[dict[str, Any], ...] = ()
) -> Trend:
    points = [
        TrendPoint(
            name=f"b{place}",
            failures=rate(int(place in red), 2),
            jobs=1,
            numbers={} if mean is None else {"dx": Spread(2, mean / 2, mean, 2 * mean)},
            counts={"fail": 1, "hang": 1} if place in red else {"pass": 2},
        )
        for place, mean in enumerate(means)
    ]
    sentence = "; ".join(change["words"] for change in changes) or "no change in 3 points"
    same = {"at": "b2", "between": ("b1", "b3"), "level": 0.95, "before": 0.0, "after": 1.0}
    unknown: dict[str, Any] = dict.fromkeys(("p", "odds", "rates"))
    steps = [Change(**change, **same, **unknown) for change in changes]
    none = Changes([], len(points), 0, "")
    return Trend(
        "builds", "rms", points, {"dx": replace(none, changes=steps, words=sentence)}, none, []
    )


def test_a_curve_has_a_mark_and_a_whisker_for_each_build_with_numbers() -> None:
    change = {"place": 2, "low": 1, "high": 3, "words": "5 times larger from b2 on"}
    curve = error_curve.read(trend(1e-3, None, 5e-3, 5e-3, red=(3,), changes=(change,)), "dx")
    assert curve is not None
    assert (
        curve.summary == "dx: the mean rms error of 3 builds lies between 0.001 and 0.005."
        " 5 times larger from b2 on."
    )
    options = curve_charts.trend(curve)
    json.dumps(options)
    whiskers, fine, failed, changed = options["series"]
    assert (fine["name"], failed["name"]) == ("Pass", "Fail")
    assert [row[0] for row in whiskers["data"]] == [0, 2, 3]
    assert whiskers["data"][0][1:] == [5e-4, 2e-3]
    assert [row[2] for row in fine["data"]] == ["b0", "b2"]
    assert [row[2] for row in failed["data"]] == ["b3"]
    assert changed["markLine"]["data"][0]["xAxis"] == "b2"
    assert [edge["xAxis"] for edge in changed["markArea"]["data"][0]] == ["b1", "b3"]
    assert options["yAxis"]["min"] <= 5e-4
    assert options["yAxis"]["max"] >= 1e-2


def test_a_curve_shows_hollow_builds_as_hollow_and_nan_on_a_rail_above_all_numbers() -> None:
    plain = trend(1e-3, 1e-3, None)
    hollow = replace(plain.points[1], counts={"pass_by_tolerance": 1, "pass": 1})
    odd = replace(plain.points[2], counts={"fail": 2}, nonfinite={"dx": 2})
    points = [plain.points[0], hollow, odd]
    declared = Tolerance(pcc=0.999)
    metric = error_curve.metrics(declared)[0]
    curve = error_curve.read(replace(plain, points=points, metric=metric), "dx", declared)
    assert curve is not None
    assert curve.summary.endswith("Hollow passes: 1 build (b1). NaN or Inf: 1 build (b2).")
    options = curve_charts.trend(curve)
    named = {series["name"]: series for series in options["series"]}
    assert [row[2] for row in named["Pass"]["data"]] == ["b0"]
    assert [row[2] for row in named["Hollow pass"]["data"]] == ["b1"]
    (row,) = named["Fail"]["data"]
    (rail,) = named["rail"]["markLine"]["data"]
    assert rail["yAxis"] < row[1] < options["yAxis"]["max"]
    assert (metric, curve.limit) == ("pcc_deficit", pytest.approx(0.001))
    assert named["changes"]["markLine"]["data"][-1]["yAxis"] == curve.limit


def test_a_red_build_with_hollow_seeds_is_among_the_hollow_ones_and_has_their_mark() -> None:
    plain = trend(1e-3, 1e-3)
    mixed = replace(plain.points[1], counts={"fail": 1, "pass_by_tolerance": 3})
    curve = error_curve.read(replace(plain, points=[plain.points[0], mixed]), "dx")
    assert curve is not None
    assert curve.summary.endswith("Hollow passes: 1 build (b1).")
    assert "pass_by_tolerance" in curve.verdicts
    named = {series["name"]: series for series in curve_charts.trend(curve)["series"]}
    assert [row[2] for row in named["Fail"]["data"]] == ["b1"]
    assert [row[0] for row in named["also hollow"]["data"]] == [1]


@pytest.mark.parametrize(
    ("numbers", "sentence"),
    [
        ({"tolerance_ratio": 0.5, "pcc_deficit": 0.0123}, "PCC 0.9877, needs 0.999"),
        (
            {"tolerance_ratio": 2.0, "pcc_deficit": None},
            "error ÷ tolerance 2 (allclose); PCC undefined, needs 0.999",
        ),
        (
            {"tolerance_ratio": 0.5, "pcc_deficit": 1e-6},
            "error ÷ tolerance 0.5 (allclose); PCC 0.999999, needs 0.999",
        ),
        ({"tolerance_ratio": 0.5, "pcc_deficit": 0.0, "nonfinite": 3}, "3 values NaN or Inf"),
        ({}, ""),
    ],
)
def test_an_output_says_which_comparators_decided(numbers: dict[str, Any], sentence: str) -> None:
    declared = Tolerance(rtol=1e-3, atol=0.5, pcc=0.999)
    assert comparators_view.decided(declared, numbers) == sentence


def test_a_strict_pcc_is_shown_with_the_digits_that_decide() -> None:
    declared = Tolerance(pcc=0.9999999)
    missed = comparators_view.decided(declared, {"pcc_deficit": 2.34e-7})
    assert missed == "PCC 0.999999766, needs 0.9999999"


def test_a_curve_of_zeros_and_of_nothing_is_defined() -> None:
    assert error_curve.read(trend(None, None), "dx") is None
    curve = error_curve.read(trend(0.0, 0.0), "dx")
    assert curve is not None
    options = curve_charts.trend(curve)
    assert all(
        row[1] > 0 for row in options["series"][1]["data"]
    )  # a log axis has no place for zero
    assert options["series"][1]["data"][0][5] == 0


def test_a_curve_of_as_many_builds_as_are_looked_at_says_that_they_are_the_newest() -> None:
    curve = error_curve.read(trend(*(1e-3,) * MAX_BUILDS), "dx")
    assert curve is not None
    assert f"of the newest {MAX_BUILDS} builds is 0.001" in curve.summary


def test_every_word_of_the_statistics_can_be_said_and_drawn() -> None:
    looks = {one.mark for kind in (Stability, Sharpness, KernelChange) for one in kind}
    assert all(
        words.mark(look).label != "No verdict yet" and words.sentence(look) for look in looks
    )


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
            "empty": {},
            "certain": True,
        }
    )
    assert proof.checks == ("gonogo check --seeds 1", "gonogo check --seeds 2")
    facts = dict(proof.facts)
    assert facts == {
        "seeds": "1, 2, 3",
        "digest": "0123456789ab",
        "failures": rate(3, 20).words,
        "certain": "yes",
    }
    missed, contexts = proof.tables
    assert missed.rows == (("drop-s1", rate(8, 8).words),)
    assert (contexts.columns, contexts.rows) == (
        ("name", "runs", "p"),
        (("isolated", "5", "–"), ("grouped", "–", "0.00123")),
    )
    assert (
        evidence_view.read({"a": [{"x": number} for number in range(100)]}).tables[0].left_out
        == 100 - evidence_view.MAX_ROWS
    )
    assert evidence_view.rate_words(asdict(rate(0, 0))) == "Unknown: no runs"


def test_the_advised_tolerance_takes_the_place_of_the_test_s_and_nothing_else() -> None:
    test = {
        "kernel": "layernorm_bw",
        "shape": [32, 64],
        "inputs": {"regime": "normal"},
        "tolerance": {"rtol": 1e-3, "atol": 0.5},
    }
    advised = {"dx": {"rtol": 0.0, "atol": 0.02}}
    place = {"branch": "main", "arch": "wormhole", "board": "n150"}
    [step] = advice.steps("v1-k", place, "pass", False, "job", test, "blunt", advised, ())
    query = dict(parse_qsl(urlsplit(step.url).query, keep_blank_values=True))
    assert (query["test"], query["rtol"], query["atol"]) == ("v1-k", "", "")
    assert json.loads(query["rest"]) == {
        "inputs": {"regime": "normal"},
        "tolerance": {"dx": {"rtol": 0.0, "atol": 0.02}},
    }
    steps = advice.steps("v1-k", place, "pass_by_tolerance", True, "job", test, None, {}, ())
    assert [step.label for step in steps] == ["Show the worst seeds", "Gauge this test"]
