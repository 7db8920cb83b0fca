"""Cron lines in time zones: the hours that clocks skip and repeat, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from gonogo.ci.cron import CronLine
from gonogo.errors import FieldError

FORWARD = datetime(2026, 3, 28, 22, tzinfo=UTC)  # Berlin: 29 March, 02:00 becomes 03:00 (01:00 UTC)
BACK = datetime(2026, 10, 24, 22, tzinfo=UTC)  # Berlin: 25 October, 03:00 becomes 02:00 (01:00 UTC)
SECOND = datetime(2026, 10, 25, 1, 10, tzinfo=UTC)  # within the second of two equal hours


@pytest.mark.parametrize(
    ("line", "start", "due"),
    [
        # a skipped time comes once, right after the gap
        ("30 2 * * *", FORWARD, ["29 01:00", "30 00:30", "31 00:30"]),
        ("*/15 2 * * *", FORWARD, ["29 01:00", "30 00:00", "30 00:15"]),
        ("0 2,3 * * *", FORWARD, ["29 01:00", "30 00:00", "30 01:00"]),
        # a doubled time comes once, the first time
        ("30 2 * * *", BACK, ["25 00:30", "26 01:30", "27 01:30"]),
        ("0,30 2 * * *", BACK, ["25 00:00", "25 00:30", "26 01:00"]),
        ("0 */3 * * *", BACK, ["25 02:00", "25 05:00", "25 08:00"]),
        ("30 2 * * *", SECOND, ["26 01:30"]),
        # every hour means every hour that passes
        ("30 * * * *", FORWARD, ["28 22:30", "28 23:30", "29 00:30"]),
        ("30 * * * *", BACK + timedelta(hours=2), ["25 00:30", "25 01:30", "25 02:30"]),
    ],
)
def test_clocks_that_change(line: str, start: datetime, due: list[str]) -> None:
    times = CronLine.parse(line, "Europe/Berlin").next(start, len(due))
    assert [f"{time:%d %H:%M}" for time in times] == due


def test_a_whole_day_that_a_zone_skips_comes_once_after_it() -> None:
    """Samoa had no 30 December 2011."""
    due = CronLine.parse("0 6 30 12 *", "Pacific/Apia").after(datetime(2011, 12, 1, tzinfo=UTC))
    assert due == datetime(2011, 12, 30, 10, tzinfo=UTC)


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York", "Asia/Kathmandu", "UTC"]
)
def test_due_times_only_go_forward_and_leave_no_day_out(zone: str) -> None:
    line = CronLine.parse("*/20 1-3 * * *", zone)
    for month, day in ((3, 5), (3, 25), (10, 1), (10, 22), (11, 1)):
        due_times = line.next(datetime(2026, month, day, 12, tzinfo=UTC), 60)
        gaps = [later - earlier for earlier, later in pairwise(due_times)]
        assert min(gaps) > timedelta(0)
        assert max(gaps) <= timedelta(hours=23, minutes=20)


@pytest.mark.parametrize("line", ["nightly", "0 0 30 2 *", "0 0 0 2 * *", "60 * * * *"])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(FieldError) as refused:
        CronLine.parse(line, "UTC")
    assert refused.value.field == "cron"
    assert refused.value.limit


@pytest.mark.parametrize("zone", ["Berlin", "Europe/Berln", "../etc/passwd", "America", "\0"])
def test_a_zone_that_is_none_is_refused_with_the_nearest_name(zone: str) -> None:
    with pytest.raises(FieldError) as refused:
        CronLine.parse("0 2 * * *", zone)
    assert refused.value.field == "timezone"
    assert refused.value.limit
    assert ("did you mean 'Europe/Berlin'?" in refused.value.reason) == ("Berl" in zone)
