"""RFC 9457 problem documents: every error of the API in one shape that names the field, the value
and the limit.

Problem                      an error made by the service itself, with its status
├── BadField                 422: one field, as gonogo.errors.FieldError is for the domain
└── (others are made by `problem(status, detail)`)
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
"""Names of union members (see submission/bodies.py) that pydantic puts into its paths; they are no
fields."""
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


class Problem(Exception):
    """An error with its HTTP status. `errors` holds one object per wrong field: field, value,
    limit, message.
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
    """422 for one field: a dotted path, the value as given, what would be allowed."""

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
    """The problem as JSON. Field, value and limit of the first error also stand at the top, where a
    shell script finds them.
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
    """ "seeds.count" for pydantic's ("body", "seeds", "range", "count")."""
    parts = list(location)
    if parts and parts[0] in {"body", "query", "path", "header", "cookie"}:
        parts = parts[1:] or parts[:1]
    return ".".join(str(part) for part in parts if part not in _TAGS and part != "[key]") or "body"


def entry(field: str, value: object, reason: str, limit: object) -> dict[str, Any]:
    """One wrong field as it stands in a document's `errors`."""
    return {
        "field": field,
        "value": quote(value),
        "limit": limit,
        "message": sentence(field, reason, limit),
    }


def sentence(field: str, reason: str, limit: object) -> str:
    """What is wrong with a field, and what would be allowed."""
    return f"{field}: {shorten(reason)}" + ("" if limit is None else f" (limit: {limit})")


def models(annotation: object) -> Iterator[type[BaseModel]]:
    """The models in an annotation, those of its union members among them."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def _tagged(annotation: object, tag: object) -> Iterator[type[BaseModel]]:
    """The model of the union's member with that tag."""
    parts = get_args(annotation)
    if any(isinstance(part, Tag) and part.tag == tag for part in parts):
        yield from models(parts[0])
    for part in parts:
        yield from _tagged(part, tag)


def _known(model: type[BaseModel] | None, location: Sequence[object]) -> str | None:
    """The fields that stand beside the one at `location`, a path of pydantic's below the body; None
    where that isn't known.
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


def invalid(found: Iterable[Mapping[str, Any]], body: type[BaseModel] | None = None) -> Problem:
    """422 for what pydantic found, an object per error in its form; `body`: the model of the body,
    whose fields are then named.
    """
    errors = []
    for item in found:
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
    """The first error of a model that the service itself read, as the domain says it: its field,
    its value, its limit.
    """
    problem = invalid([dict(each) for each in error.errors()])
    first = problem.errors[0]
    reason = (
        first["message"]
        .removeprefix(f"{first['field']}: ")
        .removesuffix(f" (limit: {first['limit']})")
    )
    return FieldError(first["field"], first["value"], reason, limit=first["limit"])
