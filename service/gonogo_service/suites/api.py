"""Suites: named, validated lists of tests that are submitted together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from gonogo.errors import FieldError
from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Limit, extend_page, make_router, missing
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.people.context import Ctx, Reader, Submitter
from gonogo_service.suites import store as stored
from gonogo_service.suites import submission as suites
from gonogo_service.suites.schemas import SuiteDetails, SuiteIn, SuiteOut, SuiteSummary, summary

router = make_router("suites")


@router.post(
    "/suites",
    status_code=201,
    responses={200: {"model": SuiteDetails, "description": "Unchanged"}},
    summary="Store a suite",
)
def put(context: Ctx, who: Submitter, body: SuiteIn, response: Response) -> SuiteDetails:
    """Create the suite with that name, or replace it as its next version.

    The same content is no new version (200). Every test is checked like a job, except for its
    build. Open runs keep their version.
    """
    content = body.content()
    suites.check(content, context.settings)
    with context.session() as session:
        suite, changed = stored.put(session, body.name, content, owner=who.name, now=utcnow())
        if changed:
            detail = {"version": suite.version, "key": suite.key}
            audit.record(
                session, actor=who.actor, action="suite.stored", subject=body.name, detail=detail
            )
    if not changed:
        response.status_code = 200
    return from_object(SuiteDetails, suite, tests=suites.described(content, context.settings))


@router.get("/suites", summary="List suites")
def list_suites(
    context: Ctx,
    _who: Reader,
    archived: Annotated[bool, Query(description="Include archived suites")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[SuiteSummary]:
    """List suites by name."""
    with context.reading() as session:
        page = stored.list_(session, archived=archived, limit=limit, cursor=cursor)
        return extend_page(page, summary)


@router.get(
    "/suites/{name}",
    summary="Show a suite",
)
def look(context: Ctx, _who: Reader, name: str) -> SuiteDetails:
    """Show the newest version with its tests.

    `tests` is empty if the service's limits no longer allow them.
    """
    with context.reading() as session:
        suite = stored.get(session, name)
        if suite is None:
            raise missing("suite", name, stored.names(session))
    try:
        tests = suites.described(suite.content, context.settings)
    except FieldError:
        tests = []
    return from_object(SuiteDetails, suite, tests=tests)


@router.delete(
    "/suites/{name}",
    summary="Archive a suite",
)
def archive(context: Ctx, who: Submitter, name: str) -> SuiteOut:
    """Archive a suite: it can't run any more, and its schedules fail for that reason.

    Its runs stay. Storing it again restores it.
    """
    with context.session() as session:
        result = stored.archive(session, name, now=utcnow())
        if result is None:
            raise missing("suite", name, stored.names(session))
        suite, changed = result
        if changed:
            audit.record(session, actor=who.actor, action="suite.archived", subject=name)
    return from_object(SuiteOut, suite)
