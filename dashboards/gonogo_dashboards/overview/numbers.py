"""The overview's line of numbers: hollow, red and flaky tests, and devices, with their trend. Pure.

The numbers of tests are those of the last day on which most of the tests ran, so that the first
jobs of a day don't look like an improvement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from types import MappingProxyType

from gonogo import urls
from gonogo_dashboards.devices.fleet import WORST_FIRST, Fleet
from gonogo_dashboards.kit import ranges, words
from gonogo_storage.catalogue.test_list import HOLLOW, RED
from gonogo_storage.db.states import DeviceHealth
from gonogo_storage.devices.health_then import DayDevices
from gonogo_storage.rollups.day_tests import DayTests

DAYS, WEEK = 21, timedelta(days=7)
SHOWN = 14
"""Days of the small chart."""
_MOST = 0.5
"""A day counts where at least this share of the last week's largest number of tests ran."""
HEIGHT, STEP = 24.0, 5.0
"""The chart's height, and the width of a day."""


@dataclass(frozen=True)
class DayBar:
    """A day of the small chart: its place from the top, its height, its words."""

    x: float
    y: float
    height: float
    words: str
    event: bool = False
    """Whether something changed on this day that can explain a step, as `words` says."""


@dataclass(frozen=True)
class NumberLine:
    """A number, what it counts, and how it compares with a week before."""

    name: str
    label: str
    sentence: str
    verdict: str
    value: int
    of: int
    when: str
    """ "today", "yesterday" or the day."""
    so_far: str
    """Today in words, "1 of 3 tests so far today", where most of its tests haven't run yet."""
    before: int | None
    """The number a week before; None where nothing ran then."""
    change: str
    """ "2 more than a week ago"."""
    better: bool | None
    """Whether it fell; None where it stayed."""
    bars: tuple[DayBar, ...]
    bars_label: str
    """The values of the small chart in words."""
    url: str
    latest: int
    """The largest number of the days from that one until today."""


NO_EVENTS: Mapping[date, str] = MappingProxyType({})
_KINDS = (
    ("hollow", "Hollow", "pass_by_tolerance", HOLLOW,
     "Tests with a seed that passes only by tolerance."),
    ("red", "Red", "fail", RED, "Tests with a seed that fails, whether rightly or not."),
    ("flaky", "Flaky", "suspect", "flaky",
     "Tests with passing and failing seeds on the same build."),
)  # fmt: skip


def of_tests(
    counted: Sequence[tuple[date, DayTests]], events: Mapping[date, str] = NO_EVENTS
) -> tuple[NumberLine, ...]:
    """Return the numbers of tests; `counted` are the last DAYS days, today last.

    events: the changes of a day that can explain a step, in words.
    """
    days = dict(counted)
    today = counted[-1][0]
    shown = _shown(counted[-8:])
    since = "1d" if shown is not None and today - shown <= timedelta(days=1) else "7d"
    before = None if shown is None else days.get(shown - WEEK)
    lines = []
    for name, label, verdict, standing, sentence in _KINDS:
        value = 0 if shown is None else getattr(days[shown], name)
        earlier = None if before is None or not before.ran else getattr(before, name)
        lines.append(
            NumberLine(
                name,
                label,
                sentence,
                verdict,
                value,
                0 if shown is None else days[shown].ran,
                _when(shown, today),
                _so_far(counted[-1], name) if shown != today else "",
                earlier,
                _change(value, earlier),
                None if earlier is None or earlier == value else value < earlier,
                _bars(
                    [(day, getattr(tests, name), tests.ran) for day, tests in counted[-SHOWN:]],
                    "test",
                    events,
                ),
                f"{label} tests by day",
                urls.catalogue({"standing": standing, ranges.PARAMETER: since}),
                max((getattr(tests, name) for day, tests in counted if day >= (shown or day))),
            )
        )
    return tuple(lines)


def of_devices(fleet: Fleet, counted: Sequence[tuple[date, DayDevices]]) -> NumberLine:
    """Return the number of devices in trouble; `counted`: the sick ones by day.

    Today comes last; its devices are those of the fleet.
    """
    sick = sum(cell.health in (DeviceHealth.bad, DeviceHealth.suspect) for cell in fleet.cells)
    then = dict(counted).get(counted[-1][0] - WEEK, DayDevices())
    before = then.sick if then.known else None
    points = [(day, devices.sick, devices.known) for day, devices in counted[:-1]]
    points.append((counted[-1][0], sick, len(fleet.cells)))
    change = "none was known a week ago"
    if before is not None:
        change = f"{sick:,} sick, {before:,} a week ago"
    if offline := sum(one.verdict == WORST_FIRST[-1] for one in fleet.trouble):
        change = f"{offline:,} only offline; {change}"
    return NumberLine(
        "devices",
        "Devices in trouble",
        "Devices that are bad, suspect or offline, or whose canary's bits differ.",
        "error",
        len(fleet.trouble),
        len(fleet.cells),
        "now",
        "",
        before,
        change if fleet.cells else "",
        None if before is None or before == sick else sick < before,
        _bars(points, "device", NO_EVENTS) if fleet.cells else (),
        "Bad and suspect devices by day",
        "#trouble" if fleet.trouble else urls.devices(),
        len(fleet.trouble),
    )


def _shown(counted: Sequence[tuple[date, DayTests]]) -> date | None:
    """Return the last day on which most of the tests ran; None where none ran."""
    most = max((tests.ran for _, tests in counted), default=0)
    return next(
        (day for day, tests in reversed(counted) if tests.ran and tests.ran >= _MOST * most), None
    )


def _when(shown: date | None, today: date) -> str:
    if shown is None:
        return "this week"
    return {0: "today", 1: "yesterday"}.get((today - shown).days, f"on {shown:%b} {shown.day}")


def _so_far(today: tuple[date, DayTests], name: str) -> str:
    _, tests = today
    if not tests.ran:
        return ""
    return f"{getattr(tests, name):,} of {words.count(tests.ran, 'test')} so far today"


def _change(value: int, before: int | None) -> str:
    if before is None:
        return "nothing ran a week ago"
    if value == before:
        return "the same as a week ago"
    return f"{abs(value - before):,} {'more' if value > before else 'fewer'} than a week ago"


def _bars(
    points: Sequence[tuple[date, int, int]], noun: str, events: Mapping[date, str]
) -> tuple[DayBar, ...]:
    """Return the bars of (day, number, number of all)."""
    most = max((value for _, value, _ in points), default=0) or 1
    bars = []
    for place, (day, value, ran) in enumerate(points):
        height = round(HEIGHT * value / most, 1)
        if value:
            height = max(height, 2.0)
        text = f"{day:%b} {day.day}: {value:,} of {words.count(ran, noun)}"
        event = events.get(day, "")
        text += f"; {event}" if event else ""
        bars.append(DayBar(place * STEP, round(HEIGHT - height, 1), height, text, bool(event)))
    return tuple(bars)
