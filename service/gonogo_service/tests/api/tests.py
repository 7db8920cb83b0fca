"""Tests: their grades and rates on each variant, and their history per build."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Query
from sqlalchemy.orm import Session

from gonogo.flakiness.grades import Grade
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAG_SUMMARY
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.kit.answers import (
    MAX_FILTER,
    Cursor,
    Filter,
    Limit,
    make_router,
    missing,
    require,
)
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.problems import Problem
from gonogo_service.people.context import Ctx, Reader
from gonogo_service.tests import test_specs as stored
from gonogo_service.tests import variant_status
from gonogo_service.tests.api.schemas import VariantOut, shape
from gonogo_service.tests.test_specs import BuildResults, StoredTest
from gonogo_service.tests.variant_status import AssessmentSource, BuildHistory, Rates
from gonogo_service.tests.variants import Variant, jobs_of

router = make_router("tests")
MAX_FLAGS = 100
MAX_VARIANTS = 8
"""Maximum number of graded variants in an answer: those that ran last. Others are only named."""
MAX_NAMED = 20

Branch = Annotated[str | None, Query(max_length=MAX_FILTER, description="Branch")]
Arch = Annotated[str | None, Query(max_length=MAX_FILTER)]
Board = Annotated[str | None, Query(max_length=MAX_FILTER)]


@dataclass(frozen=True)
class GradedVariant(Rates):
    """A test on one branch and one kind of board; the grade is for `build`, the newest one."""

    branch: str
    arch: str
    board: str
    build: str | None
    grade: Grade
    builds: list[BuildHistory]
    extent: ReadExtent
    assessed: AssessmentSource


@dataclass(frozen=True)
class TestHistory(StoredTest):
    """A test with its variants, builds and flags.

    Each variant has its grade, rates and history per build; the one that ran last comes first.
    `builds` are the results over all variants, newest build first.
    """

    variants: list[GradedVariant]
    more_variants: list[VariantOut]
    """Not graded in this answer: filter by branch, arch and board"""
    builds: list[BuildResults]
    flags: list[FLAG_SUMMARY]  # type: ignore[valid-type]


@router.get("/tests", summary="List tests")
def list_tests(
    context: Ctx, _who: Reader, kernel: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[StoredTest]:
    """List tests in the order of their keys."""
    with context.reading() as session:
        return stored.list_(session, kernel=kernel, limit=limit, cursor=cursor)


@router.get("/tests/{key}", summary="Show a test: grade, rates, history per build")
def look(
    context: Ctx,
    _who: Reader,
    key: str,
    branch: Branch = None,
    arch: Arch = None,
    board: Board = None,
) -> TestHistory:
    """Show the variants that ran last, or those that `branch`, `arch` and `board` select.

    Rates have Jeffreys' intervals over whole jobs.
    """
    with context.reading() as session:
        test = require(stored.get(session, key), "test", key)
        raised = flags.newest(session, test=key, limit=MAX_FLAGS)
        variants = [
            variant
            for variant in variant_status.variants(session, key)
            if _matches(variant, branch, arch, board)
        ]
        if not variants and (branch, arch, board) != (None, None, None):
            raise _no_variant(branch, arch, board, variant_status.variants(session, key))
        return from_object(
            TestHistory,
            test,
            variants=[_graded(session, variant) for variant in variants[:MAX_VARIANTS]],
            more_variants=[shape(variant) for variant in variants[MAX_VARIANTS:]],
            builds=stored.builds_of(session, key),
            flags=[FLAG_SUMMARY.model_validate(flag) for flag in raised.items],
        )


def chosen(
    session: Session, key: str, branch: str | None, arch: str | None, board: str | None
) -> tuple[Variant, tuple[Variant, ...]]:
    """Return (the requested variant, all variants of the test).

    None matches anything. Of several matches the one that ran last is returned. Raises Problem 404
    for an unknown test, or a variant that never ran; it names the known variants.
    """
    variants = variant_status.variants(session, key)
    if not variants:
        raise missing("test", key)
    matches = (variant for variant in variants if _matches(variant, branch, arch, board))
    variant = next(matches, None)
    if variant is None:
        raise _no_variant(branch, arch, board, variants)
    return variant, variants


def _matches(variant: Variant, branch: str | None, arch: str | None, board: str | None) -> bool:
    pairs = ((branch, variant.branch), (arch, variant.arch), (board, variant.board))
    return all(requested in (None, actual) for requested, actual in pairs)


def _no_variant(
    branch: str | None, arch: str | None, board: str | None, variants: tuple[Variant, ...]
) -> Problem:
    given = {
        field: value
        for field, value in (("branch", branch), ("arch", arch), ("board", board))
        if value is not None
    }
    known = "; ".join(
        f"{variant.branch}, {variant.arch}, {variant.board}" for variant in variants[:MAX_NAMED]
    )
    errors = [
        {"field": field, "value": value, "limit": known, "message": "the test never ran there"}
        for field, value in given.items()
    ]
    return Problem(
        404, f"The test never ran on {', '.join(given.values())}.", slug="not-found", errors=errors
    )


def _graded(session: Session, variant: Variant) -> GradedVariant:
    status = variant_status.read(session, variant)
    jobs = jobs_of(session, variant)
    return from_object(
        GradedVariant,
        variant,
        status,
        variant_status.rates(jobs),
        builds=variant_status.builds(jobs),
    )
