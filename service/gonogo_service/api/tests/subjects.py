"""Subjects: a test without its tolerance, on which history hangs."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from gonogo_service.access.context import Ctx, Reader
from gonogo_service.kit.answers import Cursor, Limit, answer_page, make_router, missing
from gonogo_storage.catalogue import test_specs as stored

router = make_router("tests")


class PastJob(BaseModel):
    """A job of the subject in a few numbers."""

    job: str
    test_key: str
    build: str
    line: str
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
    "/subjects/{subject_key}/history",
    responses={200: {"model": History}},
    response_class=Response,
    summary="The history of a subject",
)
def history(
    context: Ctx, _who: Reader, subject_key: str, limit: Limit = 200, cursor: Cursor = None
) -> Response:
    """Every job that is over, whatever its tolerance."""
    with context.reading() as session:
        if not stored.subject(session, subject_key):
            raise missing("subject", subject_key)
        return answer_page(stored.history(session, subject_key, limit=limit, cursor=cursor))
