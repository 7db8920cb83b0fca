"""The picture of a job's seeds and the coefficients per tile: from stored rows to chart options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gonogo.flakiness.sketches import Sketch
from gonogo.spec.diagnoses import DiagnosedTerm, JobDiagnosis
from gonogo.spec.verdicts import POLICY
from gonogo_dashboards.charts import charts, log_axis, plots, spreads
from gonogo_dashboards.charts.plots import EVIDENCE, TOLERANCE_RATIO, SeedPlot
from gonogo_dashboards.jobs import term_charts
from gonogo_dashboards.jobs.diagnosis_view import view
from gonogo_storage.db.encoding import encode
from gonogo_storage.db.records import from_json
from gonogo_storage.jobs.job_seeds import MarkRecord, OutputRecord


def mark(seed: int = 0, verdict: str = "pass", **statistics: float | None) -> MarkRecord:
    return MarkRecord(seed, 0, "dx" if statistics else "", verdict, None, None, statistics)


def plot(*marks: MarkRecord, metric: str = TOLERANCE_RATIO) -> SeedPlot:
    return plots.picture("dx", metric, len(marks), marks)


RIGHT = {"tolerance_ratio": 0.0265, "budget_ratio": 0.99, "row_z": 1.0}
HOLLOW = {"tolerance_ratio": 0.101, "budget_ratio": 15.0, "xhat_z": 200.0}


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


def test_the_line_of_what_rounding_explains_comes_from_the_statistic_that_found_the_error() -> None:
    [seed_mark] = plot(mark(verdict="pass_by_tolerance", **HOLLOW)).marks
    # xhat_z is 50 times its limit of 4, budget_ratio only 5 times its limit of 3: an error of this
    # form is explained below 1/50
    assert seed_mark.evidence == pytest.approx(200 / POLICY.direction)
    assert seed_mark.explained == pytest.approx(0.101 / 50)


@pytest.mark.parametrize(("statistics", "explained"), [(RIGHT, True), (HOLLOW, False)])
def test_a_mark_lies_below_its_line_exactly_when_it_is_explained(
    statistics: dict[str, float], explained: bool
) -> None:
    [seed_mark] = plot(mark(**statistics)).marks
    assert seed_mark.value is not None
    assert seed_mark.explained is not None
    assert (seed_mark.value <= seed_mark.explained) is explained


def test_the_summary_says_how_far_beyond_rounding_a_green_seed_is() -> None:
    summary = plot(mark(0, "pass_by_tolerance", **HOLLOW), mark(1, "pass", **RIGHT)).summary
    assert "1 of 2 seeds shown are beyond that, the worst 50 times" in summary
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


def test_without_a_tolerance_the_axis_is_the_evidence() -> None:
    shown = plot(mark(budget_ratio=6.0), metric=EVIDENCE)
    assert shown.marks[0].value == pytest.approx(2.0)
    assert line_heights(charts.seeds(shown)) == [1.0]


def test_every_seed_is_a_mark_once_by_verdict_and_the_worst_is_drawn_last() -> None:
    options = charts.seeds(
        plot(mark(0, **RIGHT), mark(1, "pass_by_tolerance", **HOLLOW), mark(2, **RIGHT))
    )
    drawn = scatters(options)
    assert [series["name"] for series in drawn] == ["Pass", "Hollow pass"]
    assert sorted(row[2] for series in drawn for row in series["data"]) == [0, 1, 2]
    assert len({series["symbol"] for series in drawn}) == 2, "told apart by color alone"


def test_the_tolerance_and_the_budget_are_lines_and_the_gap_between_is_shaded() -> None:
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
        spreads.of(Sketch.of(values)),
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
    assert "The bar shows the range of all" in shown.summary
    assert "marks are" not in plot(mark(0, **RIGHT)).summary


def test_one_seed_and_no_numbers_at_all_still_make_a_chart() -> None:
    assert [plot(mark(5, **fields)).numbered for fields in (RIGHT, {"verdict": "crash"})] == [
        True,
        False,
    ]  # the page shows the first
    for shown in (
        plot(mark(5, **RIGHT)),
        plot(mark(5, "crash")),
        plot(mark(5, "pass", tolerance_ratio=0.0, budget_ratio=0.0)),
    ):
        options = charts.seeds(shown)
        assert options["xAxis"]["min"] < 5 < options["xAxis"]["max"]
        json.dumps(options, allow_nan=False)


def test_the_plot_shows_the_output_with_the_worst_verdict_unless_asked() -> None:
    outputs = [
        OutputRecord("dbeta", {"pass": 4}, 9.0),
        OutputRecord("dx", {"pass": 3, "pass_by_tolerance": 1}, 5.0),
        OutputRecord("a", {"pass": 4}, 1.0),
    ]
    assert plots.choose(outputs, None) == "dx"
    assert plots.choose(outputs, "dbeta") == "dbeta"
    assert plots.choose(outputs, "<script>") == "dx"
    assert plots.choose([], "dx") == ""


TERM = DiagnosedTerm(
    "dx",
    "s2",
    3,
    (0.0, None, 0.996),
    (0.0012, None, 0.0012),
    "s2 sums only the last tile",
    wrong=True,
)


def test_a_term_is_a_bar_per_known_tile_with_its_error() -> None:
    bars, strange, _ = term_charts.term(TERM)["series"]
    assert bars["data"] == [[3, 0.996, 0.0012]]
    assert strange["data"] == [[1, 0.0, 0.0012]], "only what is wrong stands out"
    assert bars["dimensions"][:3] == ["tile", "times used", "± standard error"]


def test_missing_and_surplus_parts_are_inside_the_axis() -> None:
    twice = replace(TERM, coefficients=(1.992, 0.0, -1.0))
    bars, strange, _ = term_charts.term(twice)["series"]
    assert bars["data"] == []
    assert [row[1] for row in strange["data"]] == [1.992, 0.0, -1.0]
    assert term_charts.term(twice)["yAxis"]["min"] < -1


def test_a_thousand_tiles_are_a_light_chart_and_a_short_table() -> None:
    errors = tuple(0.001 + 1e-7 * tile for tile in range(1000))
    last = replace(TERM, tiles=1000, coefficients=(*[-0.0004] * 999, 0.99812), errors=errors)
    assert len(encode(term_charts.term(last))) < 30_000
    assert term_charts.term_rows(last) == [
        ("1 … 999", "0.00", "0.0011"),
        ("1000", "1.00", "0.0011"),
    ]
    wild = replace(last, coefficients=tuple(0.1 * tile for tile in range(1000)))
    assert len(term_charts.term_rows(wild)) == term_charts.MAX_ROWS


def test_a_noisy_coefficient_is_not_called_wrong() -> None:
    assert term_charts.differs(1.3, 0.01)
    assert not term_charts.differs(1.3, 0.1)
    assert not term_charts.differs(0.997, 0.0001)


def test_grouped_tiles_say_which_they_are() -> None:
    grouped = replace(TERM, tiles=10, group=4, coefficients=(1.0, 1.0, 1.0), errors=())
    assert [term_charts.tiles_of(grouped, index) for index in range(3)] == [(1, 4), (5, 8), (9, 10)]
    assert [row[3] for row in term_charts.term(grouped)["series"][0]["data"]] == [
        "1 … 4",
        "5 … 8",
        "9 … 10",
    ]


def test_wrong_terms_come_first_and_those_without_numbers_are_left_out() -> None:
    shared = {"output": "dx", "tiles": 2, "errors": [0.1, 0.1]}
    terms = [
        {**shared, "name": "right", "coefficients": [1.0, 1.0]},
        {**shared, "name": "unknown", "coefficients": [None, None]},
        {**shared, "name": "wrong", "coefficients": [2.0, 2.0], "wrong": True},
    ]
    content = {"terms": terms, "words": "wrong is used twice", "can_tell": True, "seed": 4}
    diagnosis = view(from_json(JobDiagnosis, content))
    assert [term.name for term in diagnosis.terms] == ["wrong", "right"]
    assert (diagnosis.seed, diagnosis.words) == (4, "wrong is used twice")


@pytest.mark.parametrize("tiles", [1, 2, 3, 9, 16, 100, 265, 1000])
def test_the_axis_of_tiles_counts_from_1_as_the_words_do(tiles: int) -> None:
    view = DiagnosedTerm("dx", "s1", tiles, (1.0,) * tiles, (0.01,) * tiles)
    axis = term_charts.term(view)["xAxis"]
    ticks = axis["axisLabel"]["customValues"]
    assert ticks == axis["axisTick"]["customValues"]
    assert (ticks[0], ticks[-1]) == (1, tiles)
    assert ticks == sorted(set(ticks))
    assert len(ticks) <= 11


def test_the_words_do_not_call_every_seed_explained_where_some_have_no_number() -> None:
    odd = mark(1, "fail", nonfinite=1.0, **RIGHT)
    assert plot(mark(**RIGHT), odd, mark(2, "hang")).summary.endswith(
        "every other seed shown is within that. At the top: 2 seeds without a finite number."
    )
    assert plot(mark(**RIGHT)).summary.endswith("every seed shown is within that.")
