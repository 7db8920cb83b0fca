"""The diagnosis of a job: the wrong term, and the summed tiles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gonogo.spec.selections import sample
from gonogo.spec.verdicts import Verdict
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.jobs.jobs import require_job
from gonogo_service.kit.answers import make_router
from gonogo_storage.db.states import JobState
from gonogo_storage.flags import evidence

router = make_router("jobs")


@dataclass(frozen=True)
class DiagnosisOut:
    """The diagnosis of one seed: words, and terms with coefficients, errors and tiles.

    Without a diagnosed seed the fields are null and there are no terms. `verdict` is the job's. For
    a staged suite `stages` is the table of all iterations with blocker and regressions, else null.
    """

    job: str
    state: JobState
    verdict: Verdict | None
    words: str | None = None
    can_tell: bool | None = None
    terms: list[dict[str, Any]] = field(default_factory=list)
    faults: dict[str, str] = field(default_factory=dict)
    """The fault of each wrong output that exact inputs or the replay show"""
    residuals: dict[str, Any] | None = None
    seed: int | None = None
    iteration: int | None = None
    repeat: int | None = None
    explanation: str | None = None
    """Whether rounding explains the seed's error"""
    stages: dict[str, Any] | None = None


@router.get("/jobs/{job_id}/diagnosis", summary="Show a job's diagnosis")
def diagnosis(context: Ctx, _who: Reader, job_id: str) -> DiagnosisOut:
    """Show the diagnosis of the most informative seed, among the results so far."""
    with context.reading() as session:
        job = require_job(session, job_id)
        diagnosed = (
            job.diagnosis
            if job.diagnosis is not None or job.state.final
            else evidence.diagnosis(session, job_id)
        )
    shown = {name: value for name, value in (diagnosed or {}).items() if name != "verdict"}
    if shown.get("seed") is not None:
        shown |= sample(job.test, shown["seed"])
    return DiagnosisOut(job=job.id, state=job.state, verdict=job.verdict, **shown)
