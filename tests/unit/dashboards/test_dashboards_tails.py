"""The distance of a test from failing: the share of seeds above each error, the prediction as a
mark, and words for both."""

from __future__ import annotations

import json

from gonogo.flakiness.history import Tail, Threshold
from gonogo.flakiness.rates import rate
from gonogo_dashboards.kit import words
from gonogo_dashboards.tests import tail
from gonogo_dashboards.tests.tail import TailView


def view(predicted: float | None, upper: float | None = 0.01) -> TailView:
    curve = ((0.1, 1.0), (0.4, 0.1), (0.8, 0.01), (0.9, 0.01))
    fits = (Threshold(0.4, 10, 0.004),)
    why, observed = "not enough seeds: 1 of 20", rate(0, 100)
    about = 100, 0, observed, predicted, upper, False, 0.95, fits, 0.9, why, 100
    return TailView(Tail(*about), curve)


def test_the_prediction_is_a_mark_where_green_turns_red_with_its_bound() -> None:
    shown = view(0.004)
    options = tail.survival(shown)
    json.dumps(options)
    line, bound, mark = options["series"]
    assert mark["data"] == [[1.0, 0.004, 0.004, 0.01]]
    assert bound["data"] == [[1.0, 0.004, 0.01]]
    assert [
        mark_line["yAxis"] for mark_line in line["markLine"]["data"] if "yAxis" in mark_line
    ] == [1e-3]
    assert (options["xAxis"]["min"], options["xAxis"]["max"]) == (0.05, 2.0)
    assert options["yAxis"]["min"] < 1e-3
    assert "0.004 of the seeds are predicted to fail, 0.01 at the upper 95% bound." in shown.summary


def test_seeds_without_any_error_are_above_nothing() -> None:
    curve = tail._curve([0.0] * 60 + [0.1] * 30 + [0.5] * 10)
    assert [share for _, share in curve] == [0.4, 0.1]
    assert curve[-1][0] == 0.5


def test_where_nothing_can_be_predicted_it_is_said_and_no_mark_is_drawn() -> None:
    shown = view(None, None)
    assert tail.survival(shown)["series"][2]["data"] == []
    assert shown.summary.endswith("No failure rate can be predicted: not enough seeds: 1 of 20.")


def test_names_within_a_sentence_cannot_turn_it() -> None:
    evil = "\u202eevil"
    assert words.tamed(f"b1 to {evil}: fixed", ["b1", evil]) == f"b1 to \u2068{evil}\u2069: fixed"
    assert words.tamed("nothing of it", ["", "x" * 90]) == "nothing of it"
