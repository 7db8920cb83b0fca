"""The devices' pictures and the overview's bars without a database: spans and gaps, shares of days,
cells, pieces."""

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


def states(*changes: DeviceHealthRow, **options: Any) -> list[tuple[str, float]]:
    """Return (state, hours) of each span."""
    return [
        (span.state, round(span.seconds / 3600, 1))
        for span in health_timeline.timeline(changes, SINCE, NOW, **options).spans
    ]


def test_a_device_s_page_tells_its_hosts_clock_and_what_was_refused() -> None:
    host = HostRow(
        name="lab-1",
        queues=["*"],
        joined_at=SINCE,
        revoked_at=None,
        heard_at=NOW,
        clock_skew_s=-301.25,
        clock_at=NOW,
        flagged_at=NOW - timedelta(hours=2),
        flag_reason="it spoke for lab-2",
        refusals=[
            RefusedRequestRow(reason=reason, count=count)
            for reason, count in {"age": 3, "sender": 1}.items()
        ],
    )
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


def test_an_outage_is_a_span_between_two_spans_and_says_why() -> None:
    silent, back = (
        change(50, "state", "offline", "no heartbeat for 30 s"),
        change(47, "state", "online"),
    )
    line = health_timeline.timeline(
        [change(100, "health", "good", "announced"), silent, back], SINCE, NOW
    )
    assert [(span.state, span.seconds / 3600) for span in line.spans] == [
        ("good", 50),
        ("offline", 3),
        ("good", 47),
    ]
    assert (
        line.spans[1].words
        == "offline for 3 h, from 29 Jan 10:30 to 29 Jan 13:30 UTC: no heartbeat for 30 s"
    )
    assert line.spans[2].words.endswith("to now UTC: announced")
    assert line.words == "Of the last 4 d 4 h: good 97%, offline 3%. Offline once, for 3 h."
    good, offline = charts.health(line)["series"]
    since = (NOW - timedelta(hours=100)).timestamp() * 1000
    assert good["data"][0][0] == since, "nothing is known before it was first heard of"
    assert offline["data"][0][2:4] != good["data"][0][2:4], "told apart by color alone"


def test_what_happens_while_a_device_is_away_counts_when_it_is_back() -> None:
    changes = [
        change(800, "health", "good"),
        change(50, "state", "offline"),
        change(49, "health", "bad", "the fan"),
    ]
    assert states(*changes) == [("good", 670.5), ("offline", 50.0)]
    line = health_timeline.timeline([*changes, change(40, "state", "online")], SINCE, NOW)
    assert [span.state for span in line.spans] == ["good", "offline", "bad"]
    assert line.spans[2].reason == "the fan"


def test_a_health_that_stays_divides_no_span_and_draining_does() -> None:
    changes = [
        change(100, "health", "bad"),
        change(90, "health", "bad", "again"),
        change(80, "drain", "drained"),
    ]
    assert states(*changes) == [("bad", 20.0), ("bad", 80.0)]
    assert [span.drained for span in health_timeline.timeline(changes, SINCE, NOW).spans] == [
        False,
        True,
    ]


def test_a_silence_that_nobody_has_noted_yet_is_drawn_too() -> None:
    first = change(100, "health", "good")
    assert states(first, silent_since=NOW - timedelta(hours=2)) == [
        ("good", 98.0),
        ("offline", 2.0),
    ]
    noted = change(1, "state", "offline")
    assert states(first, noted, silent_since=NOW - timedelta(hours=2)) == [
        ("good", 99.0),
        ("offline", 1.0),
    ]
    by_a_person = change(1, "health", "maintenance", "a new fan")
    assert states(first, by_a_person, silent_since=NOW - timedelta(hours=2)) == [
        ("good", 98.0),
        ("offline", 2.0),
    ], "nobody knows that it was good when it was silent"
    silent = health_timeline.timeline([first], SINCE, NOW, silent_since=NOW - timedelta(hours=2))
    assert silent.silence.startswith("The last heartbeat came on 31 Jan 10:30 UTC, 2 h ago.")
    assert silent.heard_at == "2026-01-31T10:30:00Z"
    before = health_timeline.timeline([first], SINCE, NOW, silent_since=SINCE - timedelta(days=9))
    assert before.silence.startswith("No heartbeat in this time.")
    assert before.heard_at is None
    assert health_timeline.timeline([first], SINCE, NOW).silence == ""
    assert health_timeline.timeline([], SINCE, NOW).words == "Nothing is known about this time."


def hour(back: int, **changes: Any) -> DevicePeriodRow:
    """Return an hour half at work, `back` hours before the hour of NOW."""
    sums: dict[str, Any] = {"seeds": 10, "busy_us": 1_800_000_000, "attempts": 5}
    sums |= dict.fromkeys(CanaryOutcome, 0) | {
        "telemetry": {"temperature_c": [2, 40.0, 90.0, 50.0]}
    }
    return DevicePeriodRow(start=NOW.replace(minute=0) - timedelta(hours=back), **sums | changes)


def test_telemetry_is_not_drawn_through_an_outage() -> None:
    hours = [hour(back) for back in (9, 8, 7, 3, 2)]
    view = activity.days(hours, SINCE, NOW, began=SINCE)
    (series,) = view.series
    assert series.words == "40 to 50 °C in 5 hours with work; the longest gap is 3 h."
    still = activity.days(
        [hour(1, telemetry={"clock_mhz": [1, 1000.0, 1000.0, 1000.0]})], SINCE, NOW, began=SINCE
    )
    assert still.series[0].words == "1,000 MHz in 1 hour with work."
    ranges, line = charts.telemetry(view, series)["series"]
    assert [row[2:4] for row in ranges["data"]] == [[40.0, 50.0]] * 5
    assert line["connectNulls"] is False
    assert [point[1] for point in line["data"]] == [45.0, 45.0, 45.0, None, 45.0, 45.0]


@pytest.mark.parametrize(
    ("reading", "ends"),
    [
        ((48.2, 48.2, 48.2), (45.8, 50.6)),  # one value: not 20 to 80
        ((0.0, 0.0, 0.0), (-0.5, 0.5)),
        ((40.0, 45.0, 50.0), None),  # ECharts fits it
    ],
)
def test_an_axis_of_telemetry_fits_its_readings(
    reading: tuple[float, float, float], ends: tuple[float, float] | None
) -> None:
    low, mean, high = reading
    measured = hour(1, telemetry={"power_w": [2, low, 2 * mean, high]})
    view = activity.days([measured], SINCE, NOW, began=SINCE)
    axis = charts.telemetry(view, view.series[0])["yAxis"]
    assert (axis.get("min"), axis.get("max"), axis.get("scale")) == (
        (None, None, True) if ends is None else (*ends, None)
    )


def test_a_day_s_share_is_of_the_time_that_the_device_was_there() -> None:
    view = activity.days(
        [hour(0, golden=3, failed=1), hour(30)], SINCE, NOW, began=NOW - timedelta(hours=30.5)
    )
    by_day = {day.day: day for day in view.days}
    assert len(by_day) == 31
    assert by_day["2026-01-31"].busy == pytest.approx(0.5 / 12.5)
    assert by_day["2026-01-30"].busy == pytest.approx(0.5 / 18)
    assert by_day["2026-01-29"].busy is None
    assert view.canaries == "4 canaries: 3 same bits as on other devices, 1 failed."
    bars = charts.canaries(view)["series"]
    assert [(bar["name"], bar["data"][-1]) for bar in bars] == [
        ("same bits as on other devices", ["31 Jan", 3]),
        ("failed", ["31 Jan", 1]),
    ]
    assert charts.work(view)["series"][0]["data"][-3:] == [
        ["29 Jan", None, 0, 0],
        ["30 Jan", 2.8, 10, 5],
        ["31 Jan", 4.0, 10, 5],
    ]


def test_one_hollow_pass_among_ten_thousand_is_seen() -> None:
    view = day_bars.days(
        [(date(2026, 1, 30), {}), (date(2026, 1, 31), {"pass": 9999, "pass_by_tolerance": 1})]
    )
    assert view.words == (
        "10,000 seeds in the last 2 days, on 1 of them; most on 2026-01-31, 10,000."
        " 1 hollow pass, 9,999 pass."
    )
    nothing, pieces = view.days[0].pieces, view.days[1].pieces
    assert nothing == ()
    assert [piece.verdict for piece in pieces] == ["pass_by_tolerance", "pass"]
    assert [piece.height for piece in pieces] == pytest.approx([day_bars.MIN_HEIGHT, 97], abs=0.1)
    assert [piece.y + piece.height for piece in pieces] == pytest.approx(
        [100, 97], abs=0.1
    )  # the worst lies lowest


def device(**changes: Any) -> DeviceLine:
    """Return a good, idle device."""
    usual: dict[str, Any] = {
        "id": "1",
        "device": "lab-1/wormhole:0",
        "host": "lab-1",
        "name": "wormhole:0",
        "health": DeviceHealth.good,
        "drained": False,
        "heard_at": NOW,
        "health_at": NOW - timedelta(days=2),
    }
    return DeviceLine(DeviceRow(**{**usual, **changes}), None, Load(0.0, 0.0))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"health": DeviceHealth.bad, "reason": "it hung"}, "bad for 2 d: it hung"),
        ({"health": DeviceHealth.bad, "drained": True}, None),
        ({"health": DeviceHealth.maintenance, **OFFLINE}, None),
        ({**OFFLINE, "heard_at": NOW - timedelta(hours=3)}, "offline, last heartbeat 3 h ago"),
        (
            {**OFFLINE, "health": DeviceHealth.bad, "reason": "it hung"},
            "bad for 2 d: it hung; offline, last heartbeat just now",
        ),
        ({**OFFLINE, "heard_at": NOW - timedelta(days=8)}, None),
    ],
)
def test_trouble_is_what_nobody_has_in_hand(changes: dict[str, Any], words: str | None) -> None:
    strip = fleet.fleet([device(**changes)], NOW)
    assert [trouble.words for trouble in strip.trouble] == ([] if words is None else [words])
    others = [device(**OFFLINE), device(health=DeviceHealth.bad), device(**changes)]
    verdicts = [trouble.verdict for trouble in fleet.fleet(others, NOW).trouble]
    assert verdicts == sorted(verdicts, key=["fail", "suspect", "error"].index)


def test_a_cell_says_in_one_sentence_what_its_shape_and_letter_say() -> None:
    odd = device(
        device="lab-2/wormhole:0",
        host="lab-2",
        health=DeviceHealth.suspect,
        reason="odd bits",
        state=DeviceState.busy,
    )
    strip = fleet.fleet([device(), odd], NOW)
    assert [(cell.label, cell.letter) for cell in strip.cells] == [
        ("lab-1/wormhole:0", "I"),
        ("lab-2/wormhole:0", "B"),
    ]
    assert strip.cells[1].sentence == "lab-2/wormhole:0: suspect, busy (odd bits)"
    assert strip.words == "2 devices: 1 busy, 1 idle"
