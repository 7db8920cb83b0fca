"""False alarms and misses over the tolerance: read off at any place, drawn with the window, said in
words."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from gonogo.closeness import NEEDED_RTOLS
from gonogo.gauge.comparators import Comparator
from gonogo.gauge.curves import MAX_STEPS, Curves, curves
from gonogo.gauge.summary import MeasuredRate
from gonogo_dashboards.gauges import charts
from gonogo_dashboards.gauges import curves as gauge_curves
from gonogo_dashboards.gauges.curves import today_of

CLOSE = Comparator("allclose", 0.001)
rate = MeasuredRate.counted


def row(part: str, *errors: float, kind: str = "no_go") -> dict[str, Any]:
    """Return a run whose outputs need these atols; an infinite one stands for a NaN."""
    outputs = {}
    for name, error in zip(("dx", "dgamma"), errors, strict=False):
        outputs[name] = {
            "nonfinite": 0 if math.isfinite(error) else 1,
            "needed_atol": {f"{rtol:g}": error for rtol in NEEDED_RTOLS},
        }
    return {"part": part, "kind": kind, "able": True, "outputs": outputs}


RIGHT = [row("correct", 0.01, 0.2, kind="go"), row("reversed", 0.02, 0.1, kind="go")]
WRONG = [row("drop-s1", 0.5, 0.1), row("drop-s1", 0.7, 0.1), row("nan-tile", math.inf, 0.1)]


def errors(rate_curves: Curves, tolerance: float) -> tuple[MeasuredRate, MeasuredRate]:
    """Return false alarms and misses at a tolerance."""
    step = rate_curves.at(tolerance)
    return step.alarms, step.misses


def curves_of(*outputs: str) -> Curves:
    return curves(CLOSE, RIGHT, WRONG, outputs)


def test_a_run_passes_where_every_output_is_within_and_nan_never_does() -> None:
    rate_curves = curves_of("dx", "dgamma")
    assert (rate_curves.quiet_from, rate_curves.blind_from) == (
        0.2,
        0.5,
    )  # dgamma is what right kernels need, dx what wrong ones show
    assert errors(rate_curves, 0.05) == (rate(2, 2), rate(0, 3))
    assert errors(rate_curves, 0.1) == (
        rate(1, 2),
        rate(0, 3),
    )  # at its own deviation a run passes
    assert errors(rate_curves, 0.6) == (rate(0, 2), rate(1, 3))
    assert errors(rate_curves, 1e9) == (rate(0, 2), rate(2, 3))
    assert {onset.part: onset.tolerance for onset in rate_curves.onsets} == {
        "correct": 0.2,
        "reversed": 0.1,
        "drop-s1": 0.5,
        "nan-tile": None,
    }
    assert curves_of("dx").quiet_from == 0.02
    many = curves(
        CLOSE, [row("correct", 0.001 * place, kind="go") for place in range(1, 999)], [], ["dx"]
    )
    assert len(many.steps) == MAX_STEPS
    assert (many.steps[-1].tolerance, many.steps[-1].alarms) == (
        pytest.approx(0.998),
        rate(0, 998),
    )
    assert all(
        many.at(0.001 * place).alarms == rate(998 - place, 998) for place in (1, 2, 3, 500, 997)
    )  # whichever steps are left out
    assert errors(curves(CLOSE, [], [], ["dx"]), 1.0) == (
        rate(0, 0),
        rate(0, 0),
    )


def test_what_deviates_by_nothing_passes_at_every_tolerance() -> None:
    exact = [row("correct", 0.0, 0.0, kind="go"), *RIGHT]
    rate_curves = curves(CLOSE, exact, [row("unseen", 0.0, 0.0), *WRONG], ["dx", "dgamma"])
    assert errors(rate_curves, 0.0) == errors(rate_curves, 0.09) == (rate(2, 3), rate(1, 4))
    assert rate_curves.blind_from == 0.0
    shown = drawn(rate_curves, None)
    series = {curve["name"]: curve["data"] for curve in charts.curves(shown)["series"]}
    assert (series["right kernels that fail"][0][1], series["mutants that pass"][0][1]) == (
        pytest.approx(2 / 3, abs=1e-4),
        0.25,
    )
    assert series["interval of misses"][0][2] > 0


def picture(needed: float) -> gauge_curves.Picture:
    return drawn(curves_of("dx", "dgamma"), needed)


def drawn(rate_curves: Curves, needed: float | None, today: float = 0.6) -> gauge_curves.Picture:
    test = {"tolerance": {"rtol": 0.001, "atol": today}}
    return gauge_curves.picture(
        rate_curves,
        comparator=str(CLOSE),
        axis="atol (rtol 0.001)",
        of=gauge_curves.ALL,
        needed=needed,
        today=today_of(test, CLOSE, ["dx", "dgamma"]),
    )


def test_the_window_lies_between_what_rounding_needs_and_the_first_miss() -> None:
    shown = picture(0.25)
    options = charts.curves(shown)
    json.dumps(options)
    series = {drawn_series["name"]: drawn_series for drawn_series in options["series"]}
    [[start, end]] = series["window"]["markArea"]["data"]
    assert (start["xAxis"], end["xAxis"]) == (0.25, 0.5)
    assert [line["xAxis"] for line in series["window"]["markLine"]["data"]] == [0.6]
    assert options["xAxis"]["min"] < 0.1 < 0.7 < options["xAxis"]["max"]
    assert series["mutants that pass"]["data"][0][1] == 0
    assert series["mutants that pass"]["data"][-1] == [
        options["xAxis"]["max"],
        pytest.approx(2 / 3, abs=1e-4),
    ]
    assert series["right kernels that fail"]["data"][0][1] == 1
    assert [point[2] for point in series["mutant"]["data"]] == ["drop-s1"]  # a NaN turns nowhere
    for pieces in (
        series["interval of misses"]["data"],
        series["interval of false alarms"]["data"],
    ):
        assert all(
            left < right and 0 <= least <= most <= 1 for left, right, least, most, _ in pieces
        )
    assert "The window is 0.25 to 0.5." in shown.summary
    assert (
        "The declared tolerance, 0.6, fails 0 of 2 runs of right kernels and passes 1 of 3 runs "
        "of mutants."
    ) in shown.summary
    assert [(point.tolerance, point.note) for point in shown.table if point.note] == [
        (0.25, "the window begins"),
        (0.5, "the window ends"),
        (0.6, "declared"),
    ]


def test_an_empty_window_is_said_and_what_rounding_needs_is_a_line() -> None:
    shown = picture(0.5)
    assert shown.window is None
    assert "The window is empty: rounding alone may need 0.5." in shown.summary
    marked = next(series for series in charts.curves(shown)["series"] if series["name"] == "window")
    assert marked["markArea"]["data"] == []
    assert [line["label"]["formatter"] for line in marked["markLine"]["data"]] == [
        "declared",
        "rounding may need",
    ]
