"""The diagnosis of a job: which term is wrong, and which tiles were summed."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from gonogo.spec.selections import sample
from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.jobs.jobs import found
from gonogo_service.kit.answers import answer, make_router
from gonogo_storage.db.states import JobState
from gonogo_storage.flags import evidence

router = make_router("jobs")


class DiagnosisOut(BaseModel):
    """The words, and the terms with their coefficients, errors and tiles, of one seed; nulls and no
    terms while none was diagnosed. `verdict` is the job's. `stages`, of a staged suite: the table
    of all iterations with blocker and regressions; else null.
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
    summary="Which term is wrong",
)
def diagnosis(context: Ctx, _who: Reader, job_id: str) -> Response:
    """Of the seed that shows most; while the job runs, of the seeds that have come so far."""
    with context.reading() as session:
        job = found(session, job_id)
        what = (
            job.diagnosis
            if job.diagnosis is not None or job.state.final
            else evidence.diagnosis(session, job_id)
        )
    nothing: dict[str, Any] = {
        "words": None,
        "can_tell": None,
        "terms": [],
        "residuals": None,
        "repeat": None,
        "stages": None,
    }
    number = (
        {"seed": None, "iteration": None}
        if what is None or what["seed"] is None
        else sample(job.canonical, what["seed"])
    )
    return answer(
        {
            **nothing,
            **(what or {}),
            **number,
            "job": job.id,
            "state": job.state.value,
            "verdict": job.verdict,
        }
    )
