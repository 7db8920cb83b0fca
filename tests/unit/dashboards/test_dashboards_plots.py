"""The picture of a job's seeds: from stored rows to chart options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gonogo_dashboards.charts import charts, log_axis, plots
from gonogo_dashboards.charts.plots import ROUNDING_RATIO, TOLERANCE_RATIO, SeedPlot
from gonogo_service.results.tallies import Figure, Tally
from gonogo_service.results.worst import Mark, spread_of

WRONG = {"pass_by_tolerance", "fail"}


def mark(seed: int = 0, verdict: str = "pass", **statistics: float | None) -> Mark:
    explanation = "unexplained" if verdict in WRONG else "explained"
    output = "dx" if statistics else ""
    return Mark("job", seed, 0, verdict, explanation, None, statistics, output)


def plot(*marks: Mark, metric: str = TOLERANCE_RATIO) -> SeedPlot:
    return plots.picture("dx", metric, len(marks), marks)


RIGHT = {"tolerance_ratio": 0.0265, "rounding_ratio": 0.99}
HOLLOW = {"tolerance_ratio": 0.101, "rounding_ratio": 50.0}


def scatters(options: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        series
        for series in options["series"]
        if series["type"] == "scatter" and "dimensions" in series
    ]


def line_heights(options: dict[str, Any]) -> list[float]:
    return [
        line["yAxis"]
        for series in options["series"]
        for line in series.get("markLine", {}).get("data", ())
    ]


def test_the_line_of_rounding_is_as_far_below_the_error_as_the_rounding_ratio_says() -> None:
    [seed_mark] = plot(mark(verdict="pass_by_tolerance", **HOLLOW)).marks
    assert seed_mark.rounding == pytest.approx(0.101 / 50)


@pytest.mark.parametrize(("statistics", "within"), [(RIGHT, True), (HOLLOW, False)])
def test_a_mark_lies_below_its_line_exactly_when_its_rounding_ratio_is_at_most_1(
    statistics: dict[str, float], within: bool
) -> None:
    [seed_mark] = plot(mark(**statistics)).marks
    assert seed_mark.value is not None
    assert seed_mark.rounding is not None
    assert (seed_mark.value <= seed_mark.rounding) is within


def test_an_error_as_small_as_rounding_s_is_said_to_be_unexplained_all_the_same() -> None:
    small, large = mark(1, "pass_by_tolerance", **RIGHT), mark(2, "fail", **HOLLOW)
    assert (
        "1 of 2 seeds shown is unexplained, the worst 0.99 times as large; 1 is no larger than"
        " that, in a pattern that rounding never has." in plot(mark(0, **RIGHT), small).summary
    )
    assert "pattern" not in plot(mark(0, **RIGHT), large).summary
    no_tolerance = plot(small, small, large, metric=ROUNDING_RATIO).summary
    assert "3 of 3 seeds shown are unexplained, the worst 50 times as large; 2 are" in no_tolerance


def test_the_summary_says_how_far_beyond_rounding_a_green_seed_is() -> None:
    summary = plot(mark(0, "pass_by_tolerance", **HOLLOW), mark(1, "pass", **RIGHT)).summary
    assert "1 of 2 seeds shown is unexplained, the worst 50 times as large." in summary
    assert "between 0.0265 and 0.101 times the declared tolerance" in summary


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


def test_without_a_tolerance_the_axis_is_the_rounding_ratio() -> None:
    shown = plot(mark(rounding_ratio=6.0), metric=ROUNDING_RATIO)
    assert shown.marks[0].value == 6.0
    options = charts.seeds(shown)
    assert line_heights(options) == [1.0]
    assert options["yAxis"]["name"] == "error ÷ rounding"
    [marks] = scatters(options)
    assert marks["dimensions"] == ["_x", "_y", "seed", "repeat", "error ÷ rounding", "_link"]


def test_every_seed_is_a_mark_once_by_verdict_and_the_worst_is_drawn_last() -> None:
    options = charts.seeds(
        plot(mark(0, **RIGHT), mark(1, "pass_by_tolerance", **HOLLOW), mark(2, **RIGHT))
    )
    drawn = scatters(options)
    assert [series["name"] for series in drawn] == ["Pass", "Hollow pass"]
    assert sorted(row[2] for series in drawn for row in series["data"]) == [0, 1, 2]
    assert len({series["symbol"] for series in drawn}) == 2, "told apart by color alone"


def test_the_tolerance_and_rounding_are_lines_and_the_gap_between_is_shaded() -> None:
    options = charts.seeds(
        plot(mark(0, "pass_by_tolerance", **HOLLOW), mark(1, "pass_by_tolerance", **HOLLOW))
    )
    assert line_heights(options) == [1, pytest.approx(0.00202)]
    [area] = [
        area for series in options["series"] for area in series.get("markArea", {}).get("data", ())
    ]
    assert [end["yAxis"] for end in area] == [pytest.approx(0.00202), 1]


def test_seeds_of_different_form_each_keep_their_own_limit() -> None:
    options = charts.seeds(plot(mark(0, "pass_by_tolerance", **HOLLOW), mark(1, **RIGHT)))
    [rounding] = [series for series in options["series"] if series["name"] == "rounding"]
    assert len(rounding["data"]) == 2
    assert line_heights(options) == [1]


def test_what_has_no_number_stands_above_everything_and_an_exact_zero_below() -> None:
    options = charts.seeds(
        plot(
            mark(0, **RIGHT),
            mark(1, "hang"),
            mark(2, "fail", tolerance_ratio=None, nonfinite=3),
            mark(3, tolerance_ratio=0.0),
        )
    )
    y = {row[2]: row[1] for series in scatters(options) for row in series["data"]}
    axis = options["yAxis"]
    assert y[1] == y[2] > y[0] > y[3] >= axis["min"] > 0
    assert y[1] < axis["max"]


@pytest.mark.parametrize(
    ("seeds", "ends"), [([0], (-0.5, 0.5)), ([0, 1], (-0.5, 1.5)), (range(101), (-2, 102))]
)
def test_few_seeds_fill_the_axis(seeds: Sequence[int], ends: tuple[float, float]) -> None:
    axis = charts.seeds(plot(*(mark(seed, **RIGHT) for seed in seeds)))["xAxis"]
    assert (axis["min"], axis["max"]) == ends


def test_seeds_with_wide_gaps_stand_in_order_instead_of_to_scale() -> None:
    options = charts.seeds(plot(mark(3, **RIGHT), mark(2**52, **RIGHT), mark(10**6, **RIGHT)))
    rows = [row for series in scatters(options) for row in series["data"]]
    assert {row[2]: row[0] for row in rows} == {3: 1, 10**6: 2, 2**52: 3}
    assert "in order" in options["xAxis"]["name"]


def test_the_spread_of_all_stands_for_the_seeds_that_are_not_sent() -> None:
    values = [0.02 + 0.0001 * place for place in range(100)]
    shown = plots.picture(
        "dx",
        TOLERANCE_RATIO,
        100,
        [mark(40, **RIGHT), mark(50, "hang")],
        spread_of(values),
        ends=(0, 99),
    )
    assert (shown.whole, shown.first, shown.last) == (False, 0, 99)
    options = charts.seeds(shown)
    boxes, median = [series["data"] for series in options["series"] if series["type"] == "custom"]
    assert boxes[0] == [-0.5, 99.5, 0.02, 0.0299, 0.4]
    assert boxes[1] == [
        -0.5,
        99.5,
        pytest.approx(0.0209, rel=0.02),
        pytest.approx(0.0289, rel=0.02),
        0.5,
    ]
    assert median == [[-0.5, 99.5, pytest.approx(0.0249, rel=0.02)]]
    assert options["xAxis"]["min"] < 0 < 99 < options["xAxis"]["max"]
    assert "lies between 0.02 and 0.0299 times" in shown.summary
    assert "The 2 marks are the worst seeds of each verdict" in shown.summary
    assert "The bar shows the range of the seeds" in shown.summary
    assert "marks are" not in plot(mark(0, **RIGHT)).summary


def test_one_seed_and_no_numbers_at_all_still_make_a_chart() -> None:
    assert [plot(mark(5, **fields)).numbered for fields in (RIGHT, {"verdict": "crash"})] == [
        True,
        False,
    ]  # the page shows the first
    for shown in (
        plot(mark(5, **RIGHT)),
        plot(mark(5, "crash")),
        plot(mark(5, "pass", tolerance_ratio=0.0, rounding_ratio=0.0)),
    ):
        options = charts.seeds(shown)
        assert options["xAxis"]["min"] < 5 < options["xAxis"]["max"]
        json.dumps(options, allow_nan=False)


def test_the_plot_shows_the_output_with_the_worst_verdict_unless_asked() -> None:
    def tally(largest: float, **counts: int) -> Tally:
        figures = {ROUNDING_RATIO: Figure(4, largest, largest)}
        return Tally(seeds=4, counts=counts, figures=figures)

    outputs = {
        "dbeta": tally(9.0, **{"pass": 4}),
        "dx": tally(5.0, **{"pass": 3, "pass_by_tolerance": 1}),
        "a": tally(1.0, **{"pass": 4}),
    }
    assert plots.choose(outputs, None) == "dx"
    assert plots.choose(outputs, "dbeta") == "dbeta"
    assert plots.choose(outputs, "<script>") == "dx"
    assert plots.choose({}, "dx") == ""


def test_the_words_say_how_many_seeds_have_no_number() -> None:
    odd = mark(1, "fail", nonfinite=1.0, **RIGHT)
    assert plot(mark(**RIGHT), odd, mark(2, "hang")).summary.endswith(
        "no seed shown is unexplained. At the top: 2 seeds without a finite number."
    )
    assert plot(mark(**RIGHT)).summary.endswith(": no seed shown is unexplained.")


def test_a_chart_of_seeds_without_outputs_says_so() -> None:
    summary = plots.picture("", ROUNDING_RATIO, 2, [mark(0, "crash"), mark(1, "crash")]).summary
    assert summary == "2 seeds, none with an output: there is no error to draw."
