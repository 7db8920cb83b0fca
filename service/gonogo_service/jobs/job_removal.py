"""Delete a job with everything below it, so that sums, flags and runs are right without it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, or_, select
from sqlalchemy.orm import Session

from gonogo_service.bisections.model import ProbeRow
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.flags.noun import FlagState
from gonogo_service.jobs import closing
from gonogo_service.jobs.model import ArtifactRow, JobRow
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.states import JobState, RunState
from gonogo_service.operate.retention import ids_in
from gonogo_service.results import sums
from gonogo_service.suites import runs
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests.assessments import request_assessment
from gonogo_service.tests.model import AssessmentRow
from gonogo_service.tests.variants import Variant, graded_job


class NotRemovable(ValueError):
    """A job that can't be deleted now; the text says why, and what to do."""


@dataclass(frozen=True)
class JobRemoved:
    """A deleted job, and the objects that its deletion changed."""

    id: str
    seeds: int
    """Its (seed, repeat) pairs"""
    artifacts: int
    run: str | None
    """Its run, which has been counted anew"""
    flags_resolved: tuple[str, ...]
    """The flags whose only evidence it was"""


def remove(session: Session, job_id: str, *, actor: str, now: datetime) -> JobRemoved:
    """Delete a job. Raises NotRemovable, and LookupError where there is no such job."""
    job = closing.lock(session, job_id)
    if job is None:
        raise LookupError(job_id)
    if not JobState(job.state).final:
        raise NotRemovable(
            f"Job {job_id} is {job.state}: only a job that has ended can be deleted. "
            f"Cancel it first (gonogo jobs cancel {job_id}), or wait for its end."
        )
    probe = session.scalar(select(ProbeRow.bisection_id).where(ProbeRow.job_id == job_id))
    if probe is not None:
        raise NotRemovable(
            f"Job {job_id} is a probe of bisection {probe}, whose answer rests on it: it can't be "
            "deleted. Retention removes its results in time."
        )
    run = _leave_run(session, job_id)
    seeds, variant = job.done, Variant.of(job)
    artifacts = session.scalar(
        select(func.count()).select_from(ArtifactRow).where(ArtifactRow.job_id == job_id)
    )
    # the locks in the order of ending jobs and of assessments: the sums, the assessment, the flags
    sums.recount(session, job)
    session.scalars(select(AssessmentRow.build).where(*variant.at(AssessmentRow)).with_for_update())
    resolved = _forget_evidence(session, job, variant, actor=actor, now=now)
    for table in reversed(Base.metadata.sorted_tables):  # those that refer to others come first
        if "job_id" in table.c:
            session.execute(delete(table).where(table.c.job_id == job_id))
    session.delete(job)
    session.flush()
    _reassess(session, variant, job_id, now=now)
    return JobRemoved(job_id, seeds, int(artifacts or 0), run, tuple(resolved))


def _leave_run(session: Session, job_id: str) -> str | None:
    """Take the job out of its run, whose lock comes after the job's, and count the run anew."""
    member = session.scalar(select(RunJobRow).where(RunJobRow.job_id == job_id))
    if member is None:
        return None
    run = session.get_one(RunRow, member.run_id, with_for_update=True, populate_existing=True)
    if not RunState(run.state).final:
        raise NotRemovable(
            f"Job {job_id} belongs to run {run.id}, which is {run.state}. Cancel the run first "
            f"(gonogo runs cancel {run.id}), or wait for its end."
        )
    session.delete(member)
    session.flush()
    runs.recount(session, run)
    return str(run.id)


def _forget_evidence(
    session: Session, job: JobRow, variant: Variant, *, actor: str, now: datetime
) -> list[str]:
    """Take a job out of the evidence of flags; return those that had no other, now resolved."""
    table = FlagRow
    resolved = []
    query = select(table).where(
        table.test_key == variant.test_key,
        or_(table.first_job == job.id, table.last_job == job.id, table.state != FlagState.resolved),
    )
    for flag in session.scalars(query.order_by(table.id).with_for_update()):
        named = {flag.first_job, flag.last_job, *ids_in(flag.evidence)}
        if job.id not in named:
            continue
        others = session.scalars(
            select(JobRow.id).where(JobRow.id.in_(named - {job.id})).order_by(JobRow.id)
        ).all()
        if not others:
            why = f"job {job.id}, its only evidence, was deleted by {actor}"
            if flags.resolve(
                session, flag.id, version=flag.version, why=why, detail={"job": job.id}, now=now
            ):
                resolved.append(flag.id)
            continue
        flag.evidence = _without(flag.evidence, job.id)
        flag.jobs = max(1, flag.jobs - 1)
        if flag.first_job == job.id:
            flag.first_job = others[0]
        if flag.last_job == job.id:
            flag.last_job = others[-1]
        flag.updated_at = now
        flag.version += 1
    session.flush()
    return resolved


def _without(value: Any, job_id: str) -> Any:
    """Return a JSON value without the members of lists that are, or are about, a job."""
    if isinstance(value, dict):
        return {name: _without(member, job_id) for name, member in value.items()}
    if isinstance(value, list):
        return [
            _without(member, job_id)
            for member in value
            if member != job_id and not (isinstance(member, dict) and member.get("job") == job_id)
        ]
    return value


def _reassess(session: Session, variant: Variant, job_id: str, *, now: datetime) -> None:
    """Assess the test by its other jobs; without any it has neither grade nor trend."""
    if graded_job(session, variant) is not None:
        request_assessment(session, variant, f"deleted:{job_id}", now=now)
        return
    session.execute(delete(AssessmentRow).where(*variant.at(AssessmentRow)))
