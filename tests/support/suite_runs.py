"""A small suite, and what ends the jobs of its runs where no worker does."""

from __future__ import annotations

from typing import Any

from sqlalchemy.orm import Session

import stored_jobs
from gonogo_dashboards.kit import commands
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.suites import runs

SUITE: dict[str, Any] = {
    "name": "nightly",
    "builds": ["correct"],
    "defaults": {
        "test": {"kernel": "layernorm_bw", "tolerance": {"rtol": 1e-3, "atol": 0.5}},
        "seeds": {"count": 2},
    },
    "entries": [
        {"name": "small", "test": {"shape": [1, 1, 32, 64]}},
        {
            "name": "grid",
            "matrix": {"shape": [[32, 64], [33, 64]]},
            "seeds": {"start": 5, "count": 1},
        },
    ],
}


def finish(session: Session, job_id: str, *, wrong: bool = False, within: bool = True) -> None:
    """A job ends, with all its seeds right, or wrong and green; or red, if not `within`."""
    job = jobs.get(session, job_id)
    assert job is not None
    first, _ = commands.first_seeds(job)
    seeds = range(first, first + job.total)
    rows = [stored_jobs.row(seed, wrong=wrong, within=within) for seed in seeds]
    stored_jobs.report(session, job_id, rows)
    stored_jobs.finish(session, job_id)


def conclude(session: Session) -> None:
    """Finish runs whose jobs have all ended, as the scheduler does."""
    for run_id in runs.all_ended(session):
        runs.finish(session, run_id, now=utcnow())


def end_all(session: Session, *wrong: str) -> None:
    """Every run ends; the jobs of the builds `wrong` are hollow."""
    for run in runs.newest(session, 100):
        ended = runs.get(session, run.id)
        for member in ended[1] if ended is not None and not run.state.final else ():
            job = jobs.get(session, member.id)
            if job is not None and not job.state.final:
                finish(session, job.id, wrong=job.build in wrong)
    conclude(session)
