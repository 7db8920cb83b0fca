"""The diagnosis of a job: the wrong term, and the summed tiles."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from gonogo.spec.selections import sample
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.jobs.jobs import require_job
from gonogo_service.kit.answers import answer, make_router
from gonogo_storage.db.states import JobState
from gonogo_storage.flags import evidence

router = make_router("jobs")


class DiagnosisOut(BaseModel):
    """The diagnosis of one seed: words, and terms with coefficients, errors and tiles.

    Without a diagnosed seed the fields are null and there are no terms. `verdict` is the job's. For
    a staged suite `stages` is the table of all iterations with blocker and regressions, else null.
    """

    job: str
    state: JobState
    verdict: str | None
    words: str | None
    can_tell: bool | None
    terms: list[dict[str, Any]]
    residuals: dict[str, Any] | None
    seed: int | None
    iteration: int | None
    repeat: int | None
    stages: dict[str, Any] | None


@router.get(
    "/jobs/{job_id}/diagnosis",
    responses={200: {"model": DiagnosisOut}},
    response_class=Response,
    summary="Show a job's diagnosis",
)
def diagnosis(context: Ctx, _who: Reader, job_id: str) -> Response:
    """Show the diagnosis of the most informative seed, among the results so far."""
    with context.reading() as session:
        job = require_job(session, job_id)
        diagnosed = (
            job.diagnosis
            if job.diagnosis is not None or job.state.final
            else evidence.diagnosis(session, job_id)
        )
    empty: dict[str, Any] = {
        "words": None,
        "can_tell": None,
        "terms": [],
        "residuals": None,
        "repeat": None,
        "stages": None,
    }
    number = (
        {"seed": None, "iteration": None}
        if diagnosed is None or diagnosed["seed"] is None
        else sample(job.test, diagnosed["seed"])
    )
    return answer(
        {
            **empty,
            **(diagnosed or {}),
            **number,
            "job": job.id,
            "state": job.state.value,
            "verdict": job.verdict,
        }
    )
