"""The overview's read model: what needs attention, what runs, the fleet, and recent results.

It reads indexes and roll-ups only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import fleet, hosts
from gonogo_dashboards.devices import lines as device_lines
from gonogo_dashboards.devices.fleet import Fleet
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.flags.flag_page import FindingLine
from gonogo_dashboards.kit import axis_events, commands, ranges, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_dashboards.kit.ranges import Range
from gonogo_dashboards.matrix import matrix_page
from gonogo_dashboards.matrix.matrix_page import Glance
from gonogo_dashboards.overview import days, numbers
from gonogo_dashboards.overview.days import Days
from gonogo_dashboards.overview.numbers import NumberLine
from gonogo_service.builds import entry_names
from gonogo_service.devices import history, periods
from gonogo_service.flags import attention as needs
from gonogo_service.flags.attention import Night, ShownFlag
from gonogo_service.jobs import queue_estimate
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.overview import latest as reads
from gonogo_service.results import tallies
from gonogo_service.tests import annotations as axis_changes
from gonogo_service.tests import recent_days, standings
from gonogo_service.tests.annotations import DatedAnnotation
from gonogo_service.webhooks import store as webhooks

EACH_KIND = 3
"""Flags shown per kind; a link leads to the others."""
RED_SHOWN = 8
DAYS = "30d"
DAY_RANGES = ("7d", "30d", "90d")
TESTS, BUILDS = 12, 20
"""Size of the compact matrix."""
RUNNING, RECENT = 12, 8
EVENTS_EVERY = timedelta(minutes=5)
HOLLOW = ("passes_by_tolerance", "fix_masked")


@dataclass(frozen=True)
class Need:
    """Something that needs attention, in a few words.

    `url` leads to the part of the page, or to the list.
    """

    what: str
    count: int
    words: str
    verdict: str
    url: str


@dataclass(frozen=True)
class FlagLine(FindingLine):
    """An open flag; `label` is its test's among the other flags of the page."""

    label: str
    gone: bool
    """Whether it was not found on the newest build."""


@dataclass(frozen=True)
class FlagKindLine:
    """The flags of one kind that nobody has acknowledged; `items` are the latest of them.

    The first `items` are still on the newest build. `gone` is the number of all that aren't.
    """

    kind: str
    kind_words: str
    verdict: str
    count: int
    gone: int
    url: str
    items: tuple[FlagLine, ...]


@dataclass(frozen=True)
class RedLine:
    """A red job of last night's runs.

    `new`: the test wasn't red the last time; `before` is its verdict then.
    """

    name: str
    job_url: str
    suite: str
    run_url: str
    build: str
    verdict: str
    new: bool
    before: str | None
    words: str


@dataclass(frozen=True)
class NightView:
    """The runs of the last 24 hours: their number, new failures, and known failures."""

    runs: int
    ended: int
    runs_url: str
    new: int
    old: int
    whole: bool
    """False: there are more than were counted."""
    items: tuple[RedLine, ...]
    words: str


@dataclass(frozen=True)
class QueueLine:
    """A queue; `age` is that of its oldest waiting job, "" for none."""

    queue: str
    waiting: int
    running: int
    workers: int
    stuck: bool
    oldest_at: str | None
    age: str
    url: str


@dataclass(frozen=True)
class RateLine:
    """Seeds stored within a window ("now" is the last minute or two).

    The rate is `amount` per `unit`; `url` is the page of the devices that stored them.
    """

    name: str
    seeds: int
    window_s: float
    per_s: float
    amount: float
    unit: str
    url: str
    words: str


@dataclass
class Memory:
    """The past days that one process has counted already."""

    totals: recent_days.Memory[Counter[str]] = field(default_factory=recent_days.Memory)
    tests: standings.Memory = field(default_factory=standings.Memory)
    changes: dict[str, tuple[datetime, list[DatedAnnotation]]] = field(default_factory=dict)
    """By time range: when the changes on the axis of days were read, and they."""


@dataclass(frozen=True)
class OverviewView:
    """The overview; where `needs` is empty, `calm` says so.

    Only `all_clear` means that no test is hollow, red, flaky or without a result.
    """

    numbers: tuple[NumberLine, ...]
    needs: tuple[Need, ...]
    calm: str
    all_clear: bool
    glance: Glance
    flags: tuple[FlagKindLine, ...]
    """By kind, the latest of each; `gone` ones were not found on a newer build."""
    acknowledged: int
    """Flags that somebody has acknowledged."""
    night: NightView
    queues: tuple[QueueLine, ...]
    fleet: Fleet
    rates: tuple[RateLine, ...]
    days: Days
    day_events: tuple[AxisEvent, ...]
    """The changes on the axis of days."""
    range: Range
    running: tuple[JobLine, ...]
    """The jobs that run, then the queue in its order."""
    recent: tuple[JobLine, ...]
    empty: bool
    start: str
    at: str | None

    @property
    def findings(self) -> tuple[FlagLine, ...]:
        """Return the latest flags of each kind that the newest build still has."""
        return tuple(flag for kind in self.flags for flag in kind.items if not flag.gone)

    @property
    def gone_count(self) -> int:
        """Return the number of all open flags that were not found on a newer build."""
        return sum(kind.gone for kind in self.flags)

    @property
    def gone(self) -> tuple[FlagLine, ...]:
        """Return the latest flags of each kind that were not found on a newer build."""
        return tuple(flag for kind in self.flags for flag in kind.items if flag.gone)


def overview(
    session: Session,
    memory: Memory,
    now: datetime,
    timeout_s: float,
    query: Mapping[str, str] | None = None,
) -> OverviewView:
    """Return the overview; `memory` is reused between calls.

    A device or worker without a heartbeat for `timeout_s` is offline.
    """
    open_jobs = reads.open_jobs(session, RUNNING)
    ended_jobs = reads.latest_jobs(session, reads.FINAL_STATES, RECENT)
    unseen, acknowledged = needs.open_flags(session, latest=EACH_KIND)
    keys = {job.test_key for job in (*open_jobs, *ended_jobs)}
    keys |= {each.flag.test_key for kind in unseen for each in kind.latest}
    entries = entry_names.latest(session, keys)
    running = tuple(job_line(job, now, entries.get(job.test_key)) for job in open_jobs)
    recent = tuple(job_line(job, now, entries.get(job.test_key)) for job in ended_jobs)
    flags = _kinds(unseen, now, entries)
    night = _night(needs.night(session, now=now))
    queues = tuple(
        _queue(status, now)
        for status in queue_estimate.statuses(session, timeout_s=timeout_s, now=now)
    )
    pulse = periods.pulse(session, now=now)
    strip = fleet.fleet(
        device_lines.lines(session, pulse, now, timeout_s), now, hosts.flagged(session, now)
    )
    tests = standings.by_day(session, memory.tests, days=numbers.SHOWN, now=now)
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.overview({ranges.PARAMETER: value}),
        default=DAYS,
        allowed=DAY_RANGES,
    )
    changes = _changes(session, memory, period, now)
    lines = numbers.of_tests(tests, _by_day(changes, [day for day, _ in tests]))
    lost = sum(standing.lost for standing in tests[-1][1].values())
    known = [f"{line.value:,} {line.name}" for line in lines if line.value]
    known += [f"{lost:,} with seeds that crashed, hung or met an error"] if lost else []
    needs_shown = _needs(
        flags,
        night,
        strip,
        queues,
        webhooks.failing(session),
        next(line for line in lines if line.name == "red"),
        needs.lost_outside_runs(session, now=now),
    )
    count = partial(tallies.verdicts_by_day, session)
    shown = period.days or 30
    totals = recent_days.read(memory.totals, count, Counter, days=shown, now=now)
    seeds = days.days(totals)
    return OverviewView(
        numbers=(
            *lines,
            numbers.of_devices(
                strip,
                history.sick_by_day(session, days=numbers.SHOWN, now=now),
            ),
        ),
        needs=needs_shown,
        calm="" if needs_shown else _calm(night, strip, acknowledged, known),
        all_clear=not needs_shown and not known,
        glance=matrix_page.glance(session, TESTS, BUILDS),
        flags=flags,
        acknowledged=acknowledged,
        night=night,
        queues=queues,
        fleet=strip,
        rates=tuple(_rate(name, rate) for name, rate in pulse.rates.items()),
        days=seeds,
        day_events=axis_events.of_days(
            [change for change in changes if change.at >= (period.since or now)],
            [day.day for day in seeds.days],
        ),
        range=period,
        running=running,
        recent=recent,
        empty=not (running or recent or flags or acknowledged),
        start=commands.START,
        at=timestamp(now),
    )


def _changes(
    session: Session, memory: Memory, period: Range, now: datetime
) -> list[DatedAnnotation]:
    """Return the changes on both axes of days; they are read again after some minutes."""
    read_at, changes = memory.changes.get(period.value, (None, []))
    if read_at is None or not timedelta(0) <= now - read_at < EVENTS_EVERY:
        start = min(period.since or now, now - timedelta(days=numbers.SHOWN))
        changes = axis_changes.since(session, start)
        memory.changes[period.value] = now, changes
    return changes


def _by_day(changes: Sequence[DatedAnnotation], shown: Sequence[date]) -> Mapping[date, str]:
    """Return the changes of each day in words."""
    by_day: dict[date, str] = {}
    for event in axis_events.of_days(changes, [day.isoformat() for day in shown]):
        day = shown[round(event.place)]
        by_day[day] = f"{by_day[day]}; {event.words}" if day in by_day else event.words
    return by_day


def _kinds(
    kinds: Sequence[needs.OpenFlags], now: datetime, entries: Mapping[str, str]
) -> tuple[FlagKindLine, ...]:
    shown = [each for kind in kinds for each in kind.latest]
    listed = [
        Listed(
            each.test,
            entries.get(each.flag.test_key),
            place={
                "branch": each.flag.branch,
                "arch": each.flag.arch,
                "board": each.flag.board,
            },
        )
        for each in shown
    ]
    by_id = dict(zip((each.flag.id for each in shown), labels(listed), strict=True))
    return tuple(_kind(kind, now, entries, by_id) for kind in kinds)


def _kind(
    flags: needs.OpenFlags, now: datetime, entries: Mapping[str, str], names: Mapping[str, str]
) -> FlagKindLine:
    return from_object(
        FlagKindLine,
        flags,
        kind=flags.kind.value,
        kind_words=flags.kind.label,
        verdict=flags.kind.mark.value,
        url=urls.flags({"kind": flags.kind}),
        items=tuple(
            _flag(each, now, entries.get(each.flag.test_key), names[each.flag.id])
            for each in flags.latest
        ),
    )


def _flag(each: ShownFlag, now: datetime, entry: str | None, label: str) -> FlagLine:
    line = flag_page.line(each.flag, each.test, now, each.newest_build, entry)
    return from_object(FlagLine, line, label=label or f"{line.kernel} {line.shape}", gone=each.gone)


def _night(night: Night) -> NightView:
    new = sum(job.new for job in night.red)
    old = len(night.red) - new
    lines = tuple(
        from_object(
            RedLine,
            job,
            job_url=urls.job(job.job),
            run_url=urls.run(job.run),
            words=job.words or "",
        )
        for job in night.red
        if job.new
    )
    more = "" if night.whole else " at least"
    failures = words.count(new, "new failure")
    summary = f"{words.count(night.runs, 'run')} in the last 24 hours"
    summary += f", {night.ended} finished:{more} {failures}"
    summary += f", {old} that failed the last time too" if old else ""
    summary += f", {night.suspect} at the edge of rounding (suspect)" if night.suspect else ""
    summary = summary if night.runs else "No suite ran in the last 24 hours"
    return NightView(
        night.runs,
        night.ended,
        urls.runs(),
        new,
        old,
        night.whole,
        lines[:RED_SHOWN],
        summary + ".",
    )


def _queue(status: queue_estimate.QueueStatus, now: datetime) -> QueueLine:
    age_s = None if status.oldest_at is None else max(0.0, (now - status.oldest_at).total_seconds())
    return from_object(
        QueueLine,
        status,
        oldest_at=timestamp(status.oldest_at),
        age="" if age_s is None else words.duration(age_s),
        url=urls.jobs({"state": "queued"}),
    )


def _rate(name: str, rate: periods.SeedRate) -> RateLine:
    window = {"now": "now", "hour": "last hour", "day": "last day"}[name]
    amount, unit = words.pace(rate.per_s)
    url = (
        urls.jobs({"state": "running"}) if name == "now" else urls.devices()
    )  # this page shows the load of each device in the last hour and the last day
    text = f"{window}: {words.number(amount)} seeds/{unit} ({words.count(rate.seeds, 'seed')})"
    return RateLine(name, rate.seeds, rate.window_s, rate.per_s, amount, unit, url, text)


def _needs(
    flags: Sequence[FlagKindLine],
    night: NightView,
    strip: Fleet,
    queues: Sequence[QueueLine],
    failing: Sequence[str],
    red: NumberLine,
    lost: Mapping[str, int],
) -> tuple[Need, ...]:
    """Return the needs in the order of the page.

    Hollow passes, red tests, new failures, jobs without a result, devices, hosts, queues, webhooks,
    then other findings. `failing` are webhooks whose messages don't arrive; `lost` are the jobs
    outside of runs that have no result, by verdict.
    """
    hollow = sum(kind.count for kind in flags if kind.kind in HOLLOW)
    other = sum(kind.count for kind in flags if kind.kind not in HOLLOW)
    stuck = sum(queue.stuck for queue in queues)
    needs_found = (
        Need(
            "hollow",
            hollow,
            words.count(hollow, "hollow pass", "hollow passes"),
            "pass_by_tolerance",
            "#flagged",
        ),
        Need("red", red.value, words.count(red.value, "red test"), "fail", red.url),
        Need("failures", night.new, words.count(night.new, "new failure"), "fail", "#night"),
        Need(
            "lost",
            sum(lost.values()),
            words.count(sum(lost.values()), "job") + " without a result",
            words.ordered(lost)[0] if lost else "error",
            urls.jobs(
                {"verdict": next(iter(lost)) if len(lost) == 1 else None, ranges.PARAMETER: "1d"}
            ),
        ),
        Need(
            "devices",
            len(strip.trouble),
            words.count(len(strip.trouble), "device") + " in trouble",
            "error",
            "#trouble",
        ),
        Need(
            "hosts",
            len(strip.flagged),
            words.count(len(strip.flagged), "flagged host"),
            "suspect",
            "#trouble",
        ),
        Need("queues", stuck, words.count(stuck, "stuck queue"), "hang", "#stuck"),
        Need(
            "webhooks",
            len(failing),
            words.count(len(failing), "failing webhook"),
            "error",
            urls.webhook(failing[0]) if len(failing) == 1 else urls.webhooks(),
        ),
        Need("flags", other, words.count(other, "other new flag"), "suspect", "#flagged"),
    )
    return tuple(need for need in needs_found if need.count)


def _calm(night: NightView, strip: Fleet, acknowledged: int, known: Sequence[str]) -> str:
    """Return why nothing needs attention, and which tests are hollow or flaky nonetheless."""
    parts = [
        "no new flags",
        "no new failures in the last 24 hours",
        "no stuck queues",
    ]
    parts += ["all devices are healthy"] if strip.cells else []
    owned = (
        f"{words.count(acknowledged, 'flag')} {'is' if acknowledged == 1 else 'are'} acknowledged"
    )
    more = f" {owned}." if acknowledged else ""
    more += f" Among the tests of the last 30 days: {', '.join(known)}." if known else ""
    more += f" {words.count(night.old, 'test')} failed again as before." if night.old else ""
    return f"Nothing needs attention: {', '.join(parts[:-1])} and {parts[-1]}.{more}"
