"""The strip plot and the matrix without a database: where seeds stand, what the lines say, which
verdict a cell has."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from gonogo.gauge.comparators import beyond
from gonogo_dashboards.kit import build_cells, words
from gonogo_dashboards.tests import strip_charts
from gonogo_dashboards.tests.strip_view import HALF, Strip, StripColumn, placed_of
from gonogo_service.results.worst import Mark, shares


def seed(number: int, *, wrong: bool = False, value: float | None = 0.03) -> Mark:
    verdict = "hang" if value is None else "pass_by_tolerance" if wrong else "pass"
    return Mark(
        "job",
        number,
        0,
        verdict,
        None if value is None else "unexplained" if wrong else "explained",
        value,
    )


def plot(*groups: list[Mark], metric: str = "tolerance_ratio", whole: bool = True) -> Strip:
    placed = [placed_of(number, group) for number, group in enumerate(groups)]
    marks = [mark for of_column, _ in placed for mark in of_column]
    bands = [band for _, of_column in placed for band in of_column]
    lined = [
        replace(band, rounding=0.002 if band.beyond else 0.06, declared=1.0, advised=0.05)
        for band in bands
    ]
    spread: dict[str, Any] = {
        "low": 0.01,
        "most_from": 0.02,
        "middle": 0.03,
        "most_to": 0.05,
        "high": 0.1,
        "unnumbered": 0,
    }
    columns = [
        StripColumn(
            **spread, build=f"b{place}", url="/", seeds=len(group), shown=len(group), counts=()
        )
        for place, group in enumerate(groups)
    ]
    flat = tuple(marks)
    return Strip("dx", metric, "seed", len(flat), whole, 0, tuple(columns), flat, tuple(lined), ())


def drawn(options: dict[str, Any], name: str) -> list[list[Any]]:
    return next(series["data"] for series in options["series"] if series["name"] == name)


def test_seeds_stand_in_their_build_s_column_those_not_explained_on_the_right() -> None:
    shown = plot([seed(0), seed(1)], [seed(2), seed(3, wrong=True), seed(0), seed(1)])
    assert [round(mark.x) for mark in shown.marks] == [0, 0, 1, 1, 1, 1]
    assert [(band.column, band.beyond, band.shown) for band in shown.bands] == [
        (0, False, 2),
        (1, False, 3),
        (1, True, 1),
    ]
    assert [mark.seed for mark in shown.marks[2:]] == [
        0,
        1,
        2,
        3,
    ]  # by seed, and the wrong one last
    explained, other = shown.bands[1:]
    assert (explained.left, explained.right, other.right) == pytest.approx(
        (1 - HALF, other.left, 1 + HALF)
    )
    assert other.right - other.left == pytest.approx(
        0.3 * 2 * HALF, abs=1e-3
    )  # wide enough to be seen


def test_every_seed_is_drawn_once_in_its_verdict_s_series_and_a_hang_off_the_scale() -> None:
    options = strip_charts.strip(
        plot([seed(0), seed(1, value=None), seed(2, value=0.0)], [seed(0, wrong=True, value=0.1)])
    )
    json.dumps(options)
    marks = {series["name"]: series for series in options["series"] if "dimensions" in series}
    assert {name: len(series["data"]) for name, series in marks.items()} == {
        "Pass": 2,
        "Hollow pass": 1,
        "Hang": 1,
    }
    assert len({series["symbol"] for series in marks.values()}) == 3
    top, low = options["yAxis"]["max"], options["yAxis"]["min"]
    (rail,) = options["series"][-1]["markLine"]["data"]
    assert low < rail["yAxis"] < marks["Hang"]["data"][0][1] < top
    assert marks["Hang"]["data"][0][5:] == [None]
    assert all(
        row[1] >= low > 0 for row in marks["Pass"]["data"]
    )  # a log axis has no place for zero
    assert options["xAxis"]["axisLabel"]["formatter"] == ["b0", "b1"]


def test_the_gap_is_shaded_from_rounding_to_the_tolerance_where_a_wrong_kernel_is() -> None:
    options = strip_charts.strip(plot([seed(0)], [seed(0, wrong=True, value=0.1)]))
    assert [row[2:4] for row in drawn(options, "gap")] == [[0.002, 1.0]]
    assert [row[3] for row in drawn(options, "rounding")] == [0.06, 0.002]
    assert [row[2] for row in drawn(options, "advised")] == [0.05, 0.05]
    assert drawn(options, "range") == []
    assert [line["yAxis"] for line in options["series"][-1]["markLine"]["data"]] == [1]
    many = strip_charts.strip(plot([seed(0)], metric="rounding_ratio", whole=False))
    assert [row[2:4] for row in drawn(many, "range")] == [[0.01, 0.1], [0.02, 0.05]]
    assert [row[2] for row in drawn(many, "median")] == [0.03]
    assert (
        many["series"][-1]["markLine"]["data"] == []
    )  # the declared tolerance is no straight line on this axis
    assert len(drawn(many, "declared")) == 1


@pytest.mark.parametrize(
    ("tolerance", "times"),
    [
        ({"rtol": 0.001, "atol": 0.5}, 0.4),
        ({"rtol": 0.001, "atol": 0.5, "frobenius": 0.001}, 2.0),
        ({"pcc": 0.9999}, 2.0),
        ({"ulp": 64}, 0.5),
        ({}, None),
        ({"rtol": 0.0, "atol": 0.0}, float("inf")),
        ({"rtol": 0.3, "atol": 1.0}, float("inf")),
    ],
)
def test_how_far_beyond_a_tolerance_is_said_by_its_strictest_comparator(
    tolerance: dict[str, float], times: float | None
) -> None:
    needed = {"0": 0.2, "0.001": 0.2}
    numbers = {"needed_atol": needed, "rel_frobenius": 0.002, "pcc_deficit": 4e-4, "ulp_max": 32.0}
    assert beyond(tolerance, numbers) == (None if times is None else pytest.approx(times))


def test_a_cell_is_the_worst_verdict_of_kernels_and_lost_seeds_count_only_alone() -> None:
    assert (
        build_cells.verdict_of({"pass": 60, "pass_by_tolerance": 1, "error": 3})
        == "pass_by_tolerance"
    )
    assert build_cells.verdict_of({"fail": 1, "pass_by_tolerance": 9}) == "fail"
    assert build_cells.verdict_of({"hang": 2, "error": 1}) == "error"
    assert build_cells.verdict_of({"pass": 0}) == "not_run"


def test_a_name_in_a_sentence_is_cut_and_cannot_turn_it() -> None:
    assert words.brief("b0304ff7a5") == "b0304ff7a5"
    assert words.brief("x" * 200) == "x" * 39 + "…"
    assert words.brief("\u202eevil") == "\u2068\u202eevil\u2069"
    assert words.brief("אבג") == "\u2068אבג\u2069"


def test_builds_with_few_seeds_leave_their_share_to_the_others() -> None:
    assert shares([24, 100_000, 24], 2000) == [24, 1952, 24]
    assert shares([500, 500, 500], 90) == [30, 30, 30]
    assert shares([], 10) == []
