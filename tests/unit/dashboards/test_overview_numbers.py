"""The overview's numbers of tests compare a whole day with the same day a week before."""

from __future__ import annotations

from datetime import date, timedelta

from gonogo_dashboards.overview import numbers
from gonogo_storage.rollups.day_tests import DayTests

TODAY = date(2026, 11, 27)
FULL = DayTests(ran=12, hollow=3, red=2, flaky=1)


def hollow(**last: DayTests) -> numbers.NumberLine:
    """The number of hollow tests; `last`: today's tests and yesterday's, others are FULL."""
    days = [TODAY - timedelta(days=back) for back in reversed(range(numbers.DAYS))]
    of_day = dict.fromkeys(days, FULL)
    of_day[TODAY] = last.get("today", FULL)
    of_day[TODAY - timedelta(days=1)] = last.get("yesterday", FULL)
    return numbers.of_tests(list(of_day.items()))[0]


def test_a_day_on_which_most_tests_ran_is_compared_with_the_week_before() -> None:
    line = hollow(today=DayTests(ran=11, hollow=5))
    assert (line.value, line.of, line.when, line.so_far) == (5, 11, "today", "")
    assert (line.before, line.change, line.better) == (3, "2 more than a week ago", False)


def test_before_most_tests_ran_yesterday_counts_and_today_so_far_stands_beside_it() -> None:
    line = hollow(today=DayTests(ran=2, hollow=1), yesterday=DayTests(ran=12, hollow=2))
    assert (line.value, line.of, line.when) == (2, 12, "yesterday")
    assert line.so_far == "1 of 2 tests so far today"
    assert line.change == "1 fewer than a week ago"


def test_a_day_without_a_run_yet_says_nothing_of_today() -> None:
    assert hollow(today=DayTests()).so_far == ""
