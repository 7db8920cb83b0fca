"""Workloads: a workload is a test without its tolerance; its jobs share one history."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from gonogo_service.access.context import Ctx, Reader
from gonogo_service.kit.answers import Cursor, Limit, answer_page, make_router, missing
from gonogo_storage.catalogue import test_specs as stored

router = make_router("tests")


class PastJob(BaseModel):
    """The summary of a job of the workload."""

    job: str
    test_key: str
    build: str
    branch: str
    sequence: int
    verdict: str | None
    counts: dict[str, int]
    seeds: int
    at: str | None
    outputs: dict[str, dict[str, Any]]


class History(BaseModel):
    """A page of the history, newest first."""

    items: list[PastJob]
    next: str | None


@router.get(
    "/workloads/{workload_key}/history",
    responses={200: {"model": History}},
    response_class=Response,
    summary="List a workload's history",
)
def history(
    context: Ctx, _who: Reader, workload_key: str, limit: Limit = 200, cursor: Cursor = None
) -> Response:
    """List every finished job, whatever its tolerance."""
    with context.reading() as session:
        if not stored.workload(session, workload_key):
            raise missing("workload", workload_key)
        return answer_page(stored.history(session, workload_key, limit=limit, cursor=cursor))
