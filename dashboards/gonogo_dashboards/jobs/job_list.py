"""The list of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import commands, ranges
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_service.builds import entry_names
from gonogo_service.jobs import store
from gonogo_service.jobs.store import JobFilter
from gonogo_service.kit.database.encoding import timestamp

FILTERS = ("state", "verdict", "build", "test", "label", "owner")


@dataclass(frozen=True)
class JobsView:
    """A page of the list of jobs; `next_url` leads to the next one, or is None."""

    items: tuple[JobLine, ...]
    filters: Mapping[str, str]
    range: ranges.Range
    next: str | None
    next_url: str | None
    start: str
    at: str | None


def jobs(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> JobsView:
    """Return a page of jobs that match the filters (FILTERS; empty values are ignored).

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    period = ranges.of(filters, now, lambda value: urls.jobs({**given, ranges.PARAMETER: value}))
    conditions = JobFilter(**given, since=period.since)
    page = store.list_(session, conditions, limit=limit, cursor=cursor or None)
    if period.value != "all":
        given[ranges.PARAMETER] = period.value
    entries = entry_names.latest(session, {job.test_key for job in page.items})
    return JobsView(
        items=tuple(job_line(job, now, entries.get(job.test_key)) for job in page.items),
        filters=given,
        next=page.next,
        next_url=urls.jobs(given, cursor=page.next) if page.next else None,
        range=period,
        start=commands.START,
        at=timestamp(now),
    )
