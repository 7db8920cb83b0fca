"""The diagnosis of a job: which fault explains the error of its most telling seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.selections import sample
from gonogo_service.flags import evidence
from gonogo_service.jobs.api.jobs import require_job
from gonogo_service.kit.answers import make_router
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import JobState
from gonogo_service.people.context import Ctx, Reader

router = make_router("jobs")


@dataclass(frozen=True, kw_only=True)
class DiagnosisOut(JobDiagnosis):
    """The diagnosis of a job; `verdict` is the job's."""

    job: str
    state: JobState
    iteration: int | None = None
    """For a selection; `seed` is null then"""


@router.get("/jobs/{job_id}/diagnosis", summary="Show a job's diagnosis")
def diagnosis(context: Ctx, _who: Reader, job_id: str) -> DiagnosisOut:
    """Show the diagnosis of the most telling seed, among the results so far."""
    with context.reading() as session:
        job = require_job(session, job_id)
        diagnosed = (
            job.diagnosis
            if job.diagnosis is not None or job.state.final
            else evidence.diagnosis(session, job_id)
        )
    place: dict[str, Any] = {}
    if diagnosed is not None and diagnosed.seed is not None:
        place = sample(job.test, diagnosed.seed)
    head = {"job": job.id, "state": job.state, "verdict": job.verdict, "iteration": None}
    return from_object(DiagnosisOut, diagnosed or JobDiagnosis(), **head | place)
