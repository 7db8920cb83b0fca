"""RFC 9457 problem documents: the one shape of the API's errors.

Each names the field, the value, and what is allowed.

Problem                      an error of the service, with its HTTP status
└── BadField                 422 for one field, like gonogo.errors.FieldError in the domain
"""

from __future__ import annotations

import http
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, get_args

from pydantic import BaseModel

from gonogo.errors import FieldError, brief, quote, shorten
from gonogo.spec.validation import MAX_ERRORS, field_errors

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:gonogo:problem:"
_PLACES = ("body", "query", "path", "header", "cookie")
"""The parts of a request, with which FastAPI begins the paths of its errors."""


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


@dataclass(frozen=True)
class WrongField:
    """A wrong field, as in a problem document."""

    field: str
    """Dotted path of the field, such as `test.shape`"""
    value: Any
    """The given value, shortened"""
    limit: Any
    """The allowed values; null when the message says it all"""
    message: str


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


def entry(field: str, value: object, reason: str, limit: object) -> dict[str, Any]:
    """Return the object in a document's `errors` for one wrong field."""
    return asdict(wrong_field(field, value, reason, limit))


def wrong_field(field: str, value: object, reason: str, limit: object) -> WrongField:
    """Return one wrong field as problem documents show it."""
    return WrongField(field, quote(value), limit, sentence(field, reason, limit))


def sentence(field: str, reason: str, limit: object) -> str:
    """Return a sentence that says what is wrong with a field, and what is allowed."""
    return f"{field}: {shorten(reason)}" + ("" if limit is None else f" (allowed: {brief(limit)})")


def models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models in an annotation, including those of its union members."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from models(part)


def invalid(
    validation_errors: Iterable[Mapping[str, Any]], body: type[BaseModel] | None = None
) -> Problem:
    """Return a 422 for pydantic's errors in a request.

    `body` is the model of the request's body, whose schema says what its fields allow.
    """
    in_body: list[Mapping[str, Any]] = []
    elsewhere: list[Mapping[str, Any]] = []
    for item in islice(validation_errors, MAX_ERRORS):
        kind, location = str(item["type"]), tuple(item["loc"])
        if kind == "json_invalid":
            reason = (
                f"is not JSON ({item.get('ctx', {}).get('error', '')}; character {location[-1]})"
            )
            return BadField("body", None, reason)
        if location == ("body",) and isinstance(item.get("input"), bytes):
            return Problem(
                415,
                "The body must be JSON, sent with Content-Type: application/json.",
                slug="not-json",
            )
        inner = {**item, "loc": location[1:] if location[0] in _PLACES else location}
        (in_body if location[0] == "body" else elsewhere).append(inner)
    return several((*field_errors(elsewhere), *field_errors(in_body, body)))


def several(errors: Iterable[FieldError]) -> Problem:
    """Return a 422 for wrong fields: all in `errors`, the first few in its sentence."""
    entries = [
        entry(error.field or "body", error.value, error.reason, error.limit)
        for error in islice(errors, MAX_ERRORS)
    ]
    return Problem(
        422,
        "; ".join(error["message"] for error in entries[:5]),
        slug="invalid-field",
        errors=entries,
    )
