"""The pictures of pages, as options for ECharts: every seed is a mark once, told apart by more than
color, and what has no number has a place, too."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gonogo.closeness import NEEDED_RTOLS
from gonogo.flakiness.history import ChangePoint, Changes, Tail, Threshold
from gonogo.flakiness.rates import rate
from gonogo.gauge.comparators import Comparator, beyond
from gonogo.gauge.curves import MAX_STEPS, curves
from gonogo.gauge.summary import MeasuredRate
from gonogo.judging.error_maps import error_map
from gonogo.spec.tolerances import Tolerance
from gonogo_dashboards.charts import charts, log_axis, plots
from gonogo_dashboards.charts.plots import ROUNDING_RATIO, TOLERANCE_RATIO, SeedPlot
from gonogo_dashboards.jobs import error_maps, map_charts
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.tests import curve_charts, error_curve, strip_charts, tail
from gonogo_dashboards.tests.strip_view import Strip, StripColumn, placed_of
from gonogo_dashboards.tests.tail import TailView
from gonogo_service.results.tallies import Figure, Tally
from gonogo_service.results.worst import Mark, shares, spread_of
from gonogo_service.tests.trends import Spread, Trend, TrendPoint

RIGHT = {"tolerance_ratio": 0.0265, "rounding_ratio": 0.99}
HOLLOW = {"tolerance_ratio": 0.101, "rounding_ratio": 50.0}


def mark(seed: int = 0, verdict: str = "pass", **statistics: float | None) -> Mark:
    explanation = "unexplained" if verdict in {"pass_by_tolerance", "fail"} else "explained"
    output = "dx" if statistics else ""
    return Mark("job", seed, 0, verdict, explanation, None, statistics, output)


def hollow(seed: int) -> Mark:
    return mark(seed, "pass_by_tolerance", **HOLLOW)


def plot(*marks: Mark, metric: str = TOLERANCE_RATIO) -> SeedPlot:
    return plots.picture("dx", metric, len(marks), marks)


def scatters(options: dict[str, Any]) -> list[dict[str, Any]]:
    kinds = [series for series in options["series"] if series["type"] == "scatter"]
    return [series for series in kinds if "dimensions" in series]


def line_heights(options: dict[str, Any]) -> list[float]:
    lines = [series.get("markLine", {}).get("data", ()) for series in options["series"]]
    return [line["yAxis"] for of_series in lines for line in of_series]


def named(options: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {series["name"]: series for series in options["series"]}


# the seeds of a job


def test_a_seed_lies_above_its_line_of_rounding_exactly_where_it_is_unexplained() -> None:
    shown = plot(hollow(0), mark(1, **RIGHT))
    assert shown.marks[0].rounding == pytest.approx(0.101 / 50)
    assert [one.value <= one.rounding for one in shown.marks] == [False, True]
    assert "1 of 2 seeds shown is unexplained, the worst 50 times as large." in shown.summary
    assert "between 0.0265 and 0.101 times the declared tolerance" in shown.summary
    small = plot(mark(0, **RIGHT), mark(1, "pass_by_tolerance", **RIGHT))
    assert "in a pattern that rounding never has." in small.summary
    assert plot(mark(1, **RIGHT)).summary.endswith(": no seed shown is unexplained.")
    options = charts.seeds(shown)
    assert (len(named(options)["rounding"]["data"]), line_heights(options)) == (2, [1])
    gap = charts.seeds(plot(hollow(0), hollow(1)))
    assert line_heights(gap) == [1, pytest.approx(0.00202)]
    [area] = [one for line in gap["series"] for one in line.get("markArea", {}).get("data", ())]
    assert [end["yAxis"] for end in area] == [pytest.approx(0.00202), 1]
    ratio = charts.seeds(plot(mark(rounding_ratio=6.0), metric=ROUNDING_RATIO))
    assert (line_heights(ratio), ratio["yAxis"]["name"]) == ([1.0], "error ÷ rounding")


def test_every_seed_is_a_mark_once_by_verdict_the_worst_last_and_no_number_at_the_top() -> None:
    numbers = mark(0, **RIGHT), mark(3, tolerance_ratio=0.0), hollow(4)
    shown = plot(*numbers, mark(1, "hang"), mark(2, "fail", tolerance_ratio=0.5, nonfinite=3))
    options = charts.seeds(shown)
    drawn = scatters(options)
    assert drawn[0]["name"] == "Pass"
    assert sorted(row[2] for series in drawn for row in series["data"]) == [0, 1, 2, 3, 4]
    assert len({series["symbol"] for series in drawn}) == 4, "told apart by color alone"
    y = {row[2]: row[1] for series in drawn for row in series["data"]}
    axis = options["yAxis"]
    assert axis["max"] > y[1] == y[2] > y[4] > y[0] > y[3] >= axis["min"] > 0
    assert shown.summary.endswith("At the top: 2 seeds without a finite number.")
    nothing = plots.picture("", ROUNDING_RATIO, 2, [mark(0, "crash"), mark(1, "crash")])
    assert nothing.summary == "2 seeds, none with an output: there is no error to draw."
    for one in (mark(5, **RIGHT), mark(5, "crash"), mark(5, tolerance_ratio=0.0)):
        options = charts.seeds(plot(one))
        assert options["xAxis"]["min"] < 5 < options["xAxis"]["max"]
        json.dumps(options, allow_nan=False)


@pytest.mark.parametrize(
    ("values", "ends"),
    [
        ([0.00187, 0.105, 1.0], (0.001, 2.0)),
        ([0.0133], (0.005, 0.05)),  # equal values don't look far apart
        ([3e-7, 9e-7, 0.0], (2e-7, 2e-6)),
        ([1e-300, 1e300], (5e-101, 2e100)),
        ([], (0.2, 5.0)),
    ],
)
def test_a_log_axis_fits_its_data(values: list[float], ends: tuple[float, float]) -> None:
    axis = log_axis.fitted(values)
    assert (axis.low, axis.high) == ends
    assert axis.high < axis.rail < axis.off


@pytest.mark.parametrize(
    ("seeds", "places", "ends"),
    [
        ([0], [0], (-0.5, 0.5)),
        ([0, 1], [0, 1], (-0.5, 1.5)),
        ([3, 2**52, 10**6], [1, 2, 3], (0.5, 3.5)),  # in order instead of to scale
    ],
)
def test_seeds_fill_the_axis(
    seeds: Sequence[int], places: list[int], ends: tuple[float, float]
) -> None:
    options = charts.seeds(plot(*(mark(seed, **RIGHT) for seed in seeds)))
    assert (options["xAxis"]["min"], options["xAxis"]["max"]) == ends
    assert sorted(row[0] for series in scatters(options) for row in series["data"]) == places


def test_the_spread_of_all_stands_for_the_seeds_that_are_not_sent() -> None:
    spread = spread_of([0.02 + 0.0001 * place for place in range(100)])
    marks = [mark(40, **RIGHT), mark(50, "hang")]
    shown = plots.picture("dx", TOLERANCE_RATIO, 100, marks, spread, ends=(0, 99))
    options = charts.seeds(shown)
    boxes, median = [series["data"] for series in options["series"] if series["type"] == "custom"]
    assert boxes[0] == [-0.5, 99.5, 0.02, 0.0299, 0.4]
    assert median == [[-0.5, 99.5, pytest.approx(0.0249, rel=0.02)]]
    assert options["xAxis"]["min"] < 0 < 99 < options["xAxis"]["max"]
    assert "lies between 0.02 and 0.0299 times" in shown.summary
    assert "The 2 marks are the worst seeds of each verdict" in shown.summary
    assert shares([24, 100_000, 24], 2000) == [24, 1952, 24]
    assert (shares([500, 500, 500], 90), shares([], 10)) == ([30, 30, 30], [])


@pytest.mark.parametrize(
    ("choice", "output"), [(None, "dx"), ("dbeta", "dbeta"), ("<script>", "dx")]
)
def test_the_plot_shows_the_output_with_the_worst_verdict_unless_asked(
    choice: str | None, output: str
) -> None:
    def tally(largest: float, counts: dict[str, int]) -> Tally:
        return Tally(seeds=4, counts=counts, figures={ROUNDING_RATIO: Figure(4, largest, largest)})

    dx = tally(5.0, {"pass": 3, "pass_by_tolerance": 1})
    assert plots.choose({"dbeta": tally(9.0, {"pass": 4}), "dx": dx}, choice) == output
    assert plots.choose({}, choice) == ""


def event(place: float, kind: str = "firmware") -> AxisEvent:
    return AxisEvent(place, f"b{place:g}", kind, kind, "18 until here, 19 from here on")


@pytest.mark.parametrize(
    ("events", "numbered", "texts", "shown"),
    [
        ((event(2, "arithmetic"), event(2), event(9)), True, ["1", "2"], [True, True]),
        ((event(2, "arithmetic"), event(2), event(9)), False, ["2 changes", "firmware"], None),
        # a label without room is left out, and its line stays
        ((event(2), event(2.5), event(3)), True, ["1", "2", "3"], [True, False, True]),
    ],
)
def test_labels_of_events_never_run_into_each_other(
    events: tuple[AxisEvent, ...], numbered: bool, texts: list[str], shown: list[bool] | None
) -> None:
    [series] = charts.marked(events, 30, numbered=numbered)
    drawn = [line["label"] for line in series["markLine"]["data"]]
    assert [label["formatter"] for label in drawn] == texts
    assert shown is None or [label["show"] for label in drawn] == shown


# a test over builds


def trend(*means: float | None, red: tuple[int, ...] = ()) -> Trend:
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
    none = Changes([], len(points), 0, "")
    return Trend("builds", "rms", points, {"dx": none}, none, [])


def test_a_curve_has_a_mark_and_a_whisker_for_each_build_with_numbers() -> None:
    words = "5 times larger from b2 on"
    between = ("b1", "b3"), 2, 1, 3
    change = ChangePoint("b2", *between, 0.95, 0.0, 1.0, p=None, odds=None, rates=None, words=words)
    numbers = {"dx": Changes([change], 4, 0, words)}
    shown = replace(trend(1e-3, None, 5e-3, 5e-3, red=(3,)), numbers=numbers)
    curve = error_curve.read(shown, "dx")
    assert curve is not None
    range_words = "dx: the mean rms error of 3 builds lies between 0.001 and 0.005."
    assert curve.summary == f"{range_words} {words}."
    whiskers, fine, failed, changed = curve_charts.trend(curve)["series"]
    assert [row[0] for row in whiskers["data"]] == [0, 2, 3]
    assert whiskers["data"][0][1:] == [5e-4, 2e-3]
    assert [row[2] for row in fine["data"]] == ["b0", "b2"]
    assert [row[2] for row in failed["data"]] == ["b3"]
    assert [edge["xAxis"] for edge in changed["markArea"]["data"][0]] == ["b1", "b3"]
    assert error_curve.read(trend(None, None), "dx") is None
    zeros = error_curve.read(trend(0.0, 0.0), "dx")
    assert zeros is not None
    assert all(row[1] > 0 for row in curve_charts.trend(zeros)["series"][1]["data"])


def test_a_curve_shows_hollow_builds_as_hollow_and_nan_above_all_numbers() -> None:
    plain, declared = trend(1e-3, 1e-3, 1e-3, None), Tolerance(pcc=0.999)
    metric = error_curve.metrics(declared)[0]
    points = [
        plain.points[0],
        replace(plain.points[1], counts={"pass_by_tolerance": 1, "pass": 1}),
        replace(plain.points[2], counts={"fail": 1, "pass_by_tolerance": 3}),
        replace(plain.points[3], counts={"fail": 2}, nonfinite={"dx": 2}),
    ]
    curve = error_curve.read(replace(plain, points=points, metric=metric), "dx", declared)
    assert curve is not None
    assert curve.summary.endswith("Hollow passes: 2 builds (b1, b2). NaN or Inf: 1 build (b3).")
    series = named(curve_charts.trend(curve))
    assert [row[2] for row in series["Pass"]["data"]] == ["b0"]
    assert [row[2] for row in series["Hollow pass"]["data"]] == ["b1"]
    assert [row[0] for row in series["also hollow"]["data"]] == [2]
    (rail,) = series["rail"]["markLine"]["data"]
    assert series["Fail"]["data"][-1][1] > rail["yAxis"]
    assert (metric, curve.limit) == ("pcc_deficit", pytest.approx(0.001))
    assert series["changes"]["markLine"]["data"][-1]["yAxis"] == curve.limit


def seed(number: int, *, wrong: bool = False, value: float | None = 0.03) -> Mark:
    verdict = "hang" if value is None else "pass_by_tolerance" if wrong else "pass"
    explanation = None if value is None else "unexplained" if wrong else "explained"
    return Mark("job", number, 0, verdict, explanation, value)


def strip(*groups: list[Mark], metric: str = "tolerance_ratio", whole: bool = True) -> Strip:
    placed = [placed_of(number, group) for number, group in enumerate(groups)]
    marks = tuple(one for of_column, _ in placed for one in of_column)
    lined = tuple(
        replace(band, rounding=0.002 if band.beyond else 0.06, declared=1.0, advised=0.05)
        for _, of_column in placed
        for band in of_column
    )
    about: dict[str, Any] = dict.fromkeys(("low", "most_from", "middle", "most_to", "high"), 0.03)
    about |= {"unnumbered": 0, "url": "/", "counts": ()}
    columns = tuple(
        StripColumn(build=f"b{place}", seeds=len(group), shown=len(group), **about)
        for place, group in enumerate(groups)
    )
    return Strip("dx", metric, "seed", len(marks), whole, 0, columns, marks, lined, ())


def test_the_strip_has_each_seed_in_its_builds_column_and_the_gap_where_a_kernel_is_wrong() -> None:
    shown = strip([seed(0), seed(1, value=None)], [seed(2, wrong=True, value=0.1), seed(0)])
    assert [round(one.x) for one in shown.marks] == [0, 0, 1, 1]
    assert [one.seed for one in shown.marks[2:]] == [0, 2], "the wrong one on the right"
    options = strip_charts.strip(shown)
    series = named(options)
    marks = {name: one for name, one in series.items() if "dimensions" in one}
    sizes = {name: len(one["data"]) for name, one in marks.items()}
    assert sizes == {"Pass": 2, "Hollow pass": 1, "Hang": 1}
    assert len({one["symbol"] for one in marks.values()}) == 3
    lines = options["series"][-1]["markLine"]["data"]
    assert max(line["yAxis"] for line in lines) < marks["Hang"]["data"][0][1]
    assert [row[2:4] for row in series["gap"]["data"]] == [[0.002, 1.0]]
    assert [row[3] for row in series["rounding"]["data"]][-1] == 0.002
    assert {row[2] for row in series["advised"]["data"]} == {0.05}
    many = strip_charts.strip(strip([seed(0)], metric="rounding_ratio", whole=False))
    assert many["series"][-1]["markLine"]["data"] == [], "the tolerance is no straight line here"
    assert len(named(many)["declared"]["data"]) == 1


@pytest.mark.parametrize("predicted", [0.004, None])
def test_a_predicted_failure_rate_is_a_mark_with_its_bound_or_the_reason_is_said(
    predicted: float | None,
) -> None:
    why, fits = "not enough seeds: 1 of 20", (Threshold(0.4, 10, 0.004),)
    bound = None if predicted is None else 0.01
    facts = Tail(100, 0, rate(0, 100), predicted, bound, False, 0.95, fits, 0.9, why, 100)
    shown = TailView(facts, ((0.1, 1.0), (0.4, 0.1), (0.8, 0.01), (0.9, 0.01)))
    options = tail.survival(shown)
    json.dumps(options)
    drawn = [] if predicted is None else [[1.0, 0.004, 0.004, 0.01]]
    assert options["series"][2]["data"] == drawn
    how = "Predicted from the largest errors" if predicted else "No failure rate can be predicted"
    assert shown.summary.endswith(f"{how}: {why}.")
    curve = tail._curve([0.0] * 60 + [0.1] * 30 + [0.5] * 10)
    assert [share for _, share in curve] == [0.4, 0.1], "seeds without an error are above nothing"


# maps of an error

ROW, FEATURE = np.arange(256.0)[:, None], np.arange(500.0)
"""8 rows of 16 tiles; the last is 20 wide."""
LAST = 0.5 * (FEATURE >= 480) + 0 * ROW
BY_ROW = 0.1 * np.repeat(np.array([1, -1, 1, 1, -1, -1, 1, -1]), 32)[:, None] + 0 * FEATURE
BY_COLUMN = 0.1 * np.where(FEATURE // 32 % 2, -1, 1) + 0 * ROW
ONE_TILE = 3.0 * ((ROW == 40) & (FEATURE == 70))
NOT_FINITE = np.where((ROW == 100) & (FEATURE == 100), np.nan, 5.0 * (ROW + FEATURE == 0))


def content(error: NDArray[np.float64], form: str | None = "bf16") -> error_maps.MapContent:
    """Return the page's view of an error on top of rounding noise."""
    noise = np.random.default_rng(0).normal(0, 1e-3, error.shape)
    return error_maps.content(error_map(1 + error + noise, np.ones(error.shape), form).to_json())


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (LAST, "The last column of tiles holds 100% of the error; it is only 20 wide, so a"),
        (LAST, "Counted in ulp of bf16, the largest error is 64.4 ulp (|e| 0.503)"),
        (BY_ROW, "horizontal stripes"),
        (BY_COLUMN, "vertical stripes"),
        (ONE_TILE, "Column 3 of 16 of tiles holds 100% of the error. Row 2 of 8 of tiles holds"),
        (NOT_FINITE, "1 value is NaN or Inf, most of them in rows 96 to 127, features 96 to 127."),
        (0 * LAST, "It is spread over the tiles without a pattern."),
    ],
)
def test_an_error_map_says_what_one_sees(error: NDArray[np.float64], sentence: str) -> None:
    assert sentence in content(error).summary


def test_the_colors_of_a_map_are_even_about_zero_and_decades_of_the_largest() -> None:
    view = content(LAST)
    assert view.tiles[0].features == (480, 499)
    scale = map_charts.signed(view)["visualMap"]
    assert scale["min"] == -scale["max"] == pytest.approx(-0.5, rel=0.01)
    assert 10 ** map_charts.largest(view)["visualMap"]["max"] == pytest.approx(view.largest)
    assert map_charts.unit(content(LAST, None)) == "absolute"
    flat = error_maps.content(error_map(np.ones(500), np.ones(500), "bf16").to_json())
    assert flat.summary == "No tile has an error: every value equals the reference."
    decades = map_charts.largest(flat)["visualMap"]
    assert decades["min"] < decades["max"]


# the curves of a gauge

CLOSE = Comparator("allclose", 0.001)
OUTPUTS = ["dx", "dgamma"]
counted = MeasuredRate.counted


def run(part: str, *errors: float, kind: str = "no_go") -> dict[str, Any]:
    """Return a run whose outputs need these atols; an infinite one stands for a NaN."""
    needed = [{f"{rtol:g}": error for rtol in NEEDED_RTOLS} for error in errors]
    numbers = [{"nonfinite": int(math.isinf(one["0"])), "needed_atol": one} for one in needed]
    outputs = dict(zip(OUTPUTS, numbers, strict=False))
    return {"part": part, "kind": kind, "able": True, "outputs": outputs}


GO = [run("correct", 0.01, 0.2, kind="go"), run("reversed", 0.02, 0.1, kind="go")]
NO_GO = [run("drop-s1", 0.5, 0.1), run("drop-s1", 0.7, 0.1), run("nan-tile", math.inf, 0.1)]
BOTH = curves(CLOSE, GO, NO_GO, OUTPUTS)


@pytest.mark.parametrize(
    ("tolerance", "alarms", "misses"),
    [
        (0.05, counted(2, 2), counted(0, 3)),
        (0.1, counted(1, 2), counted(0, 3)),  # at its own deviation a run passes
        (0.6, counted(0, 2), counted(1, 3)),
        (1e9, counted(0, 2), counted(2, 3)),  # NaN never passes
    ],
)
def test_a_run_passes_where_every_output_is_within(
    tolerance: float, alarms: MeasuredRate, misses: MeasuredRate
) -> None:
    step = BOTH.at(tolerance)
    assert (step.alarms, step.misses) == (alarms, misses)
    assert (BOTH.quiet_from, BOTH.blind_from) == (0.2, 0.5)


def test_steps_that_are_left_out_change_no_rate_and_exact_runs_always_pass() -> None:
    right = [run("correct", 0.001 * place, kind="go") for place in range(1, 999)]
    many = curves(CLOSE, right, [], ["dx"])
    assert len(many.steps) == MAX_STEPS
    for place in (1, 2, 500, 997):
        assert many.at(0.001 * place).alarms == counted(998 - place, 998)
    exact = [run("correct", 0.0, 0.0, kind="go"), *GO]
    rates = curves(CLOSE, exact, [run("unseen", 0.0, 0.0), *NO_GO], OUTPUTS)
    assert (rates.at(0.0).alarms, rates.at(0.0).misses) == (counted(2, 3), counted(1, 4))
    assert rates.blind_from == 0.0


ALLCLOSE = {"rtol": 0.001, "atol": 0.5}


@pytest.mark.parametrize(
    ("tolerance", "times"),
    [
        (ALLCLOSE, 0.4),
        ({**ALLCLOSE, "frobenius": 0.001}, 2.0),
        ({"pcc": 0.9999}, 2.0),
        ({"ulp": 64}, 0.5),
        ({}, None),
        ({"rtol": 0.0, "atol": 0.0}, math.inf),
        ({"rtol": 0.3, "atol": 1.0}, math.inf),
    ],
)
def test_how_far_beyond_a_tolerance_is_said_by_its_strictest_comparator(
    tolerance: dict[str, float], times: float | None
) -> None:
    needed = {"0": 0.2, "0.001": 0.2}
    numbers = {"needed_atol": needed, "rel_frobenius": 0.002, "pcc_deficit": 4e-4, "ulp_max": 32.0}
    assert beyond(tolerance, numbers) == (None if times is None else pytest.approx(times))
    assert beyond({"ulp": 0}, {"ulp_max": 0.0}) == 1, "0 is allowed and met"
