"""Artifacts of a job: error maps and logs of the first and worst seeds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from gonogo_service.jobs import artifacts as stored
from gonogo_service.jobs.api.jobs import require_job
from gonogo_service.jobs.artifact_contents import Content
from gonogo_service.kit.answers import Filter, make_router, require
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.kit.problems import Problem
from gonogo_service.people.context import Ctx, Reader

router = make_router("jobs")


@dataclass(frozen=True)
class ArtifactHead:
    """An artifact without its content."""

    id: str
    kind: str
    seed: int
    repeat: int
    output: str
    size: int
    """Bytes of its content as JSON"""
    created_at: datetime


@dataclass(frozen=True)
class ArtifactOut(ArtifactHead):
    """An artifact; its kind decides which content it has, and an unknown kind has any object."""

    content: Annotated[dict[str, Any], Documented(Content | dict[str, Any])]


@router.get("/jobs/{job_id}/artifacts", summary="List artifacts of a job")
def artifacts(context: Ctx, _who: Reader, job_id: str, kind: Filter = None) -> Page[ArtifactHead]:
    """List artifacts without their content, on one page, because they are few."""
    with context.reading() as session:
        job = require_job(session, job_id)
        if job.artifacts_removed_at is not None:
            raise Problem(410, f"Job {job.id}: {job.removed[0]}", slug="removed")
        rows = stored.list_(session, job_id, kind=kind)
    return Page(tuple(from_object(ArtifactHead, row) for row in rows), None)


@router.get("/jobs/{job_id}/artifacts/{artifact_id}", summary="Show an artifact with its content")
def artifact(context: Ctx, _who: Reader, job_id: str, artifact_id: str) -> ArtifactOut:
    """Show an artifact; its content is a JSON object whose structure depends on the kind."""
    with context.reading() as session:
        row = require(stored.get(session, job_id, artifact_id), "artifact", artifact_id)
    return from_object(ArtifactOut, row)
