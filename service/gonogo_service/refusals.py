"""Exception handlers: turn an exception into a problem document, or into an error page."""

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

from gonogo.errors import FieldError, FieldErrors, InfrastructureError, JobError
from gonogo_dashboards.pages import error_page
from gonogo_service.flags.store import Outdated
from gonogo_service.kit.body_limits import BodyLimit, BodyLimits
from gonogo_service.kit.database.engine import ReadTimeout
from gonogo_service.kit.database.paging import BadCursor
from gonogo_service.kit.problems import (
    MEDIA_TYPE,
    BadField,
    Problem,
    document,
    entry,
    invalid,
    models,
    sentence,
    several,
)

_log = structlog.get_logger("gonogo.service")


def respond(problem: Problem, scope: Scope) -> Response:
    """Return a problem's response: a document, or a page where the client accepts HTML."""
    if not scope["path"].startswith("/api/") and "text/html" in Headers(scope=scope).get(
        "accept", ""
    ):
        # the page's template may be what failed; the client needs an answer anyway
        with suppress(Exception):
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
    """Return the problem for an exception.

    An unexpected exception is a 500 without its text, which may contain secrets.
    """
    match error:
        case Problem():
            return error
        case Outdated():
            return BadField(error.field, error.value, error.reason, limit=error.limit, status=409)
        case FieldErrors():
            return several(error.problems)
        case FieldError():
            return BadField(error.field, error.value, error.reason, limit=error.limit)
        case BadCursor():
            return BadField(
                "cursor",
                str(error),
                "is not a cursor of this list",
                limit="`next` of the previous page",
            )
        case ReadTimeout():
            return Problem(
                503,
                f"This read {error} (GONOGO_READ_TIMEOUT_S). Ask for less: a shorter time, one "
                "test, a smaller page.",
                slug="read-timeout",
                headers={"Retry-After": "30"},
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
    return Problem(500, "Internal error: the service's log has the details.", slug="bug")


def too_large(limit: BodyLimit, given: int | None = None) -> Problem:
    """Return a 413: the body is larger than its address allows."""
    error = entry("body", given, "the body is too large", f"{limit.size} bytes ({limit.setting})")
    return Problem(
        413, sentence("body", "is too large", error["limit"]), slug="body-too-large", errors=[error]
    )


def install(app: FastAPI, *, limits: BodyLimits, routes: Sequence[BaseRoute]) -> None:
    """Turn exceptions of FastAPI and Starlette into problem documents; the edge does the others.

    `routes` are all routes, for the Allow header of a 405.
    """

    async def handle(request: Request, error: Exception) -> Response:
        path, scope = request.url.path, request.scope
        if isinstance(error, RequestValidationError):
            return respond(invalid(error.errors(), _body_of(scope)), scope)
        assert isinstance(error, HTTPException)
        if error.status_code in {204, 304}:
            return Response(status_code=error.status_code, headers=error.headers)
        if error.status_code == 405:
            # Starlette lists only the methods of the first route with that path
            error = HTTPException(405, headers={"Allow": ", ".join(_methods(routes, path))})
        return respond(from_exception(error, limit=limits.of(path)), scope)

    for kind in (RequestValidationError, HTTPException):
        app.add_exception_handler(kind, handle)


def _methods(routes: Sequence[BaseRoute], path: str) -> list[str]:
    here = [route for route in routes if isinstance(route, Route) and route.path_regex.match(path)]
    return sorted({method for route in here for method in route.methods or ()})


def _body_of(scope: Scope) -> type[BaseModel] | None:
    """Return the model of the address's body; None where it has no body."""
    field = getattr(scope.get("route"), "body_field", None)
    return next(models(field.field_info.annotation), None) if field is not None else None


def _http(error: HTTPException) -> Problem:
    allowed = (error.headers or {}).get("Allow", "others")
    details = {
        404: "There is nothing at this address.",
        405: f"This address does not support that method (allowed: {allowed}).",
        400: "The body can't be read.",
    }
    phrase = http.HTTPStatus(error.status_code).phrase
    is_generic = error.detail in {"", phrase, "There was an error parsing the body"}
    detail = details.get(error.status_code, error.detail) if is_generic else error.detail
    return Problem(error.status_code, str(detail), headers=error.headers)


def _database(error: Exception) -> Problem:
    _log.warning("database unavailable", error=str(error).splitlines()[0])
    # Only SQLite's messages are shown ("database is locked", "database or disk is full"):
    # PostgreSQL's messages name hosts and users.
    cause = str(getattr(error, "orig", "") or "")
    shown = ("database ", "disk I/O", "attempt to write", "unable to open")
    message = cause if cause.startswith(shown) else "it is not reachable"
    detail = f"The database is unavailable: {message}. Nothing was stored."
    return Problem(503, detail, slug="database", headers={"Retry-After": "5"})


def log_unexpected(error: Exception, *, method: str, path: str) -> None:
    """Log an unexpected exception with its traceback, which the answer must not contain.

    It is logged as text: a renderer of exceptions may print local variables, including tokens.
    """
    _log.error(
        "unexpected error",
        method=method,
        path=path,
        exception="".join(traceback.format_exception(error)).rstrip(),
    )
