"""Runs: many tests that are submitted together, with one verdict and one link."""

from __future__ import annotations

from fastapi import Request, Response
from sqlalchemy.orm import Session

from gonogo_service.jobs.api.schemas import links as job_links
from gonogo_service.kit import audit
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    extend_page,
    make_router,
    missing,
    require,
)
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import RunState
from gonogo_service.people import bounds, idempotency_keys
from gonogo_service.people.context import Ctx, Reader, Submitter
from gonogo_service.suites import runs as stored
from gonogo_service.suites import submission as suites
from gonogo_service.suites.schemas import JobOfRun, RunAccepted, RunDetails, RunIn, RunOut, links

router = make_router("runs")


def accepted(run: stored.Run) -> RunAccepted:
    """Return the answer to the submission of a run."""
    return RunAccepted(run.id, run.state, run.jobs.total, links(run.id))


@router.post(
    "/runs",
    status_code=202,
    responses={202: {"model": RunAccepted}},
    response_class=Response,
    summary="Submit a suite",
)
def submit(
    context: Ctx, who: Submitter, request: Request, body: RunIn, key: idempotency_keys.Key = None
) -> Response:
    """Submit every test of the suite on every build.

    All jobs and the run are stored in one transaction.
    """
    bounds.demand_within(
        who,
        repository=None if body.commit is None else body.commit.repository,
        suite=body.suite if isinstance(body.suite, str) else body.suite.name,
    )
    commit = None if body.commit is None else body.commit.model_dump()

    def make(session: Session) -> RunAccepted:
        order = suites.Order(body.builds, body.labels, commit, actor=who.actor)
        if not isinstance(body.suite, str):
            return accepted(
                suites.submit(
                    session, body.suite.content(), order, context.settings, who.name, "suite"
                )
            )
        return accepted(
            suites.submit_stored(session, body.suite, order, context.settings, who.name)
        )

    return idempotency_keys.created(context, request, who, key, body, make)


@router.get("/runs", summary="List runs, newest first")
def list_runs(
    context: Ctx,
    _who: Reader,
    suite: Filter = None,
    state: RunState | None = None,
    schedule: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[RunOut]:
    """List runs that match all filters; `suite` is a suite's name."""
    with context.reading() as session:
        page = stored.list_(
            session, name=suite, state=state, schedule=schedule, limit=limit, cursor=cursor
        )
    return extend_page(page, _with_links)


@router.get("/runs/{run_id}", summary="Show a run")
def look(context: Ctx, _who: Reader, run_id: str) -> RunDetails:
    """Show its progress, its verdict when all jobs have ended, and every job."""
    with context.reading() as session:
        result = require(stored.get(session, run_id), "run", run_id)
    run, members = result
    tests = [from_object(JobOfRun, member, links=job_links(member.id)) for member in members]
    return from_object(RunDetails, _with_links(run), tests=tests)


@router.post("/runs/{run_id}:cancel", status_code=202, summary="Cancel a run")
def cancel(context: Ctx, who: Submitter, run_id: str) -> RunOut:
    """Cancel a run and its jobs. Finished jobs and runs do not change."""
    with context.session() as session:
        before = stored.get(session, run_id)
        run = stored.cancel(session, run_id)
        if run is None or before is None:
            raise missing("run", run_id)
        if run.version != before[0].version:
            audit.record(session, actor=who.actor, action="run.cancelled", subject=run_id)
    context.notifier.notify()
    return _with_links(run)


def _with_links(run: stored.Run) -> RunOut:
    return from_object(RunOut, run, links=links(run.id))
