"""The list of jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import commands, ranges
from gonogo_dashboards.kit.list_rows import JobLine, job_line
from gonogo_dashboards.kit.list_view import ListView, filters_of, list_view
from gonogo_service.jobs import job_attempts
from gonogo_service.jobs.api.jobs import JOBS
from gonogo_service.jobs.model import JobRow
from gonogo_service.results import tallies
from gonogo_service.tests import entry_names, test_specs

FILTERS = ("state", "verdict", "kernel", "build", "test", "label", "owner")


@dataclass(frozen=True)
class JobsView(ListView):
    """A page of the list of jobs."""

    range: ranges.Range
    kernels: tuple[str, ...]
    """The kernels of all tests: the choices of a filter."""
    start: str


def jobs(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> JobsView:
    """Return a page of jobs that match the filters (FILTERS; empty values are ignored).

    Raises gonogo_service.kit.database.paging.BadCursor.
    """
    given = filters_of(filters, FILTERS)
    period = ranges.of(filters, now, lambda value: urls.jobs({**given, ranges.PARAMETER: value}))
    page = JOBS.page(session, limit=limit, cursor=cursor or None, since=period.since, **given)
    if period.value != "all":
        given[ranges.PARAMETER] = period.value
    entries = entry_names.latest(session, {job.test_key for job in page.items})
    ids = [job.id for job in page.items]
    devices = tallies.devices(session, ids)
    devices |= job_attempts.devices(session, [one for one in ids if one not in devices])

    def line(job: JobRow) -> JobLine:
        return job_line(job, now, entries.get(job.test_key), devices.get(job.id, ()))

    return JobsView(
        **vars(list_view(page, line, urls.jobs, now, given)),
        range=period,
        kernels=tuple(test_specs.kernels(session)),
        start=commands.START,
    )
