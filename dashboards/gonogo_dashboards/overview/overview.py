"""The overview's read model: what needs someone, what the fleet does, how fast, what came out. From
indexes and roll-ups only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.devices import device_page, fleet
from gonogo_dashboards.devices.fleet import Fleet
from gonogo_dashboards.kit import commands, words
from gonogo_dashboards.kit.list_rows import FlagLine, JobLine, flag_line, job_line
from gonogo_dashboards.overview import days
from gonogo_dashboards.overview.days import Days
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import FlagState
from gonogo_storage.devices import periods
from gonogo_storage.flags import attention as needs
from gonogo_storage.flags.attention import Night
from gonogo_storage.jobs import latest as reads
from gonogo_storage.jobs import queue_estimate
from gonogo_storage.rollups import day_totals

EACH_KIND = 3
"""Flags of a kind that are shown; the others are a link away."""
RED_SHOWN = 8
DAYS = 30
RUNNING, RECENT = 12, 8
HOLLOW = ("passes_by_tolerance", "fix_masked")


@dataclass(frozen=True)
class Need:
    """Something that needs someone, in a few words; `url` leads to the part of the page, or to the
    list.
    """

    what: str
    count: int
    words: str
    verdict: str
    url: str


@dataclass(frozen=True)
class FlagKindLine:
    """The flags of one kind that nobody has looked at; `items` are the latest of them."""

    kind: str
    kind_words: str
    verdict: str
    count: int
    url: str
    items: tuple[FlagLine, ...]


@dataclass(frozen=True)
class RedLine:
    """A red job of last night's runs; `new`: the test wasn't red the time before, and `before` is
    what it was.
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
    """The runs of the last 24 hours: how many, what is newly red in them, and how much was red
    before.
    """

    runs: int
    ended: int
    runs_url: str
    new: int
    old: int
    whole: bool
    """False: there is more than was counted."""
    items: tuple[RedLine, ...]
    words: str


@dataclass(frozen=True)
class QueueLine:
    """A queue; `age_s` is that of the oldest job of which something waits, None: nothing waits."""

    queue: str
    waiting: int
    running: int
    workers: int
    stuck: bool
    oldest_at: str | None
    age_s: float | None
    age: str
    url: str


@dataclass(frozen=True)
class RateLine:
    """Seeds stored within a window ("now": the last minute or two); `amount` of them each `unit`,
    and the page of who stored them.
    """

    name: str
    seeds: int
    window_s: float
    per_s: float
    amount: float
    unit: str
    url: str
    words: str


@dataclass(frozen=True)
class OverviewView:
    """The overview. `needs` empty: nothing needs anyone, and `calm` says so."""

    needs: tuple[Need, ...]
    calm: str
    flags: tuple[FlagKindLine, ...]
    taken_on: int
    """Flags that someone has acknowledged."""
    night: NightView
    queues: tuple[QueueLine, ...]
    fleet: Fleet
    rates: tuple[RateLine, ...]
    days: Days
    running: tuple[JobLine, ...]
    recent: tuple[JobLine, ...]
    empty: bool
    start: str
    at: str | None


def overview(
    session: Session, memory: day_totals.Memory, now: datetime, timeout_s: float
) -> OverviewView:
    """The overview at a moment; a device or worker not heard of for `timeout_s` is offline.
    `memory` is kept from look to look.
    """
    running = tuple(
        job_line(job, now) for job in reads.latest_jobs(session, reads.OPEN_STATES, RUNNING)
    )
    recent = tuple(
        job_line(job, now) for job in reads.latest_jobs(session, reads.FINAL_STATES, RECENT)
    )
    unseen, taken_on = needs.flags(session, each=EACH_KIND)
    flags = tuple(_kind(found, now) for found in unseen)
    night = _night(needs.night(session, now=now))
    queues = tuple(
        _queue(found, now)
        for found in queue_estimate.standing(session, timeout_s=timeout_s, now=now)
    )
    pulse = periods.pulse(session, now=now)
    strip = fleet.fleet(device_page.lines(session, pulse, now, timeout_s), now)
    wanted = _needs(flags, night, strip, queues)
    return OverviewView(
        needs=wanted,
        calm="" if wanted else _calm(night, strip, taken_on),
        flags=flags,
        taken_on=taken_on,
        night=night,
        queues=queues,
        fleet=strip,
        rates=tuple(_rate(name, found) for name, found in pulse.rates.items()),
        days=days.days(day_totals.read(session, memory, days=DAYS, now=now)),
        running=running,
        recent=recent,
        empty=not (running or recent or flags or taken_on),
        start=commands.START,
        at=timestamp(now),
    )


def _kind(found: needs.KindOfFlag, now: datetime) -> FlagKindLine:
    return FlagKindLine(
        kind=found.kind,
        kind_words=words.FLAGS.get(found.kind, found.kind.replace("_", " ")),
        verdict=words.FLAG_VERDICTS.get(found.kind, "suspect"),
        count=found.count,
        url=urls.flags({"kind": found.kind}),
        items=tuple(flag_line(flag, now) for flag in found.latest),
    )


def _night(found: Night) -> NightView:
    new = sum(job.new for job in found.red)
    old = len(found.red) - new
    lines = tuple(
        RedLine(
            name=job.name,
            job_url=urls.job(job.job),
            suite=job.suite,
            run_url=urls.run(job.run),
            build=job.build,
            verdict=job.verdict,
            new=job.new,
            before=job.before,
            words=job.words or "",
        )
        for job in found.red
        if job.new
    )
    more = "" if found.whole else " at least"
    said = f"{words.count(found.runs, 'run')} in the last 24 hours, {found.ended} over:{more} {words.count(new, 'new failure')}"
    said += f", {old} red the time before too" if old else ""
    said = said if found.runs else "No suite ran in the last 24 hours"
    return NightView(
        found.runs, found.ended, urls.runs(), new, old, found.whole, lines[:RED_SHOWN], said + "."
    )


def _queue(found: queue_estimate.Standing, now: datetime) -> QueueLine:
    age_s = None if found.oldest_at is None else max(0.0, (now - found.oldest_at).total_seconds())
    return QueueLine(
        **{
            name: getattr(found, name)
            for name in ("queue", "waiting", "running", "workers", "stuck")
        },
        oldest_at=timestamp(found.oldest_at),
        age_s=age_s,
        age="" if age_s is None else words.duration(age_s),
        url=urls.jobs({"state": "queued"}),
    )


def _rate(name: str, found: periods.Rate) -> RateLine:
    said = {"now": "now", "hour": "last hour", "day": "last day"}[name]
    amount, unit = words.pace(found.per_s)
    url = (
        urls.jobs({"state": "running"}) if name == "now" else urls.devices()
    )  # each device there with its load of the hour and of the day
    told = f"{said}: {words.number(amount)} seeds/{unit} ({words.count(found.seeds, 'seed')})"
    return RateLine(name, found.seeds, found.window_s, found.per_s, amount, unit, url, told)


def _needs(
    flags: Sequence[FlagKindLine], night: NightView, strip: Fleet, queues: Sequence[QueueLine]
) -> tuple[Need, ...]:
    """In the order of the page: hollow tests, new failures, devices, queues, other findings."""
    hollow = sum(each.count for each in flags if each.kind in HOLLOW)
    other = sum(each.count for each in flags if each.kind not in HOLLOW)
    stuck = sum(each.stuck for each in queues)
    found = (
        Need(
            "hollow", hollow, words.count(hollow, "hollow finding"), "pass_by_tolerance", "#flagged"
        ),
        Need("failures", night.new, words.count(night.new, "new failure"), "fail", "#night"),
        Need(
            "devices",
            len(strip.trouble),
            words.count(len(strip.trouble), "device") + " in trouble",
            "error",
            "#trouble",
        ),
        Need("queues", stuck, words.count(stuck, "stuck queue"), "hang", "#stuck"),
        Need("flags", other, words.count(other, "other new flag"), "suspect", "#flagged"),
    )
    return tuple(need for need in found if need.count)


def _calm(night: NightView, strip: Fleet, taken_on: int) -> str:
    """Why nothing needs anyone."""
    said = [
        "no flag that nobody has looked at",
        "no new failure in the last 24 hours",
        "no queue without a worker",
    ]
    said += ["every device is well"] if strip.cells else []
    owned = f"{words.count(taken_on, 'flag')} {'is' if taken_on == 1 else 'are'} {words.FLAG_STATES[FlagState.acknowledged]}"
    more = f" {owned}." if taken_on else ""
    more += f" {words.count(night.old, 'test')} failed again as before." if night.old else ""
    return f"Nothing needs you: {', '.join(said[:-1])} and {said[-1]}.{more}"
