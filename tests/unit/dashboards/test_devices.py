"""The devices' pages: spans of health and gaps, shares of days, and who needs someone."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from gonogo_dashboards.devices import activity, charts, fleet, health_timeline, hosts
from gonogo_dashboards.devices.lines import DeviceLine
from gonogo_dashboards.overview import days as day_bars
from gonogo_service.devices.model import DeviceHealthRow, DevicePeriodRow, DeviceRow
from gonogo_service.devices.periods import Load
from gonogo_service.hosts.model import HostRow, RefusedRequestRow
from gonogo_service.kit.database.states import CanaryOutcome, DeviceHealth, DeviceState

NOW = datetime(2026, 1, 31, 12, 30, tzinfo=UTC)
SINCE = datetime(2026, 1, 1, 12, tzinfo=UTC)
OFFLINE = {"state": DeviceState.offline}


def change(hours_ago: float, what: str, after: str, reason: str = "") -> DeviceHealthRow:
    at, about = NOW - timedelta(hours=hours_ago), {"actor": "background", "reason": reason}
    return DeviceHealthRow(at=at, what=what, after=after, **about)


def test_a_device_s_page_tells_its_hosts_clock_and_what_was_refused() -> None:
    counts = {"age": 3, "sender": 1}
    refusals = [RefusedRequestRow(reason=reason, count=n) for reason, n in counts.items()]
    host = HostRow(name="lab-1", queues=["*"], joined_at=SINCE, heard_at=NOW, clock_at=NOW)
    host.clock_skew_s, host.refusals, host.revoked_at = -301.25, refusals, None
    host.flagged_at, host.flag_reason = NOW - timedelta(hours=2), "it spoke for lab-2"
    assert hosts.facts(host, NOW) == [
        ("host's clock", "301.2 s behind the service's"),
        ("refused requests", "age 3, sender 1"),
        ("host flagged", "2 h ago: it spoke for lab-2"),
    ]
    host.clock_skew_s, host.refusals, host.flagged_at, host.revoked_at = 4.0, [], None, NOW
    assert hosts.facts(host, NOW) == [
        ("host's token", "revoked just now"),
        ("host's clock", "4.0 s ahead of the service's"),
    ]
    assert hosts.facts(None, NOW) == []


GOOD = change(100, "health", "good", "announced")
AWAY = change(50, "state", "offline", "no heartbeat for 30 s")
HURT = change(49, "health", "bad", "fan")
STAYS_BAD = [change(100, "health", "bad"), change(90, "health", "bad")]
SILENT = NOW - timedelta(hours=2)


@pytest.mark.parametrize(
    ("changes", "silent_since", "spans"),
    [
        ([GOOD, AWAY, change(47, "state", "online")], None, "good 50, offline 3, good 47"),
        # what happens while it is away counts when it is back
        ([GOOD, AWAY, HURT], None, "good 50, offline 50"),
        ([GOOD, AWAY, HURT, change(40, "state", "online")], None, "good 50, offline 10, bad 40"),
        # a health that stays divides no span, and draining does
        ([*STAYS_BAD, change(80, "drain", "drained")], None, "bad 20, bad 80"),
        ([GOOD], SILENT, "good 98, offline 2"),
        ([GOOD, change(1, "state", "offline")], SILENT, "good 99, offline 1"),
        ([GOOD, change(1, "health", "maintenance", "a new fan")], SILENT, "good 98, offline 2"),
    ],
)
def test_an_outage_is_a_span_between_two_spans(
    changes: list[DeviceHealthRow], silent_since: datetime | None, spans: str
) -> None:
    line = health_timeline.timeline(changes, SINCE, NOW, silent_since=silent_since)
    drawn = [f"{span.state} {span.seconds / 3600:.0f}" for span in line.spans]
    assert ", ".join(drawn) == spans


def test_an_outage_says_why_and_a_silence_when_it_began() -> None:
    line = health_timeline.timeline([GOOD, AWAY, change(47, "state", "online")], SINCE, NOW)
    assert line.spans[1].words == (
        "offline for 3 h, from 29 Jan 10:30 to 29 Jan 13:30 UTC: no heartbeat for 30 s"
    )
    assert line.words == "Of the last 4 d 4 h: good 97%, offline 3%. Offline once, for 3 h."
    good, offline = charts.health(line)["series"]
    assert good["data"][0][0] == (NOW - timedelta(hours=100)).timestamp() * 1000
    assert offline["data"][0][2:4] != good["data"][0][2:4], "told apart by color alone"
    silent = health_timeline.timeline([GOOD], SINCE, NOW, silent_since=SILENT)
    assert silent.silence.startswith("The last heartbeat came on 31 Jan 10:30 UTC, 2 h ago.")
    before = health_timeline.timeline([GOOD], SINCE, NOW, silent_since=SINCE - timedelta(days=9))
    assert before.silence.startswith("No heartbeat in this time.")
    assert health_timeline.timeline([GOOD], SINCE, NOW).silence == ""
    assert health_timeline.timeline([], SINCE, NOW).words == "Nothing is known about this time."


def hour(back: int, **changes: Any) -> DevicePeriodRow:
    """Return an hour half at work, `back` hours before the hour of NOW."""
    sums: dict[str, Any] = {"seeds": 10, "busy_us": 1_800_000_000, "attempts": 5}
    sums["telemetry"] = {"temperature_c": [2, 40.0, 90.0, 50.0]}
    sums |= dict.fromkeys(CanaryOutcome, 0)
    return DevicePeriodRow(start=NOW.replace(minute=0) - timedelta(hours=back), **sums | changes)


def test_telemetry_is_not_drawn_through_an_outage() -> None:
    view = activity.days([hour(back) for back in (9, 8, 7, 3, 2)], SINCE, NOW, began=SINCE)
    (series,) = view.series
    assert series.words == "40 to 50 °C in 5 hours with work; the longest gap is 3 h."
    ranges, line = charts.telemetry(view, series)["series"]
    assert [row[2:4] for row in ranges["data"]] == [[40.0, 50.0]] * 5
    assert [point[1] for point in line["data"]] == [45.0, 45.0, 45.0, None, 45.0, 45.0]


@pytest.mark.parametrize(
    ("reading", "ends"),
    [
        ((48.2, 48.2, 48.2), (45.8, 50.6)),  # one value: not 20 to 80
        ((0.0, 0.0, 0.0), (-0.5, 0.5)),
        ((40.0, 45.0, 50.0), (None, None)),  # ECharts fits it
    ],
)
def test_an_axis_of_telemetry_fits_its_readings(
    reading: tuple[float, float, float], ends: tuple[float | None, float | None]
) -> None:
    low, mean, high = reading
    measured = hour(1, telemetry={"power_w": [2, low, 2 * mean, high]})
    view = activity.days([measured], SINCE, NOW, began=SINCE)
    axis = charts.telemetry(view, view.series[0])["yAxis"]
    assert (axis.get("min"), axis.get("max")) == ends


def test_a_day_s_share_is_of_the_time_that_the_device_was_there() -> None:
    began = NOW - timedelta(hours=30.5)
    view = activity.days([hour(0, golden=3, failed=1), hour(30)], SINCE, NOW, began=began)
    busy = {day.day: day.busy for day in view.days}
    assert busy["2026-01-31"] == pytest.approx(0.5 / 12.5)
    assert busy["2026-01-30"] == pytest.approx(0.5 / 18)
    assert busy["2026-01-29"] is None
    assert view.canaries == "4 canaries: 3 same bits as on other devices, 1 failed."
    drawn = charts.work(view)["series"][0]["data"][-3:]
    assert drawn == [["29 Jan", None, 0, 0], ["30 Jan", 2.8, 10, 5], ["31 Jan", 4.0, 10, 5]]


def test_one_hollow_pass_among_ten_thousand_is_seen() -> None:
    counts = {"pass": 9999, "pass_by_tolerance": 1}
    view = day_bars.days([(date(2026, 1, 30), {}), (date(2026, 1, 31), counts)])
    assert view.words == (
        "10,000 seeds in the last 2 days, on 1 of them; most on 2026-01-31, 10,000."
        " 1 hollow pass, 9,999 pass."
    )
    pieces = view.days[1].pieces
    assert [piece.verdict for piece in pieces] == ["pass_by_tolerance", "pass"]
    assert [piece.height for piece in pieces] == pytest.approx([day_bars.MIN_HEIGHT, 97], abs=0.1)
    bottoms = [piece.y + piece.height for piece in pieces]
    assert bottoms == pytest.approx([100, 97], abs=0.1), "the worst lies lowest"


def device(**changes: Any) -> DeviceLine:
    usual: dict[str, Any] = {"id": "1", "device": "lab-1/wormhole:0", "host": "lab-1"}
    usual |= {"name": "wormhole:0", "health": DeviceHealth.good, "drained": False}
    usual |= {"heard_at": NOW, "health_at": NOW - timedelta(days=2)}
    return DeviceLine(DeviceRow(**{**usual, **changes}), None, Load(0.0, 0.0))


BAD = {"health": DeviceHealth.bad, "reason": "it hung"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        (BAD, "bad for 2 d: it hung"),
        ({**BAD, "drained": True}, None),
        ({"health": DeviceHealth.maintenance, **OFFLINE}, None),
        ({**OFFLINE, "heard_at": NOW - timedelta(hours=3)}, "offline, last heartbeat 3 h ago"),
        ({**OFFLINE, **BAD}, "bad for 2 d: it hung; offline, last heartbeat just now"),
        ({**OFFLINE, "heard_at": NOW - timedelta(days=8)}, None),
    ],
)
def test_trouble_is_what_nobody_has_in_hand(changes: dict[str, Any], words: str | None) -> None:
    strip = fleet.fleet([device(**changes)], NOW)
    assert [trouble.words for trouble in strip.trouble] == ([] if words is None else [words])


def test_a_cell_says_in_one_sentence_what_its_shape_and_letter_say() -> None:
    odd = {"health": DeviceHealth.suspect, "reason": "odd bits", "state": DeviceState.busy}
    strip = fleet.fleet([device(), device(device="lab-2/wormhole:0", host="lab-2", **odd)], NOW)
    assert [cell.letter for cell in strip.cells] == ["I", "B"]
    assert strip.cells[1].sentence == "lab-2/wormhole:0: suspect, busy (odd bits)"
    assert strip.words == "2 devices: 1 busy, 1 idle"
