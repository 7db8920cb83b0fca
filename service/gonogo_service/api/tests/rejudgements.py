"""Rejudgements: a test's stored seeds with another tolerance, or with the current policy."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, Field

from gonogo.errors import FieldError
from gonogo.spec.selections import is_selection
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import Verdict
from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.kit.strict import Strict
from gonogo_storage.access import audit
from gonogo_storage.catalogue import test_specs
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.history import rejudgements as stored

router = make_router("rejudgements")
Counts = dict[Verdict, int]
ANY_SIZE = 2**53
"""Nothing runs, so the limit of elements doesn't apply."""


class RejudgementIn(Strict):
    """The test, and the tolerance that its seeds are judged with again."""

    test: str = Field(min_length=1, max_length=100, description="The test's key")
    tolerance: dict[str, Any] | None = Field(
        None, description="The complete tolerance, as in a test; null: the declared one"
    )
    build: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Only jobs of this build"
    )
    store: bool = Field(
        False, description="Store the report; the verdicts of the jobs never change"
    )
    reason: Annotated[str, Field(min_length=1, max_length=2000)] | None = None


class Rejudged(BaseModel):
    """Old and new verdicts of seeds; the stored numbers can't decide the `undecided` ones."""

    seeds: int
    changed: int
    undecided: int
    old: Counts
    new: Counts


class RejudgedBuild(Rejudged):
    """The verdicts of all jobs of a build."""

    build: str
    branch: str
    sequence: int
    jobs: int


class RejudgedJob(Rejudged):
    """The verdicts of a job; `new_verdict` is null if a seed is undecided."""

    job: str
    build: str
    old_verdict: Verdict | None
    new_verdict: Verdict | None


class RejudgementOut(BaseModel):
    """The report; id, owner and created_at are null unless stored. In lists `jobs` is empty."""

    id: str | None
    test_key: str
    new_test_key: str
    tolerance: dict[str, dict[str, Any]]
    policy: dict[str, Any]
    build: str | None
    builds: list[RejudgedBuild]
    jobs: list[RejudgedJob]
    seeds: int
    changed: int
    undecided: int
    reasons: dict[str, int]
    jobs_left_out: int
    owner: str | None
    reason: str | None
    created_at: str | None


class RejudgementPage(BaseModel):
    """A page of stored rejudgements, newest first."""

    items: list[RejudgementOut]
    next: str | None


@router.post(
    "/rejudgements",
    responses={
        200: {"model": RejudgementOut},
        201: {"model": RejudgementOut, "description": "Stored"},
    },
    response_class=Response,
    summary="Judge a test's stored seeds again",
)
def rejudge(context: Ctx, who: Submitter, body: RejudgementIn) -> Response:
    """Compute the new verdicts for each build and job from stored numbers.

    No kernel runs, and no stored verdict changes. A seed whose numbers can't decide is undecided,
    with a reason; a report with such seeds can't be stored.
    """
    with context.reading() as session:
        spec = test_specs.get(session, body.test)
        if spec is None:
            raise FieldError(
                "test",
                body.test,
                "there is no test with this key",
                limit="a key of GET /api/v1/tests",
            )
        declared, requested = _tests(spec.test, body)
        report = stored.report(session, declared, requested, build=body.build)
    if not body.store:
        return answer(
            {**report, "id": None, "owner": None, "reason": body.reason, "created_at": None}
        )
    if report["undecided"]:
        why = next(iter(report["reasons"]))
        reason = f"{report['undecided']} of {report['seeds']} seeds can't be decided: {why}"
        raise FieldError(
            "tolerance", body.tolerance, reason, limit="a tolerance that stored numbers decide"
        )
    with context.session() as session:
        rejudgement = stored.add(
            session, report, requested, owner=who.name, reason=body.reason, now=utcnow()
        )
        detail = {
            name: report[name]
            for name in (
                "test_key",
                "new_test_key",
                "tolerance",
                "policy",
                "build",
                "seeds",
                "changed",
            )
        }
        audit.record(
            session,
            actor=who.actor,
            action="rejudgement.stored",
            subject=rejudgement["id"],
            detail=detail,
        )
    return answer(rejudgement, 201)


@router.get(
    "/rejudgements",
    responses={200: {"model": RejudgementPage}},
    response_class=Response,
    summary="List rejudgements",
)
def list_rejudgements(
    context: Ctx, _who: Reader, test: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """List stored rejudgements without their jobs, newest first; `test` is a test's key."""
    with context.reading() as session:
        return answer_page(stored.list_(session, test=test, limit=limit, cursor=cursor))


@router.get(
    "/rejudgements/{rejudgement_id}",
    responses={200: {"model": RejudgementOut}},
    response_class=Response,
    summary="Show a rejudgement",
)
def look(context: Ctx, _who: Reader, rejudgement_id: str) -> Response:
    """Show a stored rejudgement."""
    with context.reading() as session:
        rejudgement = stored.get(session, rejudgement_id)
    if rejudgement is None:
        raise missing("rejudgement", rejudgement_id)
    return answer(rejudgement)


def _tests(canonical: dict[str, Any], body: RejudgementIn) -> tuple[TestSpec, TestSpec]:
    """Return the test as declared, and with the requested tolerance. Raises FieldError."""
    if is_selection(canonical):
        raise FieldError(
            "test",
            body.test,
            "a selection has no tolerance: its tests define when they pass",
            limit="a test of a kernel",
        )
    declared = TestSpec.parse(canonical, max_elements=ANY_SIZE)
    if body.tolerance is None:
        return declared, declared
    try:
        return declared, TestSpec.parse(
            {**canonical, "tolerance": body.tolerance}, max_elements=ANY_SIZE
        )
    except FieldError as error:
        raise FieldError(
            error.field.removeprefix("test."), error.value, error.reason, limit=error.limit
        ) from None
