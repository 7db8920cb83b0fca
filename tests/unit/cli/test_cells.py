"""Records on the terminal: labels of fields, of verdicts and of states."""

from __future__ import annotations

from gonogo.cli.kit import cells
from gonogo_service.cli.rejudge import in_words


def test_values_are_shown_by_their_labels() -> None:
    assert cells.cell("counts", {"pass_by_tolerance": 2, "pass": 1}).plain == (
        "2 hollow pass, 1 pass"
    )
    assert cells.cell("state", "cancelled").plain == "canceled"
    diagnosis = cells.cell("diagnosis", {"verdict": "fail_by_tolerance", "can_tell": True}).plain
    assert diagnosis == "verdict=False alarm, can_tell=yes"


def test_a_time_keeps_its_at_where_another_field_has_the_shorter_label() -> None:
    assert cells.label("health_at", ("health", "health_at")) == "health at"
    assert cells.label("created_at", ("health", "created_at")) == "created"


def test_a_tolerance_is_told_in_words() -> None:
    assert in_words({}) == "none"
    assert in_words({"rtol": 0.1, "atol": 0.5}) == "rtol 0.1, atol 0.5"
    assert in_words({"dx": {"rtol": 0.1}, "dgamma": {}}) == "dx: rtol 0.1; dgamma: none"
