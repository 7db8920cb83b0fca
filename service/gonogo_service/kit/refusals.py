"""What an exception becomes: its problem document, or a page where a person asked for one; the
handlers that do it.
"""

from __future__ import annotations

import http
import traceback
from collections.abc import Sequence
from contextlib import suppress

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from gonogo.errors import FieldError, InfrastructureError, JobError
from gonogo_dashboards.pages import error_page
from gonogo_service.kit.body_limits import BodyLimit, BodyLimits
from gonogo_service.kit.problems import (
    MEDIA_TYPE,
    BadField,
    Problem,
    document,
    entry,
    invalid,
    models,
    sentence,
)
from gonogo_storage.db.paging import BadCursor

_log = structlog.get_logger("gonogo.service")


def respond(problem: Problem, scope: Scope) -> Response:
    """The response of a problem: a document, or a page where a person asked for a page."""
    if not scope["path"].startswith("/api/") and "text/html" in Headers(scope=scope).get(
        "accept", ""
    ):
        with suppress(
            Exception
        ):  # what every page is made of may be what failed; an answer there must be
            page = error_page(
                problem.status, http.HTTPStatus(problem.status).phrase, problem.detail
            )
            page.headers.update(problem.headers)
            return page
    return JSONResponse(
        document(problem),
        status_code=problem.status,
        media_type=MEDIA_TYPE,
        headers=problem.headers,
    )


def from_exception(error: Exception, *, limit: BodyLimit) -> Problem:
    """The problem that an exception becomes; what nobody foresaw is a 500 without its text, which
    may hold secrets.
    """
    match error:
        case Problem():
            return error
        case FieldError():
            return BadField(error.field, error.value, error.reason, limit=error.limit)
        case BadCursor():
            return BadField(
                "cursor",
                str(error),
                "is not one that this list gave",
                limit="`next` of the page before",
            )
        case JobError():
            return Problem(422, str(error), slug="impossible-job")
        case RequestValidationError():
            return invalid(error.errors())
        case HTTPException(status_code=413):
            return too_large(limit)
        case HTTPException():
            return _http(error)
        case InfrastructureError():
            return Problem(503, str(error), slug="infrastructure", headers={"Retry-After": "5"})
        case OperationalError() | PoolTimeout():
            return _database(error)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return _database(error)
    return Problem(500, "An error of the service itself; its log has the details.", slug="bug")


def too_large(limit: BodyLimit, given: int | None = None) -> Problem:
    """413: the body is over the limit of its address."""
    error = entry("body", given, "the body is too large", f"{limit.size} bytes ({limit.setting})")
    return Problem(
        413, sentence("body", "is too large", error["limit"]), slug="body-too-large", errors=[error]
    )


def install(app: FastAPI, *, limits: BodyLimits, routes: Sequence[BaseRoute]) -> None:
    """Make every exception that a route raises a problem document. `routes`: all there are, for the
    Allow header of a 405.
    """

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:
            # Starlette names the methods of the first route of that path only
            error = HTTPException(
                405, headers={"Allow": ", ".join(_methods(routes, request.url.path))}
            )
        if isinstance(error, HTTPException) and error.status_code in {204, 304}:
            return Response(status_code=error.status_code, headers=error.headers)
        if isinstance(error, RequestValidationError):
            return respond(invalid(error.errors(), _body_of(request.scope)), request.scope)
        return respond(from_exception(error, limit=limits.of(request.url.path)), request.scope)

    for kind in (
        Problem,
        JobError,
        BadCursor,
        RequestValidationError,
        HTTPException,
        InfrastructureError,
        OperationalError,
        PoolTimeout,
    ):
        app.add_exception_handler(kind, handle)


def _methods(routes: Sequence[BaseRoute], path: str) -> list[str]:
    here = [route for route in routes if isinstance(route, Route) and route.path_regex.match(path)]
    return sorted({method for route in here for method in route.methods or ()})


def _body_of(scope: Scope) -> type[BaseModel] | None:
    """The model of the body that the address takes; None where it takes none."""
    field = getattr(scope.get("route"), "body_field", None)
    return next(models(field.field_info.annotation), None) if field is not None else None


def _http(error: HTTPException) -> Problem:
    details = {
        404: "There is nothing at this address.",
        405: f"This address does not answer to that method; it does to {(error.headers or {}).get('Allow', 'others')}.",
        400: "The body can't be read: it must be JSON in UTF-8, not nested too deeply.",
    }
    generic = error.detail in {
        "",
        http.HTTPStatus(error.status_code).phrase,
        "There was an error parsing the body",
    }
    detail = details.get(error.status_code, error.detail) if generic else error.detail
    return Problem(error.status_code, str(detail), headers=error.headers)


def _database(error: Exception) -> Problem:
    _log.warning("database unavailable", error=str(error).splitlines()[0])
    # Only SQLite's own words are shown ("database is locked", "database or disk is full"):
    # PostgreSQL's name hosts and users.
    cause = str(getattr(error, "orig", "") or "")
    words = (
        cause
        if cause.startswith(("database ", "disk I/O", "attempt to write", "unable to open"))
        else "it is not reachable"
    )
    return Problem(
        503,
        f"The database can't serve this now: {words}. Nothing was stored.",
        slug="database",
        headers={"Retry-After": "5"},
    )


def log_unforeseen(error: Exception, *, method: str, path: str) -> None:
    """Write an unforeseen exception with its traceback to the log, for the answer must not hold it.

    As text: a renderer given the exception itself may print local variables, and with them tokens.
    """
    _log.error(
        "unforeseen error",
        method=method,
        path=path,
        exception="".join(traceback.format_exception(error)).rstrip(),
    )
