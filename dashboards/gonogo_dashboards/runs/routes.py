"""The routes of the pages of runs and schedules, each with its JSON version."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.list_view import list_of
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.runs import run_page
from gonogo_service.schedules.api import SCHEDULE, SCHEDULES
from gonogo_service.suites.runs_api import RUN

NAVIGATION = (
    Entry("runs", "Runs", urls.RUNS, "Results", 7),
    Entry("schedules", "Schedules", urls.SCHEDULES, "Settings", 1),
)


def clock(moment: datetime, zone: str) -> str:
    """Return a time as the clock of the zone shows it: "Sun 2026-03-29 03:00 CEST"."""
    return f"{moment.astimezone(ZoneInfo(zone)):%a %Y-%m-%d %H:%M %Z}"


TEMPLATE_NAMES = {"clock": clock}


def add(site: Site) -> None:
    """Add the list of runs, the page of one, and the list of schedules."""

    def run(session: Session, request: Request, now: datetime) -> run_page.RunView | None:
        return run_page.run(session, request.path_params["run_id"], now)

    site.add_list(urls.RUNS, "runs/runs.html", RUN, run_page.listed, "How did the suites end?")
    site.add(
        urls.RUNS + "/{run_id}",
        "runs/run.html",
        run,
        "What is the result of this run, test by test?",
        noun="run",
    )
    site.add_list(
        urls.SCHEDULES,
        "runs/schedules.html",
        SCHEDULE,
        list_of(SCHEDULES, urls.schedules),
        "Which suites run when?",
    )
