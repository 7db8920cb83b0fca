"""Suites: named, validated lists of tests that are submitted together."""

from __future__ import annotations

from typing import Annotated, Any

from sqlalchemy import ColumnElement, true
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo_service.kit import rows, versioned
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.resource import Act, Resource, Same
from gonogo_service.people.context import Context
from gonogo_service.suites import noun, submission, suite_text
from gonogo_service.suites.bodies import PushedSuite, SuiteIn
from gonogo_service.suites.model import SuiteRow
from gonogo_service.suites.submission import TestOfSuite

SUMMARY = rows.extended_answer(
    SuiteRow,
    "SuiteSummary",
    without=("content",),
    description=str,
    tests=(int, "The number of tests, with expanded matrices"),
    builds=(int, "The number of builds that it names"),
)
DETAILS = rows.extended_answer(
    SuiteRow,
    "SuiteDetails",
    content=Annotated[dict[str, Any], Documented(SuiteIn)],
    tests=(list[TestOfSuite], "Empty if the service's limits no longer allow them"),
)


def _with_tests(context: Context, _session: Session, suite: SuiteRow) -> dict[str, Any]:
    try:
        tests = submission.described(suite.content, context.settings)
    except FieldError:
        tests = []
    return rows.values(DETAILS, suite, tests=tests)


def _archived_too(archived: bool) -> ColumnElement[bool]:
    return true() if archived else SuiteRow.archived_at.is_(None)


SUITES = Resource(
    noun.SUITES,
    SuiteRow,
    answer=DETAILS,
    line=SUMMARY,
    show=_with_tests,
    where={"archived": _archived_too},
    audited=("version", "key"),
)
router = SUITES.router
SUITES.archives(
    """Archive a suite: it can't run any more, and its schedules fail for that reason.

    Its runs stay. Storing it again restores it.
    """
)


@SUITES.on_create
def put(act: Act, body: PushedSuite) -> SuiteRow | Same[SuiteRow]:
    """Create the suite with that name, or replace it as its next version.

    The same content is no new version (200), also with another `file`. Every test is checked like
    a job, except for its build. Open runs keep their version.
    """
    content, file = body.content(), body.file
    submission.check(content, act.context.settings)
    if file is not None and not suite_text.is_of(file, content):
        raise FieldError("file.text", file.text, "must be the suite that comes with it")
    suite, changed = versioned.put(act.session, SuiteRow, body.name, content, act.who.name)
    suite.file = None if file is None else file.model_dump()
    return suite if changed else Same(suite)
