"""Rejudgements: a test's stored seeds with another tolerance."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Response
from pydantic import Field
from sqlalchemy.orm import defer

from gonogo.cli.kit.noun import Noun
from gonogo.errors import FieldError
from gonogo.spec import tolerances
from gonogo.spec.selections import is_selection
from gonogo.spec.test_spec import TestSpec
from gonogo.spec.tolerances import AnyTolerance
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Ctx, Submitter
from gonogo_service.tests import rejudgements, test_specs
from gonogo_service.tests.model import RejudgementRow, TestSpecRow

REJUDGEMENT: Any = rows.extended_answer(
    RejudgementRow,
    "Rejudgement",
    without=("id", "owner", "created_at"),
    id=(str | None, "null unless stored"),
    owner=str | None,
    created_at=datetime | None,
)
LINE = rows.extended_answer(RejudgementRow, "RejudgementLine", without=("jobs",))
NOUN = Noun("rejudgements", {}, "a rejudgement", filters={"test": "Only those of this test's key."})
RESOURCE = Resource(
    NOUN,
    RejudgementRow,
    answer=REJUDGEMENT,
    line=LINE,
    where={"test": RejudgementRow.test_key},
    options=(defer(RejudgementRow.jobs),),
)
router = RESOURCE.router
ANY_SIZE = 2**53
"""Nothing runs, so the limit of elements doesn't apply."""
AUDITED = ("test_key", "new_test_key", "tolerance", "build", "seeds", "changed")


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
    responses={201: {"model": REJUDGEMENT, "description": "Stored"}},
    response_model=REJUDGEMENT,
    summary="Judge a test's stored seeds again",
)
def rejudge(context: Ctx, who: Submitter, body: RejudgementIn, response: Response) -> Any:
    """Compute the new verdicts for each build and job from stored numbers.

    No kernel runs, and no stored verdict changes. A seed whose numbers can't decide is undecided,
    with a reason; a report with such seeds can't be stored.
    """
    with context.reading() as session:
        spec = session.get(TestSpecRow, body.test)
        if spec is None:
            raise FieldError(
                "test",
                body.test,
                "there is no test with this key",
                limit="a key of GET /api/v1/tests",
            )
        declared, requested = _tests(spec.test, body)
        report = rejudgements.report(session, declared, requested, build=body.build)
    report.reason = body.reason
    if not body.store:
        return rows.values(REJUDGEMENT, report)
    if report.undecided:
        why = next(iter(report.reasons))
        reason = f"{report.undecided} of {report.seeds} seeds can't be decided: {why}"
        raise FieldError(
            "tolerance",
            tolerances.to_json(body.tolerance),
            reason,
            limit="a tolerance that stored numbers decide",
        )
    report.id, report.owner, report.created_at = new_id(), who.name, utcnow()
    with context.session() as session:
        # jobs and pages can name the test with the new tolerance
        about = requested.key, requested.workload_key, requested.kernel, requested.canonical()
        test_specs.add(session, *about, now=report.created_at)
        session.add(report)
        detail = {name: getattr(report, name) for name in AUDITED}
        Act(context, session, who).audit("rejudgement.stored", report.id, detail)
        session.flush()
        response.status_code = 201
        return rows.values(REJUDGEMENT, report)


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
