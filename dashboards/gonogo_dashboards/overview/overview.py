"""The overview's read model: what needs attention, what runs, the fleet, and recent results."""

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
from gonogo_dashboards.kit import axis_events, commands, ranges
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.cache import LRUCache
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_dashboards.kit.ranges import Range
from gonogo_dashboards.matrix import matrix_page
from gonogo_dashboards.matrix.matrix_page import Glance
from gonogo_dashboards.overview import days, lines, numbers
from gonogo_dashboards.overview.days import Days
from gonogo_dashboards.overview.lines import (
    FlagKindLine,
    Need,
    NightView,
)
from gonogo_dashboards.overview.numbers import NumberLine
from gonogo_service.devices import history, periods
from gonogo_service.devices.periods import SeedRate
from gonogo_service.flags import attention
from gonogo_service.jobs import queue_estimate
from gonogo_service.jobs.queue_estimate import QueueStatus
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import FINAL_JOB
from gonogo_service.kit.principals import Principal
from gonogo_service.overview import latest, news
from gonogo_service.overview.news import Known, News
from gonogo_service.results import tallies
from gonogo_service.suites import run_changes
from gonogo_service.tests import axis_changes, entry_names, matrices, recent_days, standings
from gonogo_service.tests.axis_changes import DatedAnnotation
from gonogo_service.tests.standings import Kind, Standings
from gonogo_service.webhooks import store as webhooks

EACH_TOPIC = 3
"""News shown per topic; a link leads to the others."""
EACH_KIND = 3
"""Flags shown per kind; a link leads to the others."""
DAYS = "30d"
DAY_RANGES = ("7d", "30d", "90d")
TESTS, BUILDS = 12, 20
"""Size of the compact matrix."""
RUNNING, RECENT = 6, 4
PASTS = 32
"""Moments at which readers were here, with how tests stood then."""


@dataclass
class Memory:
    """The past days that one process has counted already."""

    totals: recent_days.Memory[Mapping[str, int]] = field(default_factory=recent_days.Memory)
    tests: standings.Memory = field(default_factory=standings.Memory)
    pasts: LRUCache[Standings] = field(default_factory=lambda: LRUCache(PASTS, recent_days.RECOUNT))


@dataclass(frozen=True)
class OverviewView:
    """The overview; where `needs` is empty, `calm` says so.

    Only `all_clear` means that no test is hollow, red, flaky or lost.
    """

    news: News
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
    queues: Sequence[QueueStatus]
    fleet: Fleet
    rates: Mapping[str, SeedRate]
    """The seeds stored within windows, by name; "now" is the last minute or two."""
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


def overview(
    session: Session,
    memory: Memory,
    who: Principal,
    now: datetime,
    timeout_s: float,
    query: Mapping[str, str] | None = None,
) -> OverviewView:
    """Return the overview for a reader; `memory` is reused between calls.

    A device or worker without a heartbeat for `timeout_s` is offline.
    """
    open_jobs = latest.open_jobs(session, RUNNING)
    ended_jobs = latest.latest_jobs(session, FINAL_JOB, RECENT)
    unseen, acknowledged = attention.open_flags(session, latest=EACH_KIND)
    builds = matrices.builds(session)
    tests = standings.by_day(session, memory.tests, days=numbers.SHOWN, now=now)
    known = Known(builds, tests[-1][1], partial(_past, session, memory))
    since = news.read(session, who, known, now, EACH_TOPIC)
    keys = {job.test_key for job in (*open_jobs, *ended_jobs)}
    keys |= {one.test_key for topic in since.topics for one in topic.items if one.test_key}
    keys |= {shown_flag.flag.test_key for kind in unseen for shown_flag in kind.latest}
    entries = entry_names.latest(session, keys)
    running, recent = (
        tuple(job_line(job, now, entries.get(job.test_key)) for job in jobs)
        for jobs in (open_jobs, ended_jobs)
    )
    flags = lines.flag_kinds(unseen, entries)
    night = lines.last_night(run_changes.of_last_day(session, now, lines.MAX_RUNS + 1))
    queues = queue_estimate.statuses(session, timeout_s=timeout_s, now=now)
    pulse = periods.pulse(session, now=now)
    devices = device_lines.lines(session, pulse, now, timeout_s)
    strip = fleet.fleet(devices, now, hosts.flagged(session, now))
    period = ranges.of(
        query or {},
        now,
        lambda value: urls.overview({ranges.PARAMETER: value}),
        default=DAYS,
        allowed=DAY_RANGES,
    )
    start = min(period.since or now, now - timedelta(days=numbers.SHOWN))
    changes = axis_changes.since(session, start)
    glance = matrix_page.glance(session, builds, tests[-1][1], TESTS, BUILDS)
    steps = _by_day(changes, [day for day, _ in tests])
    of_tests = numbers.of_tests(tests, glance.branch, steps)
    sick = history.sick_by_day(session, days=numbers.SHOWN, now=now)
    bad = [f"{line.value:,} {line.name}" for line in of_tests if line.value]
    needs = lines.needs(
        flags,
        night,
        strip,
        queues,
        webhooks.failing(session),
        next(line for line in of_tests if line.name == Kind.red),
        len(standings.of_kind(tests[-1][1], Kind.lost)),
    )
    count = partial(tallies.verdicts_by_day, session)
    shown = period.days or 30
    seeds = days.days(recent_days.read(memory.totals, count, Counter, days=shown, now=now))
    return OverviewView(
        news=lines.labeled(since, entries),
        numbers=(*of_tests, numbers.of_devices(strip, sick)),
        needs=needs,
        calm="" if needs else lines.calm(night, strip, acknowledged, bad),
        all_clear=not needs and not bad,
        glance=glance,
        flags=flags,
        acknowledged=acknowledged,
        night=night,
        queues=queues,
        fleet=strip,
        rates=pulse.rates,
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


def _past(session: Session, memory: Memory, moment: datetime, branch: str) -> Standings:
    read = partial(standings.as_of, session, moment, branch)
    return memory.pasts.get((moment, branch), read) or {}


def _by_day(changes: list[DatedAnnotation], shown: list[date]) -> Mapping[date, str]:
    """Return the changes of each day in words."""
    by_day: dict[date, list[str]] = {}
    for event in axis_events.of_days(changes, [day.isoformat() for day in shown]):
        by_day.setdefault(shown[round(event.place)], []).append(event.words)
    return {day: "; ".join(texts) for day, texts in by_day.items()}
