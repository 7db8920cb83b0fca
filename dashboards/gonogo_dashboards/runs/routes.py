"""The routes of the pages of runs and schedules, each with its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.list_view import ListView
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.runs import run_page, schedule_list

NAVIGATION = (
    Entry("runs", "Runs", urls.RUNS, "Results", 7),
    Entry("schedules", "Schedules", urls.SCHEDULES, "Settings", 1),
)


def add(site: Site) -> None:
    """Add the list of runs, the page of one, and the list of schedules."""

    def run(session: Session, request: Request, now: datetime) -> run_page.RunView | None:
        return run_page.run(session, request.path_params["run_id"], now)

    def schedules(session: Session, request: Request, now: datetime) -> ListView:
        return schedule_list.schedules(session, request.query_params.get("cursor"), now)

    site.add_list(
        urls.RUNS, "runs/runs.html", run_page.RunLine, run_page.runs, "How did the suites end?"
    )
    site.add(
        urls.RUNS + "/{run_id}",
        "runs/run.html",
        run,
        "What is the result of this run, test by test?",
        noun="run",
    )
    site.add(
        urls.SCHEDULES,
        "runs/schedules.html",
        schedules,
        "Which suites run when?",
        line=schedule_list.ScheduleLine,
    )
