"""The routes of the pages of runs and schedules, each with its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import runs, urls
from gonogo_dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the list of runs, the page of one, and the list of schedules."""

    def run(session: Session, request: Request, now: datetime) -> runs.RunView | None:
        return runs.run(session, request.path_params["run_id"], now)

    def schedules(session: Session, request: Request, now: datetime) -> runs.SchedulesView:
        return runs.schedules(session, request.query_params.get("cursor"), now)

    site.add_list(urls.RUNS, "runs.html", runs.runs)
    site.add(urls.RUNS + "/{run_id}", "run.html", run, noun="run")
    site.add(urls.SCHEDULES, "schedules.html", schedules)
