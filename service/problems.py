"""RFC 9457 problem documents: every error of the API in one shape that names the field, the value and the limit.

Problem                      an error made by the service itself, with its status
├── BadField                 422: one field, as gonogo.problems.FieldError is for the domain
└── (others are made by `problem(status, detail)`)
"""

from __future__ import annotations

import http
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, Tag, ValidationError
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route
from starlette.types import Scope

from dashboards.pages import error_page
from gonogo.problems import FieldError, InfrastructureError, JobError, quote, shorten
from service.bodies import BodyLimit, BodyLimits
from storage.paging import BadCursor

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:gonogo:problem:"
_TAGS = frozenset({"range", "sequential", "list", "isolated", "prepared", "stored", "inline"})
"""Names of union members (see api/jobs.py) that pydantic puts into its paths; they are no fields."""
_LIMIT_WORDS = {
    "ge": ">= {}",
    "gt": "> {}",
    "le": "<= {}",
    "lt": "< {}",
    "multiple_of": "a multiple of {}",
    "min_length": "at least {} long",
    "max_length": "at most {} long",
    "pattern": "the pattern {}",
    "expected": "{}",
}
_MESSAGES = {
    "extra_forbidden": "unknown field",
    "missing": "is required",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
    "list_type": "must be a list",
    "int_type": "must be an integer",
    "int_parsing": "must be an integer",
    "int_from_float": "must be an integer",
    "float_type": "must be a number",
    "string_type": "must be text",
    "string_pattern_mismatch": "has another form",
    "string_too_short": "is too short",
    "string_too_long": "is too long",
    "too_short": "has too few items",
    "too_long": "has too many items",
    "none_required": "must be null",
    "literal_error": "unknown value",
    "enum": "unknown value",
    "greater_than_equal": "is too small",
    "greater_than": "is too small",
    "less_than_equal": "is too large",
    "less_than": "is too large",
    "finite_number": "must be finite",
}
"""By pydantic's type of error; others keep pydantic's own words."""
_log = structlog.get_logger("gonogo.service")


class Problem(Exception):
    """An error with its HTTP status. `errors` holds one object per wrong field: field, value, limit, message."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        slug: str | None = None,
        errors: Iterable[Mapping[str, Any]] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.status = status
        self.detail = detail
        self.slug = slug
        self.errors = [dict(error) for error in errors]
        self.headers = dict(headers or {})
        super().__init__(detail)


class BadField(Problem):
    """422 for one field: a dotted path, the value as given, what would be allowed."""

    def __init__(self, field: str, value: object, reason: str, *, limit: object = None, status: int = 422) -> None:
        super().__init__(status, _sentence(field, reason, limit), slug="invalid-field", errors=[_error(field, value, reason, limit)])


def document(problem: Problem) -> dict[str, Any]:
    """The problem as JSON. Field, value and limit of the first error also stand at the top, where a shell script finds them."""
    title = http.HTTPStatus(problem.status).phrase
    slug = problem.slug or title.lower().replace(" ", "-")
    body: dict[str, Any] = {"type": TYPE_PREFIX + slug, "title": title, "status": problem.status, "detail": problem.detail}
    if problem.errors:
        body |= {name: problem.errors[0][name] for name in ("field", "value", "limit")}
        body["errors"] = problem.errors
    return body


def respond(problem: Problem, scope: Scope) -> Response:
    """The response of a problem: a document, or a page where a person asked for a page (not for a 500: a page may be what failed)."""
    if problem.status != 500 and not scope["path"].startswith("/api/") and "text/html" in Headers(scope=scope).get("accept", ""):
        page = error_page(problem.status, http.HTTPStatus(problem.status).phrase, problem.detail)
        page.headers.update(problem.headers)
        return page
    return JSONResponse(document(problem), status_code=problem.status, media_type=MEDIA_TYPE, headers=problem.headers)


def from_exception(error: Exception, *, limit: BodyLimit) -> Problem:
    """The problem that an exception becomes; what nobody foresaw is a 500 without its text, which may hold secrets."""
    match error:
        case Problem():
            return error
        case FieldError():
            return BadField(error.field, error.value, error.reason, limit=error.limit)
        case BadCursor():
            return BadField("cursor", str(error), "is not one that this list gave", limit="`next` of the page before")
        case JobError():
            return Problem(422, str(error), slug="impossible-job")
        case RequestValidationError():
            return _invalid(error)
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
    error = _error("body", given, "the body is too large", f"{limit.size} bytes ({limit.setting})")
    return Problem(413, _sentence("body", "is too large", error["limit"]), slug="body-too-large", errors=[error])


def install(app: FastAPI, *, limits: BodyLimits, routes: Sequence[BaseRoute]) -> None:
    """Make every exception that a route raises a problem document. `routes`: all there are, for the Allow header of a 405."""

    async def handle(request: Request, error: Exception) -> Response:
        if isinstance(error, HTTPException) and error.status_code == 405:
            # Starlette names the methods of the first route of that path only
            error = HTTPException(405, headers={"Allow": ", ".join(_methods(routes, request.url.path))})
        if isinstance(error, HTTPException) and error.status_code in {204, 304}:
            return Response(status_code=error.status_code, headers=error.headers)
        if isinstance(error, RequestValidationError):
            return respond(_invalid(error, _body_of(request.scope)), request.scope)
        return respond(from_exception(error, limit=limits.of(request.url.path)), request.scope)

    for kind in (Problem, JobError, BadCursor, RequestValidationError, HTTPException, InfrastructureError, OperationalError, PoolTimeout):
        app.add_exception_handler(kind, handle)


def _methods(routes: Sequence[BaseRoute], path: str) -> list[str]:
    here = [route for route in routes if isinstance(route, Route) and route.path_regex.match(path)]
    return sorted({method for route in here for method in route.methods or ()})


def dotted(location: Sequence[object]) -> str:
    """ "seeds.count" for pydantic's ("body", "seeds", "range", "count")."""
    parts = list(location)
    if parts and parts[0] in {"body", "query", "path", "header", "cookie"}:
        parts = parts[1:] or parts[:1]
    return ".".join(str(part) for part in parts if part not in _TAGS and part != "[key]") or "body"


def _error(field: str, value: object, reason: str, limit: object) -> dict[str, Any]:
    return {"field": field, "value": quote(value), "limit": limit, "message": _sentence(field, reason, limit)}


def _sentence(field: str, reason: str, limit: object) -> str:
    return f"{field}: {shorten(reason)}" + ("" if limit is None else f" (limit: {limit})")


def _body_of(scope: Scope) -> type[BaseModel] | None:
    """The model of the body that the address takes; None where it takes none."""
    field = getattr(scope.get("route"), "body_field", None)
    return next(_models(field.field_info.annotation), None) if field is not None else None


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in an annotation, those of its union members among them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _tagged(annotation: object, tag: object) -> Iterator[type[BaseModel]]:
    """The model of the union's member with that tag."""
    parts = get_args(annotation)
    if any(isinstance(part, Tag) and part.tag == tag for part in parts):
        yield from _models(parts[0])
    for part in parts:
        yield from _tagged(part, tag)


def _known(model: type[BaseModel] | None, location: Sequence[object]) -> str | None:
    """The fields that stand beside the one at `location`, a path of pydantic's below the body; None where that isn't known."""
    annotation: object = None
    for part in location[:-1]:
        if part in _TAGS:
            model = next(_tagged(annotation, part), model)
        elif model is not None and not isinstance(part, int):
            field = model.model_fields.get(str(part))
            annotation = None if field is None else field.annotation
            model = next(_models(annotation), None)
    return None if model is None else "one of " + ", ".join(model.model_fields)


def _invalid(error: RequestValidationError, body: type[BaseModel] | None = None) -> Problem:
    errors = []
    for item in error.errors():
        kind, location = str(item["type"]), item["loc"]
        if kind == "json_invalid":
            reason = f"is not JSON ({item.get('ctx', {}).get('error', '')}; character {location[-1]})"
            errors.append(_error("body", None, reason, None))
            continue
        if tuple(location) == ("body",) and isinstance(item.get("input"), bytes):
            return Problem(415, "The body must be JSON, sent with Content-Type: application/json.", slug="not-json")
        context = item.get("ctx") or {}
        if isinstance(cause := context.get("error"), FieldError):
            errors.append(_error(cause.field, cause.value, cause.reason, cause.limit))
            continue
        limit = next((words.format(context[name]) for name, words in _LIMIT_WORDS.items() if name in context), None)
        if kind == "extra_forbidden" and location[:1] == ("body",):
            limit = _known(body, location[1:])
        reason = _MESSAGES.get(kind) or str(item["msg"]).removeprefix("Value error, ")
        errors.append(_error(dotted(location), None if kind == "missing" else item.get("input"), reason, limit))
    return Problem(422, "; ".join(error["message"] for error in errors[:5]), slug="invalid-field", errors=errors[:20])


def as_field_error(error: ValidationError) -> FieldError:
    """The first error of a model that the service itself read, as the domain says it: its field, its value, its limit."""
    problem = _invalid(RequestValidationError(error.errors()))
    first = problem.errors[0]
    reason = first["message"].removeprefix(f"{first['field']}: ").removesuffix(f" (limit: {first['limit']})")
    return FieldError(first["field"], first["value"], reason, limit=first["limit"])


def _http(error: HTTPException) -> Problem:
    details = {
        404: "There is nothing at this address.",
        405: f"This address does not answer to that method; it does to {(error.headers or {}).get('Allow', 'others')}.",
        400: "The body can't be read: it must be JSON in UTF-8, not nested too deeply.",
    }
    generic = error.detail in {"", http.HTTPStatus(error.status_code).phrase, "There was an error parsing the body"}
    detail = details.get(error.status_code, error.detail) if generic else error.detail
    return Problem(error.status_code, str(detail), headers=error.headers)


def _database(error: Exception) -> Problem:
    _log.warning("database unavailable", error=str(error).splitlines()[0])
    # Only SQLite's own words are shown ("database is locked", "database or disk is full"): PostgreSQL's name hosts and users.
    cause = str(getattr(error, "orig", "") or "")
    words = cause if cause.startswith(("database ", "disk I/O", "attempt to write", "unable to open")) else "it is not reachable"
    return Problem(503, f"The database can't serve this now: {words}. Nothing was stored.", slug="database", headers={"Retry-After": "5"})


def log_unforeseen(error: Exception, *, method: str, path: str) -> None:
    """Write an unforeseen exception with its traceback to the log, for the answer must not hold it.

    As text: a renderer given the exception itself may print local variables, and with them tokens.
    """
    _log.error("unforeseen error", method=method, path=path, exception="".join(traceback.format_exception(error)).rstrip())
