"""Suites: named, checked lists of tests that are submitted together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from gonogo.errors import FieldError
from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.api.suites.schemas import SuiteIn, SuiteOut, SuitePage, SuiteWhole
from gonogo_service.kit.answers import Cursor, Limit, answer, answer_page, make_router, missing
from gonogo_service.submission import suites
from gonogo_storage.access import audit
from gonogo_storage.automation import suites as stored
from gonogo_storage.db.encoding import utcnow

router = make_router("suites")


@router.post(
    "/suites",
    status_code=201,
    responses={
        201: {"model": SuiteWhole},
        200: {"model": SuiteWhole, "description": "the same as before"},
    },
    response_class=Response,
    summary="Store a suite",
)
def put(context: Ctx, who: Submitter, body: SuiteIn) -> Response:
    """Creates the suite of that name, or replaces it as its next version; the same content again is
    no new version (200).

    Every test is checked as a job would be, but for its build. Runs that are open keep the version
    that they were made of.
    """
    content = body.content()
    suites.check(content, context.settings)
    with context.session() as session:
        suite, changed = stored.put(session, body.name, content, owner=who.name, now=utcnow())
        if changed:
            detail = {"version": suite["version"], "key": suite["key"]}
            audit.record(
                session, actor=who.actor, action="suite.stored", subject=body.name, detail=detail
            )
    return answer(
        {**suite, "tests": suites.described(content, context.settings)}, 201 if changed else 200
    )


@router.get(
    "/suites", responses={200: {"model": SuitePage}}, response_class=Response, summary="List suites"
)
def list_suites(
    context: Ctx,
    _who: Reader,
    archived: Annotated[bool, Query(description="with those that were archived")] = False,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """By name."""
    with context.reading() as session:
        return answer_page(stored.list_(session, archived=archived, limit=limit, cursor=cursor))


@router.get(
    "/suites/{name}",
    responses={200: {"model": SuiteWhole}},
    response_class=Response,
    summary="Look at a suite",
)
def look(context: Ctx, _who: Reader, name: str) -> Response:
    """Its newest version, with its tests. `tests` is empty where this service's limits no longer
    allow them.
    """
    with context.reading() as session:
        suite = stored.get(session, name)
    if suite is None:
        raise missing("suite", name)
    try:
        tests = suites.described(suite["content"], context.settings)
    except FieldError:
        tests = []
    return answer({**suite, "tests": tests})


@router.delete(
    "/suites/{name}",
    responses={200: {"model": SuiteOut}},
    response_class=Response,
    summary="Archive a suite",
)
def archive(context: Ctx, who: Submitter, name: str) -> Response:
    """It takes no runs any more, and its schedules fail with that reason; runs that exist stay.
    Storing it again brings it back.
    """
    with context.session() as session:
        found = stored.archive(session, name, now=utcnow())
        if found is None:
            raise missing("suite", name)
        suite, changed = found
        if changed:
            audit.record(session, actor=who.actor, action="suite.archived", subject=name)
    return answer(suite)
