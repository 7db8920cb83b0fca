"""Tests ever submitted: their grades and rates on each variant, and what their jobs found per
build.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Query, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from gonogo_service.access.context import Ctx, Reader
from gonogo_service.api.tests.schemas import GradeOut, Looked, RateOut, Source, VariantOut
from gonogo_service.kit.answers import (
    MAX_FILTER,
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.kit.problems import Problem
from gonogo_storage.catalogue import test_specs as stored
from gonogo_storage.flags import flags
from gonogo_storage.history import variant_status
from gonogo_storage.rollups.variants import Variant, jobs_of

router = make_router("tests")
MAX_FLAGS = 100
MAX_VARIANTS = 8
"""Variants that one answer grades, those that ran last; the others are named, and graded when asked
for."""
MAX_NAMED = 20

Branch = Annotated[str | None, Query(max_length=MAX_FILTER, description="branch")]
Arch = Annotated[str | None, Query(max_length=MAX_FILTER)]
Board = Annotated[str | None, Query(max_length=MAX_FILTER)]


class TestOut(BaseModel):
    """A test in its canonical form: fields at their default are left out."""

    key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    created_at: str


class TestPage(BaseModel):
    """A page of tests, by key."""

    items: list[TestOut]
    next: str | None


class BuildHistory(BaseModel):
    """What a test did on one build of a variant."""

    build: str
    sequence: int
    jobs: int
    seeds: int
    counts: dict[str, int]
    failures: RateOut
    infrastructure: RateOut = Field(
        description="hangs, crashes and errors, of all runs that were tried"
    )
    hollow: RateOut = Field(description="green seeds that rounding does not explain")
    last_job: str
    last_at: str | None


class GradedVariant(VariantOut):
    """A test on one branch and one kind of board. `build`: the newest, which the grade is
    of.
    """

    build: str | None
    grade: GradeOut
    failures: RateOut
    infrastructure: RateOut
    hollow: RateOut
    builds: list[BuildHistory]
    looked: Looked
    assessed: Source


class TestHistory(TestOut):
    """A test: its grade, rates and history per build on each variant, the one that ran last first;
    what it found on each build over all variants, newest build first; and its flags.
    """

    variants: list[GradedVariant]
    more_variants: list[VariantOut] = Field(
        description="not graded in this answer: ask with branch, arch and board"
    )
    builds: list[dict[str, Any]]
    flags: list[dict[str, Any]]


@router.get(
    "/tests", responses={200: {"model": TestPage}}, response_class=Response, summary="List tests"
)
def list_tests(
    context: Ctx, _who: Reader, kernel: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """In the order of their keys."""
    with context.reading() as session:
        return answer_page(stored.list_(session, kernel=kernel, limit=limit, cursor=cursor))


@router.get(
    "/tests/{key}",
    responses={200: {"model": TestHistory}},
    response_class=Response,
    summary="A test: grade, rates, history per build",
)
def look(
    context: Ctx,
    _who: Reader,
    key: str,
    branch: Branch = None,
    arch: Arch = None,
    board: Board = None,
) -> Response:
    """Of the variants that ran last, or of those that `branch`, `arch` and `board` name. Rates are
    Jeffreys' intervals over whole jobs.
    """
    with context.reading() as session:
        test = stored.get(session, key)
        if test is None:
            raise missing("test", key)
        raised = flags.list_(session, test=key, limit=MAX_FLAGS)
        wanted = [
            each
            for each in variant_status.variants(session, key)
            if _matches(each, branch, arch, board)
        ]
        if not wanted and (branch, arch, board) != (None, None, None):
            raise _no_variant(branch, arch, board, variant_status.variants(session, key))
        return answer(
            {
                **test,
                "variants": [_graded(session, each) for each in wanted[:MAX_VARIANTS]],
                "more_variants": [shape(each) for each in wanted[MAX_VARIANTS:]],
                "builds": stored.builds_of(session, key),
                "flags": raised.items,
            }
        )


def chosen(
    session: Session, key: str, branch: str | None, arch: str | None, board: str | None
) -> tuple[Variant, tuple[Variant, ...]]:
    """(the variant that a request is about, all of the test): what is left out may be anything; of
    several the one that ran last.

    Raises Problem 404 where there is no such test, or it never ran there; the answer then names
    where it did.
    """
    variants = variant_status.variants(session, key)
    if not variants:
        raise missing("test", key)
    found = next((each for each in variants if _matches(each, branch, arch, board)), None)
    if found is None:
        raise _no_variant(branch, arch, board, variants)
    return found, variants


def shape(variant: Variant) -> dict[str, str]:
    """A variant of a known test, in plain JSON types."""
    return {"branch": variant.branch, "arch": variant.arch, "board": variant.board}


def _matches(variant: Variant, branch: str | None, arch: str | None, board: str | None) -> bool:
    pairs = ((branch, variant.branch), (arch, variant.arch), (board, variant.board))
    return all(wanted in (None, has) for wanted, has in pairs)


def _no_variant(
    branch: str | None, arch: str | None, board: str | None, variants: tuple[Variant, ...]
) -> Problem:
    given = {
        field: value
        for field, value in (("branch", branch), ("arch", arch), ("board", board))
        if value is not None
    }
    known = "; ".join(f"{each.branch}, {each.arch}, {each.board}" for each in variants[:MAX_NAMED])
    errors = [
        {"field": field, "value": value, "limit": known, "message": "the test never ran there"}
        for field, value in given.items()
    ]
    return Problem(
        404, f"The test never ran on {', '.join(given.values())}.", slug="not-found", errors=errors
    )


def _graded(session: Session, variant: Variant) -> dict[str, Any]:
    found = variant_status.read(session, variant)
    jobs = jobs_of(session, variant)
    return {
        **shape(variant),
        "build": found.build,
        "grade": found.grade,
        **variant_status.rates(jobs),
        "builds": variant_status.builds(jobs),
        "looked": found.extent,
        "assessed": {"source": found.source, "at": found.at},
    }
