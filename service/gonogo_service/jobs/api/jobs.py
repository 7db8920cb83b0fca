"""Jobs: submit, check, list, show, cancel, resubmit, delete."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gonogo.flakiness import sequential
from gonogo.flakiness.policy import POLICY
from gonogo_service.jobs import chunks, job_removal, noun, queue_estimate, queues, submission
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
from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit import audit, idempotency
from gonogo_service.kit.answers import missing, require
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import floor
from gonogo_service.kit.database.states import LISTED_KINDS, JobKind
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.people import bounds, idempotency_keys
from gonogo_service.people.context import Admin, Context, Ctx, Submitter
from gonogo_service.results import arithmetics, flips


def require_job(session: Session, job_id: str) -> JobRow:
    """Return the job. Raises Problem 404 when there is none."""
    return require(stored.get(session, job_id), "job", job_id)


def _shown(context: Context, session: Session, job: JobRow) -> dict[str, Any]:
    compares = job.reference is not None and job.seeds_removed_at is None
    timeout_s = context.settings.heartbeat_timeout_s
    return answer_of(
        SHOWN,
        job,
        waiting_reason=queues.waiting_reason(session, job, timeout_s=timeout_s, now=utcnow()),
        flips=list(flips.of_job(session, job.id)) if compares else None,
        arithmetic=list(arithmetics.of_job(session, job.id)) or None,
    )


def _unserved(context: Context, session: Session, job: JobRow) -> str | None:
    timeout_s = context.settings.heartbeat_timeout_s
    return queues.unserved(session, job, timeout_s=timeout_s, now=utcnow())


def _labeled(label: str) -> ColumnElement[bool]:
    """Return the condition of a label, "name" or "name=value"."""
    name, equals, value = label.partition("=")
    labeled = select(JobLabelRow.job_id).where(JobLabelRow.name == name)
    return JobRow.id.in_(labeled.where(JobLabelRow.value == value) if equals else labeled)


JOBS = Resource(
    noun.JOBS,
    JobRow,
    answer=SHOWN,
    line=LISTED,
    show=_shown,
    show_line=lambda _context, _session, job: answer_of(LISTED, job),
    where={
        "test": JobRow.test_key,
        "workload": JobRow.workload_key,
        "label": _labeled,
        "since": lambda moment: JobRow.id >= floor(moment),
    },
    only=[JobRow.kind.in_(LISTED_KINDS)],
    options=stored.WITHOUT_DETAILS,
)
router = JOBS.router


def _accepted(job: JobRow, waiting_reason: str | None = None) -> JobAccepted:
    return JobAccepted(job.id, job.state, job.chunks.total, links(job.id), waiting_reason)


@idempotency_keys.once_at(router, "/jobs", JobAccepted, "Submit a job")
def submit(
    context: Ctx, who: Submitter, request: Request, body: JobIn, key: idempotency.Key = None
) -> Response:
    """Check the job and store it with its chunks; workers start on it at once."""
    bounds.demand_within(who, repository=None if body.commit is None else body.commit.repository)
    submission.check(body, context.settings)  # before the transaction

    def make(session: Session) -> JobAccepted:
        job = submission.submit(session, body, context.settings, who.name)
        _audit_submission(session, who, job)
        return _accepted(job, _unserved(context, session, job))

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


@JOBS.on_cancel(_accepted)
def cancel(act: Act, job: JobRow) -> bool:
    """Cancel a job: unstarted chunks at once, running kernels within seconds.

    A finished job does not change.
    """
    before = job.state
    stored.cancel(act.session, job.id)
    return job.state is not before


@idempotency_keys.once_at(router, "/jobs/{job_id}:resubmit", JobAccepted, "Resubmit a job")
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
        return _accepted(job, _unserved(context, session, job))

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
        except LookupError:  # another request has deleted it meanwhile
            raise missing("job", job_id) from None
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
