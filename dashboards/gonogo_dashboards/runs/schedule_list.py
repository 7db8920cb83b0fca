"""The list of schedules: their next times, and their last outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.schedules import store
from gonogo_service.schedules.api import SCHEDULES
from gonogo_service.schedules.model import DueRow, ScheduleRow

MAX_SCHEDULES = 100
UPCOMING = 3
LAST = 5


@dataclass(frozen=True)
class DueLine:
    """A past due time, and its outcome."""

    due_at: str
    due_words: str
    outcome: str
    outcome_words: str
    run: str | None
    run_url: str | None
    reason: str | None


@dataclass(frozen=True)
class ScheduleLine:
    """A schedule: its next times, and its last outcomes.

    `next` are its next times as the clock of its zone shows them.
    """

    id: str
    name: str
    suite: str
    cron: str
    timezone: str
    overlap: str
    builds: tuple[str, ...]
    owner: str
    paused: bool
    next_at: str | None
    next: tuple[str, ...]
    last: tuple[DueLine, ...]
    runs_url: str
    run_now: str


def schedules(session: Session, cursor: str | None, now: datetime) -> ListView:
    """Return the active schedules. Raises gonogo_service.kit.database.paging.BadCursor."""
    page = SCHEDULES.page(session, limit=MAX_SCHEDULES, cursor=cursor or None)
    return list_view(page, lambda schedule: _schedule(session, schedule), urls.schedules, now)


def _schedule(session: Session, schedule: ScheduleRow) -> ScheduleLine:
    zone = ZoneInfo(schedule.timezone)
    return from_object(
        ScheduleLine,
        schedule,
        builds=tuple(schedule.builds),
        next_at=timestamp(schedule.next_at),
        next=tuple(_clock(moment, zone) for moment in schedule.upcoming(UPCOMING)),
        last=tuple(_due(due, zone) for due in store.dues(session, schedule.id, LAST)),
        runs_url=urls.runs({"schedule": schedule.id}),
        run_now=urls.run_now(schedule.id),
    )


def _due(due: DueRow, zone: ZoneInfo) -> DueLine:
    return from_object(
        DueLine,
        due,
        due_at=timestamp(due.due_at),
        due_words=_clock(due.due_at, zone),
        outcome_words=due.outcome.label,
        run_url=urls.run(due.run) if due.run else None,
    )


def _clock(moment: datetime, zone: ZoneInfo) -> str:
    """Return a time as the clock of the zone shows it: "Sun 2026-03-29 03:00 CEST"."""
    return f"{moment.astimezone(zone):%a %Y-%m-%d %H:%M %Z}"
