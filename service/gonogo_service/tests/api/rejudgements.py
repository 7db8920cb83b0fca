"""Rejudgements: a test's stored seeds with another tolerance."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field

from gonogo.errors import FieldError
from gonogo.spec import tolerances
from gonogo.spec.selections import is_selection
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import AnyTolerance
from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Filter, Limit, make_router, require
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Ctx, Reader, Submitter
from gonogo_service.tests import rejudgements as stored
from gonogo_service.tests import test_specs
from gonogo_service.tests.rejudgements import Rejudgement

router = make_router("rejudgements")
ANY_SIZE = 2**53
"""Nothing runs, so the limit of elements doesn't apply."""
AUDITED = frozenset({"test_key", "new_test_key", "tolerance", "build", "seeds", "changed"})


class RejudgementIn(Strict):
    """The test, and the tolerance that its seeds are judged with again."""

    test: str = Field(min_length=1, max_length=100, description="The test's key")
    tolerance: AnyTolerance = Field(description="The complete tolerance, as in a test")
    build: Annotated[str, Field(min_length=1, max_length=200)] | None = Field(
        None, description="Only jobs of this build"
    )
    store: bool = Field(
        False, description="Store the report; the verdicts of the jobs never change"
    )
    reason: Annotated[str, Field(min_length=1, max_length=2000)] | None = None


@router.post(
    "/rejudgements",
    responses={201: {"model": Rejudgement, "description": "Stored"}},
    summary="Judge a test's stored seeds again",
)
def rejudge(context: Ctx, who: Submitter, body: RejudgementIn, response: Response) -> Rejudgement:
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
        return replace(report, reason=body.reason)
    if report.undecided:
        why = next(iter(report.reasons))
        reason = f"{report.undecided} of {report.seeds} seeds can't be decided: {why}"
        raise FieldError(
            "tolerance",
            tolerances.to_json(body.tolerance),
            reason,
            limit="a tolerance that stored numbers decide",
        )
    with context.session() as session:
        rejudgement = stored.add(
            session, report, requested, owner=who.name, reason=body.reason, now=utcnow()
        )
        detail = {name: value for name, value in asdict(report).items() if name in AUDITED}
        audit.record(
            session,
            actor=who.actor,
            action="rejudgement.stored",
            subject=str(rejudgement.id),
            detail=detail,
        )
    response.status_code = 201
    return rejudgement


@router.get(
    "/rejudgements",
    summary="List rejudgements",
)
def list_rejudgements(
    context: Ctx, _who: Reader, test: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[Rejudgement]:
    """List stored rejudgements without their jobs, newest first; `test` is a test's key."""
    with context.reading() as session:
        return stored.list_(session, test=test, limit=limit, cursor=cursor)


@router.get(
    "/rejudgements/{rejudgement_id}",
    summary="Show a rejudgement",
)
def look(context: Ctx, _who: Reader, rejudgement_id: str) -> Rejudgement:
    """Show a stored rejudgement."""
    with context.reading() as session:
        return require(stored.get(session, rejudgement_id), "rejudgement", rejudgement_id)


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
    try:
        return declared, TestSpec.parse(
            {**canonical, "tolerance": tolerances.to_json(body.tolerance)}, max_elements=ANY_SIZE
        )
    except FieldError as error:
        raise error.at(error.field.removeprefix("test.")) from None
