"""Runs: many tests that are submitted together, with one verdict and one link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.api.schemas import JobLinks
from gonogo_service.jobs.api.schemas import links as job_links
from gonogo_service.kit import idempotency, rows
from gonogo_service.kit.database.states import RunState
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.people import bounds, idempotency_keys
from gonogo_service.people.context import Ctx, Submitter
from gonogo_service.suites import noun, run_changes, runs, submission
from gonogo_service.suites.bodies import RunIn
from gonogo_service.suites.model import JobsOfRun, RunLinks, RunRow, SeedsOfRun, SuiteOfRun
from gonogo_service.suites.run_changes import JobChange
from gonogo_service.suites.runs import RunJob


@dataclass(frozen=True)
class RunAccepted:
    """The answer to a submission."""

    id: str
    state: RunState
    jobs: int
    links: RunLinks


@dataclass(frozen=True)
class JobOfRun(RunJob):
    """The summary of a run's job, and how it compares with the run before."""

    change: JobChange | None
    """null: neither red nor hollow, in this run or before"""
    verdict_before: Verdict | None
    """The verdict of its test in the run before; null unless it changed or is bad"""
    links: JobLinks


COUNTS = ("name", "suite_version", "job_count", "total", "done", "counts", "job_counts")
PARTS: dict[str, Any] = {
    "suite": SuiteOfRun,
    "jobs": JobsOfRun,
    "seeds": SeedsOfRun,
    "links": RunLinks,
}
RUN = rows.extended_answer(RunRow, "RunOut", without=COUNTS, **PARTS)
DETAILS = rows.extended_answer(
    RunRow,
    "RunDetails",
    without=COUNTS,
    **PARTS,
    before=(str | None, "The last finished run of its suite before it, on its branch"),
    tests=(list[JobOfRun], "Its jobs, in the order of the suite"),
)


def details(_context: object, session: Session, run: RunRow) -> dict[str, Any]:
    """Return a run with its jobs, as they are now."""
    runs.current(session, run)
    ((_, changes),) = run_changes.read(session, select(RunRow).where(RunRow.id == run.id))
    changed = {one.job: (one.change, one.before) for one in changes.jobs}
    tests = [
        JobOfRun(**vars(job), change=change, verdict_before=before, links=job_links(job.id))
        for job in runs.members(session, run.id)
        for change, before in (changed.get(job.id, (None, None)),)
    ]
    return rows.values(DETAILS, run, before=changes.before, tests=tests)


RUNS = Resource(
    noun.RUNS,
    RunRow,
    answer=DETAILS,
    line=RUN,
    show=details,
    where={"suite": RunRow.name},
    complete=lambda session, page: runs.current(session, *page),
)
router = RUNS.router


def accepted(run: RunRow) -> RunAccepted:
    """Return the answer to the submission of a run."""
    return RunAccepted(run.id, run.state, run.jobs.total, run.links)


@idempotency_keys.once_at(router, "/runs", RunAccepted, "Submit a suite")
def submit(
    context: Ctx, who: Submitter, request: Request, body: RunIn, key: idempotency.Key = None
) -> Response:
    """Submit every test of the suite on every build.

    All jobs and the run are stored in one transaction.
    """
    stored = body.suite if isinstance(body.suite, str) else None
    name = body.suite if isinstance(body.suite, str) else body.suite.name
    repository = None if body.commit is None else body.commit.repository
    bounds.demand_within(who, repository=repository, suite=name)
    commit = None if body.commit is None else body.commit.model_dump()
    order = submission.Order(body.builds, body.labels, commit, actor=who.actor)

    def make(session: Session) -> RunAccepted:
        settings, owner = context.settings, who.name
        if stored is not None:
            return accepted(submission.submit_stored(session, stored, order, settings, owner))
        assert not isinstance(body.suite, str)
        content = body.suite.content()
        return accepted(submission.submit(session, content, order, settings, owner, "suite"))

    return idempotency_keys.created(context, request, who, key, body, make)


@idempotency_keys.once_at(router, "/runs/{run_id}:resubmit", RunAccepted, "Run a suite again")
def resubmit(
    context: Ctx, who: Submitter, request: Request, run_id: str, key: idempotency.Key = None
) -> Response:
    """Submit a new run of the same tests on the same builds, owned by the caller."""

    def make(session: Session) -> RunAccepted:
        old, seconds = RUNS.require(session, who, run_id), context.settings.chunk_seconds
        if not old.job_count:
            reason = "has no job that could run again: all were deleted"
            raise BadField("run", run_id, reason, limit="a run with jobs")
        run = runs.resubmit(session, old, owner=who.name, chunk_seconds=seconds)
        detail = {"suite": run.name, "builds": run.builds, "jobs": run.job_count}
        again = {**detail, "resubmit_of": run_id}
        Act(context, session, who).audit(action="run.submitted", subject=run.id, detail=again)
        return accepted(run)

    return idempotency_keys.created(context, request, who, key, None, make)


@router.post("/runs/{run_id}:cancel", status_code=202, response_model=RUN, summary="Cancel a run")
def cancel(context: Ctx, who: Submitter, run_id: str) -> RunRow:
    """Cancel a run and its jobs. Finished jobs and runs do not change."""
    with context.session() as session:
        version = RUNS.require(session, who, run_id).version
        run = runs.cancel(session, run_id)
        assert run is not None
        if run.version != version:
            Act(context, session, who).audit(action="run.cancelled", subject=run_id)
    return run
