"""Tests ever submitted, and what their jobs found per build."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel

from service.api.answers import Cursor, Filter, Limit, answer, answer_page, make_router, missing
from service.context import Ctx, Reader
from storage import flags
from storage import test_specs as stored

router = make_router("tests")
MAX_FLAGS = 100


class TestOut(BaseModel):
    """A test in its canonical form: fields at their default are left out."""

    key: str
    subject_key: str
    kernel: str
    test: dict[str, Any]
    created_at: str


class TestPage(BaseModel):
    """A page of tests, by key."""

    items: list[TestOut]
    next: str | None


class TestHistory(TestOut):
    """A test with what happened to it on each build, newest build first, and its flags."""

    builds: list[dict[str, Any]]
    flags: list[dict[str, Any]]


@router.get("/tests", responses={200: {"model": TestPage}}, response_class=Response, summary="List tests")
def list_tests(context: Ctx, _who: Reader, kernel: Filter = None, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """In the order of their keys."""
    with context.reading() as session:
        return answer_page(stored.list_(session, kernel=kernel, limit=limit, cursor=cursor))


@router.get("/tests/{key}", responses={200: {"model": TestHistory}}, response_class=Response, summary="A test and its history per build")
def look(context: Ctx, _who: Reader, key: str) -> Response:
    """Counts by verdict and the statistics per output, for each build that the test was run on."""
    with context.reading() as session:
        test = stored.get(session, key)
        if test is None:
            raise missing("test", key)
        raised = flags.list_(session, test=key, limit=MAX_FLAGS)
        return answer({**test, "builds": stored.builds_of(session, key), "flags": raised.items})
