"""Artifacts of a job: diagnoses, error maps, coefficients and logs of the first and worst seeds."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.jobs.jobs import require_job
from gonogo_service.kit.answers import Filter, answer, make_router, missing
from gonogo_storage.jobs import artifacts as stored

router = make_router("jobs")


class ArtifactHead(BaseModel):
    """An artifact without its content."""

    id: str
    kind: str
    seed: int
    repeat: int
    output: str
    size: int
    created_at: str


class ArtifactOut(ArtifactHead):
    """An artifact."""

    content: dict[str, Any]


class ArtifactPage(BaseModel):
    """The artifacts of a job; there is always one page, because they are few."""

    items: list[ArtifactHead]
    next: None


@router.get(
    "/jobs/{job_id}/artifacts",
    responses={200: {"model": ArtifactPage}},
    response_class=Response,
    summary="List artifacts of a job",
)
def artifacts(context: Ctx, _who: Reader, job_id: str, kind: Filter = None) -> Response:
    """List artifacts without their content."""
    with context.reading() as session:
        require_job(session, job_id)
        return answer({"items": stored.list_(session, job_id, kind=kind), "next": None})


@router.get(
    "/jobs/{job_id}/artifacts/{artifact_id}",
    responses={200: {"model": ArtifactOut}},
    response_class=Response,
    summary="Show an artifact with its content",
)
def artifact(context: Ctx, _who: Reader, job_id: str, artifact_id: str) -> Response:
    """Show an artifact; its content is a JSON object whose structure depends on the kind."""
    with context.reading() as session:
        stored_artifact = stored.get(session, job_id, artifact_id)
    if stored_artifact is None:
        raise missing("artifact", artifact_id)
    return answer(stored_artifact)
