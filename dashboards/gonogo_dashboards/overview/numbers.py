"""The overview's line of numbers: hollow, red and flaky tests, and devices, with their trend. Pure.

A test counts by its newest builds of the last 30 days (gonogo_service.tests.standings), so that
a day on which few tests ran doesn't look like an improvement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from types import MappingProxyType

from gonogo import urls
from gonogo_dashboards.devices.fleet import WORST_FIRST, Fleet
from gonogo_dashboards.kit import sparks, words
from gonogo_service.devices.history import DayDevices
from gonogo_service.devices.sick_devices import SICK
from gonogo_service.tests.recent_builds import Standing
from gonogo_service.tests.standings import Kind, Standings, by_test, of_kind

WEEK = timedelta(days=7)
TILES = Kind.hollow, Kind.red, Kind.flaky
SHOWN = 14
"""Days of the small chart."""


@dataclass(frozen=True)
class NumberLine:
    """A number, what it counts, and how it compares with a week before."""

    name: str
    label: str
    sentence: str
    verdict: str
    value: int
    of: int
    before: int | None
    """The number of the same tests a week before; None where none had run then."""
    change: str
    """ "2 more than a week ago"."""
    better: bool | None
    """Whether it fell; None where it stayed."""
    bars: tuple[sparks.Bar, ...]
    bars_label: str
    """The values of the small chart in words."""
    url: str
    when: str = "in 30 days"
    parts: str = ""
    """The kinds of what is counted: "1 wrong, 4 false alarms, 1 not on main"."""
    ran: str = ""
    """ "2 of them ran today"."""


NO_EVENTS: Mapping[date, str] = MappingProxyType({})


def of_tests(
    counted: Sequence[tuple[date, Standings]],
    branch: str | None,
    events: Mapping[date, str] = NO_EVENTS,
) -> tuple[NumberLine, ...]:
    """Return the numbers of tests; `counted` are the last SHOWN days, today last.

    branch: the main branch, whose builds stand below the numbers. events: the changes of a day that
    can explain a step, in words.
    """
    (today, last), before = counted[-1], dict(counted)[counted[-1][0] - WEEK]
    now = by_test(last)
    of_branch = {variant: one for variant, one in last.items() if variant.branch == branch}
    compared = by_test(before).keys() & now.keys()
    ran = {key for key, standing in now.items() if standing.at.astimezone(UTC).date() == today}
    tests = {day: len({variant.test_key for variant in then}) for day, then in counted}
    lines = []
    for kind in TILES:
        keys = of_kind(last, kind)
        parts = [_reds(now[key] for key in keys)] if keys and kind is Kind.red else []
        if branch and (elsewhere := len(keys - of_kind(of_branch, kind))):
            parts.append(f"{elsewhere:,} not on {branch}")
        earlier = len(of_kind(before, kind) & compared) if compared else None
        points = [(day, len(of_kind(then, kind)), tests[day]) for day, then in counted]
        lines.append(
            NumberLine(
                name=kind,
                label=kind.label,
                sentence=kind.sentence,
                verdict=kind.mark,
                value=len(keys),
                of=len(now),
                parts=", ".join(parts),
                ran=f"{len(keys & ran):,} of them ran today" if keys else "",
                before=earlier,
                change=_change(len(keys), earlier),
                better=_better(len(keys), earlier),
                bars=_bars(points, "test", events),
                bars_label=f"{kind.label} tests by day",
                url=urls.catalogue({"standing": kind}),
            )
        )
    return tuple(lines)


def of_devices(fleet: Fleet, counted: Sequence[tuple[date, DayDevices]]) -> NumberLine:
    """Return the number of devices in trouble; `counted`: the sick ones by day.

    Today comes last; its devices are those of the fleet.
    """
    sick = sum(cell.line.device.health in SICK for cell in fleet.cells)
    today = counted[-1][0]
    then = dict(counted).get(today - WEEK, DayDevices())
    before = then.sick if then.known else None
    points = [(day, devices.sick, devices.known) for day, devices in counted[:-1]]
    change = "none was known a week ago"
    if before is not None:
        change = f"{sick:,} sick, {before:,} a week ago"
    if offline := sum(one.verdict == WORST_FIRST[-1] for one in fleet.trouble):
        change = f"{offline:,} only offline; {change}"
    known = len(fleet.cells)
    return NumberLine(
        name="devices",
        label="Devices in trouble",
        sentence="Devices that are bad, suspect or offline, or whose canary's bits differ.",
        verdict="error",
        value=len(fleet.trouble),
        of=known,
        when="now",
        before=before,
        change=change if known else "",
        better=_better(sick, before),
        bars=_bars([*points, (today, sick, known)], "device", NO_EVENTS) if known else (),
        bars_label="Bad and suspect devices by day",
        url="#fleet" if fleet.trouble else urls.devices(),
    )


def _reds(standings: Iterable[Standing]) -> str:
    """Return how many of the red tests are wrong, or false alarms: "1 wrong, 4 false alarms"."""
    nouns = (
        ("wrong", "wrong"),
        ("false alarm", "false alarms"),
        ("with hangs or crashes", "with hangs or crashes"),
        ("not judged", "not judged"),
    )
    kinds = Counter((one.wrong, one.false_alarm, one.lost, True).index(True) for one in standings)
    return ", ".join(words.count(kinds[place], *nouns[place]) for place in sorted(kinds))


def _better(value: int, before: int | None) -> bool | None:
    return None if before is None or before == value else value < before


def _change(value: int, before: int | None) -> str:
    if before is None:
        return "none had run a week ago"
    if value == before:
        return "the same as a week ago"
    return f"{abs(value - before):,} {'more' if value > before else 'fewer'} than a week ago"


def _bars(
    points: Sequence[tuple[date, int, int]], noun: str, events: Mapping[date, str]
) -> tuple[sparks.Bar, ...]:
    """Return the bars of (day, number, number of all)."""
    in_words = []
    for day, value, ran in points:
        text = f"{day:%b} {day.day}: {value:,} of {words.count(ran, noun)}"
        event = events.get(day, "")
        in_words.append((value, f"{text}; {event}" if event else text, bool(event)))
    return sparks.bars(in_words)
