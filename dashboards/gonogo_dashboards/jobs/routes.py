"""The routes of the jobs' pages, each with its JSON version. They only read."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.jobs import (
    diagnosis,
    job_form,
    job_list,
    job_page,
    map_charts,
    seed_details,
    seed_grid,
    selection_tests,
)
from gonogo_dashboards.kit.list_rows import JobLine
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site

NAVIGATION = (Entry("jobs", "Jobs", urls.JOBS, "Results", 6, ("new",)),)
TEMPLATE_NAMES = {
    "diagnosis": diagnosis,
    "map_charts": map_charts,
    "seed_grid": seed_grid,
    "selection_tests": selection_tests,
}


def add(site: Site) -> None:
    """Add the list of jobs, the page of one, and the form that submits one."""

    def form(session: Session, request: Request, _: datetime) -> job_form.FormView:
        view = job_form.new_job(session, request.query_params)
        return replace(view, quotas=tuple(site.context.quotas(session, request)))

    def job(session: Session, request: Request, now: datetime) -> job_page.JobView | None:
        query = request.query_params
        return job_page.job(
            session,
            request.path_params["job_id"],
            query.get("output"),
            now,
            seed_details.requested(query),
            selection_tests.Part.requested(query),
            site.context.settings.heartbeat_timeout_s,
        )

    site.add_list(
        urls.JOBS,
        "jobs/jobs.html",
        JobLine,
        job_list.jobs,
        "Which jobs ran, and what run now?",
    )
    site.add(urls.NEW_JOB, "jobs/new_job.html", form, "Submit a job, by a form")
    site.add(
        urls.JOBS + "/{job_id}", "jobs/job.html", job, "What is the result of this job?", noun="job"
    )
