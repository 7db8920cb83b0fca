"""RFC 9457 problem documents: the one shape of the API's errors.

Each names the field, the value, and what is allowed.

Problem                      an error of the service, with its HTTP status
└── BadField                 422 for one field, like gonogo.errors.FieldError in the domain
"""

from __future__ import annotations

import http
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, Tag, ValidationError

from gonogo.errors import FieldError, quote, shorten

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:gonogo:problem:"
_TAGS = frozenset({"range", "sequential", "list", "isolated", "prepared", "stored", "inline"})
"""Tags of union members (see submission/bodies.py).

Pydantic puts them into its paths, but they aren't fields.
"""
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
    "string_pattern_mismatch": "doesn't match the pattern",
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
"""Messages by pydantic's error type; other types keep pydantic's message."""


class Problem(Exception):
    """An error with its HTTP status.

    `errors` holds one object per wrong field: field, value, limit, message.
    """

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
    """422 for one field: its dotted path, the given value, and what is allowed."""

    def __init__(
        self, field: str, value: object, reason: str, *, limit: object = None, status: int = 422
    ) -> None:
        super().__init__(
            status,
            sentence(field, reason, limit),
            slug="invalid-field",
            errors=[entry(field, value, reason, limit)],
        )


def document(problem: Problem) -> dict[str, Any]:
    """Return the problem as JSON.

    The top level repeats field, value and limit of the first error, where shell scripts find them.
    """
    title = http.HTTPStatus(problem.status).phrase
    slug = problem.slug or title.lower().replace(" ", "-")
    body: dict[str, Any] = {
        "type": TYPE_PREFIX + slug,
        "title": title,
        "status": problem.status,
        "detail": problem.detail,
    }
    if problem.errors:
        body |= {name: problem.errors[0][name] for name in ("field", "value", "limit")}
        body["errors"] = problem.errors
    return body


def dotted(location: Sequence[object]) -> str:
    """Return the dotted path: ("body", "seeds", "range", "count") gives "seeds.count"."""
    parts = list(location)
    if parts and parts[0] in {"body", "query", "path", "header", "cookie"}:
        parts = parts[1:] or parts[:1]
    return ".".join(str(part) for part in parts if part not in _TAGS and part != "[key]") or "body"


def entry(field: str, value: object, reason: str, limit: object) -> dict[str, Any]:
    """Return the object in a document's `errors` for one wrong field."""
    return {
        "field": field,
        "value": quote(value),
        "limit": limit,
        "message": sentence(field, reason, limit),
    }


def sentence(field: str, reason: str, limit: object) -> str:
    """Return a sentence that says what is wrong with a field, and what is allowed."""
    return f"{field}: {shorten(reason)}" + _allowed(limit)


def _allowed(limit: object) -> str:
    return "" if limit is None else f" (allowed: {limit})"


def models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, including those of its union members."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def _tagged(annotation: object, tag: object) -> Iterator[type[BaseModel]]:
    """Yield the models of the union member with that tag."""
    parts = get_args(annotation)
    if any(isinstance(part, Tag) and part.tag == tag for part in parts):
        yield from models(parts[0])
    for part in parts:
        yield from _tagged(part, tag)


def _known(model: type[BaseModel] | None, location: Sequence[object]) -> str | None:
    """Return the names of the fields beside the one at `location`; None when unknown.

    `location` is pydantic's path below the body.
    """
    annotation: object = None
    for part in location[:-1]:
        if part in _TAGS:
            model = next(_tagged(annotation, part), model)
        elif model is not None and not isinstance(part, int):
            field = model.model_fields.get(str(part))
            annotation = None if field is None else field.annotation
            model = next(models(annotation), None)
    return None if model is None else "one of " + ", ".join(model.model_fields)


def invalid(
    validation_errors: Iterable[Mapping[str, Any]], body: type[BaseModel] | None = None
) -> Problem:
    """Return a 422 for pydantic's errors.

    `body` is the model of the request's body; for an unknown field its fields are listed.
    """
    errors = []
    for item in validation_errors:
        kind, location = str(item["type"]), item["loc"]
        if kind == "json_invalid":
            reason = (
                f"is not JSON ({item.get('ctx', {}).get('error', '')}; character {location[-1]})"
            )
            errors.append(entry("body", None, reason, None))
            continue
        if tuple(location) == ("body",) and isinstance(item.get("input"), bytes):
            return Problem(
                415,
                "The body must be JSON, sent with Content-Type: application/json.",
                slug="not-json",
            )
        context = item.get("ctx") or {}
        if isinstance(cause := context.get("error"), FieldError):
            errors.append(entry(cause.field, cause.value, cause.reason, cause.limit))
            continue
        limit = next(
            (
                words.format(context[name])
                for name, words in _LIMIT_WORDS.items()
                if name in context
            ),
            None,
        )
        if kind == "extra_forbidden" and location[:1] == ("body",):
            limit = _known(body, location[1:])
        reason = _MESSAGES.get(kind) or str(item["msg"]).removeprefix("Value error, ")
        errors.append(
            entry(dotted(location), None if kind == "missing" else item.get("input"), reason, limit)
        )
    return Problem(
        422,
        "; ".join(error["message"] for error in errors[:5]),
        slug="invalid-field",
        errors=errors[:20],
    )


def as_field_error(error: ValidationError) -> FieldError:
    """Return the first error of a model as the domain's FieldError."""
    problem = invalid([dict(details) for details in error.errors()])
    first = problem.errors[0]
    reason = (
        first["message"].removeprefix(f"{first['field']}: ").removesuffix(_allowed(first["limit"]))
    )
    return FieldError(first["field"], first["value"], reason, limit=first["limit"])
