"""The overview's numbers of tests compare how the same tests stand now and stood a week ago."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta

import pytest

from gonogo_dashboards.overview import numbers
from gonogo_service.tests.standings import Standing
from gonogo_service.tests.variants import Variant

TODAY = date(2026, 11, 27)
WEEK_AGO = TODAY - timedelta(days=7)


def standing_of(on: date, *kinds: str) -> dict[Variant, Standing]:
    """Return tests "0", "1", ... that ran on a day: one "green", "hollow", "wrong flaky", ..."""
    standings = {}
    for place, kind in enumerate(kinds):
        red = any(name in kind for name in ("wrong", "false_alarm", "unjudged"))
        of_kind = (name in kind for name in ("hollow", "wrong", "false_alarm"))
        at = datetime.combine(on, time(5), UTC)
        standings[Variant(str(place), "main", "wormhole", "n150")] = Standing(
            *of_kind, red, "flaky" in kind, False, None, at
        )
    return standings


def lines(
    now: dict[Variant, Standing], before: dict[Variant, Standing]
) -> dict[str, numbers.NumberLine]:
    """Return the numbers by name; a week before the tests stood as in `before`."""
    days = [TODAY - timedelta(days=back) for back in reversed(range(numbers.SHOWN))]
    counted = {day: dict[Variant, Standing]() for day in days} | {WEEK_AGO: before, TODAY: now}
    return {line.name: line for line in numbers.of_tests(list(counted.items()))}


@pytest.mark.parametrize(
    ("now", "before", "value", "change", "better"),
    [
        (["hollow", "hollow", "green"], ["hollow", "green", "green"], 2, "1 more", False),
        (["hollow", "green", "green"], ["hollow", "hollow", "green"], 1, "1 fewer", True),
        (["hollow"], ["hollow"], 1, "the same as", None),
        # the second test hasn't run for a month: that is no improvement
        (["hollow"], ["hollow", "hollow"], 1, "the same as", None),
        (["green"], [], 0, "none had run", None),
    ],
)
def test_a_number_is_compared_with_that_of_the_same_tests_a_week_ago(
    now: list[str], before: list[str], value: int, change: str, better: bool | None
) -> None:
    line = lines(standing_of(TODAY, *now), standing_of(WEEK_AGO, *before))["hollow"]
    assert (line.value, line.of, line.better) == (value, len(now), better)
    assert line.change.startswith(change)


def test_red_says_how_many_are_wrong_and_how_many_are_false_alarms() -> None:
    kinds = ["wrong", *["false_alarm flaky"] * 4, "wrong false_alarm", "green", "unjudged"]
    by_name = lines(standing_of(TODAY, *kinds), {})
    assert by_name["red"].value == 7
    assert by_name["red"].parts == "2 wrong, 4 false alarms, 1 not judged"
    assert (by_name["flaky"].value, by_name["flaky"].parts) == (4, "")


@pytest.mark.parametrize(("ran", "words"), [(TODAY, "1 of them ran today"), (WEEK_AGO, "0 of")])
def test_the_number_stays_when_nothing_ran_today(ran: date, words: str) -> None:
    line = lines(standing_of(ran, "hollow"), {})["hollow"]
    assert line.value == 1
    assert line.ran.startswith(words)
