"""Rejudgements: a test's stored seeds under another tolerance, or under the policy in force."""

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
"""Nothing is run: the limit of elements is none of this."""


class RejudgementIn(Strict):
    """Which test, and by what its seeds are judged again."""

    test: str = Field(min_length=1, max_length=100, description="the test's key")
    tolerance: dict[str, Any] | None = Field(
        None, description="the whole tolerance as a test has it; null: the declared one"
    )
    build: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="jobs of this build only"
    )
    store: bool = Field(
        False, description="keep the report; the verdicts of the jobs stay as they are in any case"
    )
    reason: Annotated[str, Field(min_length=1, max_length=2000)] | None = None


class Rejudged(BaseModel):
    """Old and new verdicts of some seeds. `undecided`: their stored numbers can't tell."""

    seeds: int
    changed: int
    undecided: int
    old: Counts
    new: Counts


class RejudgedBuild(Rejudged):
    """Of all jobs of a build."""

    build: str
    branch: str
    sequence: int
    jobs: int


class RejudgedJob(Rejudged):
    """Of a job; `new_verdict` is null where a seed is undecided."""

    job: str
    build: str
    old_verdict: Verdict | None
    new_verdict: Verdict | None


class RejudgementOut(BaseModel):
    """The report; id, owner and created_at are null unless it is stored. In lists `jobs` is
    empty.
    """

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
        201: {"model": RejudgementOut, "description": "stored"},
    },
    response_class=Response,
    summary="Judge a test's stored seeds again",
)
def rejudge(context: Ctx, who: Submitter, body: RejudgementIn) -> Response:
    """What the verdicts would be, for each build and job, from stored numbers alone; no kernel is
    run, no stored verdict changes.

    A seed whose numbers can't tell is undecided, with the reason; such a report can't be stored.
    """
    with context.reading() as session:
        spec = test_specs.get(session, body.test)
        if spec is None:
            raise FieldError(
                "test",
                body.test,
                "there is no test of this key",
                limit="a key of GET /api/v1/tests",
            )
        declared, wanted = _tests(spec["test"], body)
        found = stored.report(session, declared, wanted, build=body.build)
    if not body.store:
        return answer(
            {**found, "id": None, "owner": None, "reason": body.reason, "created_at": None}
        )
    if found["undecided"]:
        reason = f"{found['undecided']} of {found['seeds']} seeds can't be decided: {next(iter(found['reasons']))}"
        raise FieldError(
            "tolerance", body.tolerance, reason, limit="a tolerance that stored numbers decide"
        )
    with context.session() as session:
        made = stored.add(session, found, wanted, owner=who.name, reason=body.reason, now=utcnow())
        detail = {
            name: found[name]
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
            session, actor=who.actor, action="rejudgement.stored", subject=made["id"], detail=detail
        )
    return answer(made, 201)


@router.get(
    "/rejudgements",
    responses={200: {"model": RejudgementPage}},
    response_class=Response,
    summary="List rejudgements",
)
def list_rejudgements(
    context: Ctx, _who: Reader, test: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Those that were stored, newest first, of a test by its key; without their jobs."""
    with context.reading() as session:
        return answer_page(stored.list_(session, test=test, limit=limit, cursor=cursor))


@router.get(
    "/rejudgements/{rejudgement_id}",
    responses={200: {"model": RejudgementOut}},
    response_class=Response,
    summary="Look at a rejudgement",
)
def look(context: Ctx, _who: Reader, rejudgement_id: str) -> Response:
    """As it was stored."""
    with context.reading() as session:
        found = stored.get(session, rejudgement_id)
    if found is None:
        raise missing("rejudgement", rejudgement_id)
    return answer(found)


def _tests(canonical: dict[str, Any], body: RejudgementIn) -> tuple[TestSpec, TestSpec]:
    """The test as declared, and as it is wanted. Raises FieldError."""
    if is_selection(canonical):
        raise FieldError(
            "test",
            body.test,
            "a selection declares no tolerance: its gates are in its tests",
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
