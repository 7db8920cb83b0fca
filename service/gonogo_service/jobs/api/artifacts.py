"""Artifacts of a job: error maps and logs of the first and worst seeds."""

from __future__ import annotations

from typing import Annotated, Any

from gonogo_service.jobs import artifacts as stored
from gonogo_service.jobs.api.jobs import require_job
from gonogo_service.jobs.artifact_contents import Content
from gonogo_service.jobs.model import ArtifactRow
from gonogo_service.kit import rows
from gonogo_service.kit.answers import Filter, make_router, require
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.problems import Problem
from gonogo_service.people.context import Ctx, Reader

router = make_router("jobs")
HEAD: Any = rows.extended_answer(ArtifactRow, "ArtifactHead")
ARTIFACT = rows.extended_answer(
    ArtifactRow,
    "ArtifactOut",
    content=Annotated[dict[str, Any], Documented(Content | dict[str, Any])],
)
"""Its kind decides which content it has, and an unknown kind has any object."""


@router.get(
    "/jobs/{job_id}/artifacts",
    summary="List artifacts of a job",
    response_model=Page[HEAD],
)
def artifacts(context: Ctx, _who: Reader, job_id: str, kind: Filter = None) -> Any:
    """List artifacts without their content, on one page, because they are few."""
    with context.reading() as session:
        job = require_job(session, job_id)
        if job.artifacts_removed_at is not None:
            raise Problem(410, f"Job {job.id}: {job.removed[0]}", slug="removed")
        return Page(tuple(stored.list_(session, job_id, kind=kind)), None)


@router.get(
    "/jobs/{job_id}/artifacts/{artifact_id}",
    summary="Show an artifact with its content",
    response_model=ARTIFACT,
)
def artifact(context: Ctx, _who: Reader, job_id: str, artifact_id: str) -> Any:
    """Show an artifact; its content is a JSON object whose structure depends on the kind."""
    with context.reading() as session:
        return require(stored.get(session, job_id, artifact_id), "artifact", artifact_id)
