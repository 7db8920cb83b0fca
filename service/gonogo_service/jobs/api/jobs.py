"""Jobs: submit, check, list, show, cancel, resubmit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Query, Request, Response
from sqlalchemy.orm import Session

from gonogo.flakiness import sequential
from gonogo.flakiness.policy import POLICY
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs import chunks, job_removal, queue_estimate, queues, submission
from gonogo_service.jobs import store as stored
from gonogo_service.jobs.api.schemas import (
    LISTED,
    SHOWN,
    Estimate,
    Expected,
    ExpectedOf,
    JobAccepted,
    answer_of,
    links,
)
from gonogo_service.jobs.bodies import JobIn
from gonogo_service.jobs.job_removal import JobRemoved, NotRemovable
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit import audit, idempotency
from gonogo_service.kit.answers import Cursor, Filter, Limit, extend_page, make_router, require
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.states import JobKind, JobState
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.people import bounds, idempotency_keys
from gonogo_service.people.context import Admin, Ctx, Reader, Submitter
from gonogo_service.results import arithmetics, flips

router = make_router("jobs")


def require_job(session: Session, job_id: str) -> JobRow:
    """Return the job. Raises Problem 404 when there is none."""
    return require(stored.get(session, job_id), "job", job_id)


@router.post(
    "/jobs",
    status_code=202,
    responses={202: {"model": JobAccepted}},
    response_class=Response,
    summary="Submit a job",
)
def submit(
    context: Ctx, who: Submitter, request: Request, body: JobIn, key: idempotency.Key = None
) -> Response:
    """Check the job and store it with its chunks; workers start on it at once."""
    bounds.demand_within(who, repository=None if body.commit is None else body.commit.repository)
    submission.check(body, context.settings)  # before the transaction

    def make(session: Session) -> JobAccepted:
        job = submission.submit(session, body, context.settings, who.name)
        _audit_submission(session, who, job)
        return _accepted(job, submission.why_it_waits(session, job.queue, context.settings))

    return idempotency_keys.created(context, request, who, key, body, make)


@router.post("/jobs:validate", summary="Check a job without submitting it")
def validate(context: Ctx, who: Submitter, body: JobIn) -> Estimate:
    """Run the checks of a submission without storing anything.

    Returns the cost and the expected wait.
    """
    submission.check(body, context.settings)
    with context.reading() as session:
        new = submission.resolve(session, body, context.settings, who.name)
        seed_s = chunks.estimate_seed_s(session, new.workload_key, new.executor, new.elements)
        queue = queue_estimate.read_work(
            session, new.queue, timeout_s=context.settings.heartbeat_timeout_s
        )
    work, cut = chunks.cut(new, seed_s)
    results = len(work)
    return Estimate(
        test_key=new.test_key,
        workload_key=new.workload_key,
        queue=new.queue,
        results=results,
        chunks=cut.chunks,
        seed_s=seed_s,
        device_s=seed_s * results,
        expected=None
        if new.stop_on_finding is None
        else _expected(len(new.seeds), new.stop_on_finding, seed_s * new.repeats),
        queue_chunks=queue.chunks,
        workers=queue.workers,
        wait_s=queue.wait_s,
    )


@router.get("/jobs", summary="List jobs, newest first", response_model=Page[LISTED])
def list_jobs(
    context: Ctx,
    _who: Reader,
    state: JobState | None = None,
    verdict: Verdict | None = None,
    test: Filter = None,
    workload: Filter = None,
    build: Filter = None,
    kernel: Filter = None,
    owner: Filter = None,
    kind: Literal["seeds", "import"] | None = None,
    label: Annotated[
        str | None, Query(max_length=300, description="`name` or `name=value`")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Any:
    """List jobs that match all filters, without their diagnoses."""
    where: dict[str, Any] = {"state": state, "verdict": verdict, "test": test, "workload": workload}
    where |= {"build": build, "kernel": kernel, "owner": owner, "kind": kind, "label": label}
    with context.reading() as session:
        page = stored.list_(session, limit=limit, cursor=cursor, **where)
    return extend_page(page, lambda job: answer_of(LISTED, job))


@router.get("/jobs/{job_id}", summary="Show a job", response_model=SHOWN)
def look(context: Ctx, _who: Reader, job_id: str) -> Any:
    """Show its state, counts by verdict, progress, and the most telling seed's diagnosis.

    It shows the arithmetic of each output with its detection limits, and for a job with a
    reference build the flips between the two builds.
    """
    timeout_s = context.settings.heartbeat_timeout_s
    with context.reading() as session:
        job = require_job(session, job_id)
        compares = job.reference is not None and job.seeds_removed_at is None
        return answer_of(
            SHOWN,
            job,
            waiting_reason=queues.waiting_reason(session, job, timeout_s=timeout_s, now=utcnow()),
            flips=list(flips.of_job(session, job_id) or ()) if compares else None,
            arithmetic=list(arithmetics.of_job(session, job_id)) or None,
        )


@router.post(
    "/jobs/{job_id}:cancel",
    status_code=202,
    summary="Cancel a job",
)
def cancel(context: Ctx, who: Submitter, job_id: str, response: Response) -> JobAccepted:
    """Cancel a job: unstarted chunks at once, running kernels within seconds.

    A finished job does not change.
    """
    with context.session() as session:
        before = require_job(session, job_id).state
        job = require(stored.cancel(session, job_id), "job", job_id)
        if job.state is not before:
            audit.record(session, actor=who.actor, action="job.cancelled", subject=job_id)
    accepted = _accepted(job)
    response.headers["Location"] = accepted.links.self
    return accepted


@router.post(
    "/jobs/{job_id}:resubmit",
    status_code=202,
    responses={202: {"model": JobAccepted}},
    response_class=Response,
    summary="Resubmit a job",
)
def resubmit(
    context: Ctx, who: Submitter, request: Request, job_id: str, key: idempotency.Key = None
) -> Response:
    """Submit a new job with the same request, owned by the caller."""

    def make(session: Session) -> JobAccepted:
        old, chunk_s = require_job(session, job_id), context.settings.chunk_seconds
        if old.kind is not JobKind.seeds:
            reason = "was imported, and can't run again here"
            raise BadField("job", job_id, reason, limit="a job that ran here")
        new = stored.again(session, old, owner=who.name, chunk_seconds=chunk_s)
        job = stored.create(session, new)
        _audit_submission(session, who, job, resubmit_of=job_id)
        return _accepted(job, submission.why_it_waits(session, job.queue, context.settings))

    return idempotency_keys.created(context, request, who, key, None, make)


@router.delete("/jobs/{job_id}", summary="Delete a job that has ended")
def delete(context: Ctx, who: Admin, job_id: str) -> JobRemoved:
    """Delete a job with its results, artifacts and logs, for ever.

    Sums are counted anew without it. A flag whose only evidence it was is resolved. A job that
    hasn't ended, and one that an open run or a bisection needs, is refused.
    """
    with context.session() as session:
        job = require_job(session, job_id)
        try:
            removed = job_removal.remove(session, job_id, actor=who.actor, now=utcnow())
        except NotRemovable as problem:
            raise Problem(409, str(problem), slug="not-removable") from problem
        audit.record(
            session,
            actor=who.actor,
            action="job.deleted",
            subject=job_id,
            detail={
                "test": job.test_key,
                "build": job.build,
                "verdict": job.verdict,
                "seeds": removed.seeds,
                "flags": list(removed.flags_resolved),
            },
        )
    return removed


def _audit_submission(session: Session, who: Principal, job: JobRow, **detail: str) -> None:
    audit.record(
        session,
        actor=who.actor,
        action="job.submitted",
        subject=job.id,
        detail={"test": job.test_key, "build": job.build, **detail},
    )


def _accepted(job: JobRow, waiting_reason: str | None = None) -> JobAccepted:
    return JobAccepted(job.id, job.state, job.chunks.total, links(job.id), waiting_reason)


def _expected(most: int, stop_on_finding: bool, seed_s: float) -> ExpectedOf:
    """Return the mean cost of sequential seeds.

    `seed_s` is the device time of a seed with its repeats.
    """

    def cost(seeds: float) -> Expected:
        return Expected(seeds, seed_s * seeds)

    rates = {"stable": POLICY.stable_rate, "flaky": POLICY.flaky_rate}
    means = {
        name: cost(sequential.plan(rate, most=most).mean_seeds) for name, rate in rates.items()
    }
    return ExpectedOf(**means, wrong=cost(1.0) if stop_on_finding else None)
