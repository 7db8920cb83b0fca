"""What all endpoints share: answers through the one JSON encoder, pages of lists, and the strict
reading of requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel

from gonogo.urls import API
from gonogo_service.kit.problems import BadField, Problem
from gonogo_storage.db.encoding import encode
from gonogo_storage.db.paging import Page

T = TypeVar("T")
MAX_LIMIT = 500
MAX_CURSOR = 300
MAX_FILTER = 300

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="how many items at most")]
Cursor = Annotated[
    str | None, Query(max_length=MAX_CURSOR, description="`next` of the page before")
]
Filter = Annotated[str | None, Query(max_length=MAX_FILTER)]


class Links(BaseModel):
    """Paths of what belongs to a job."""

    self: str
    results: str
    artifacts: str
    events: str
    diagnosis: str
    page: str


def make_router(tag: str) -> APIRouter:
    """A router below /api/v1 whose requests are read strictly."""
    return APIRouter(prefix=API, tags=[tag], dependencies=[Depends(_strictly)])


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response."""
    return Response(
        encode(value), status_code=status, media_type="application/json", headers=headers
    )


def answer_page(page: Page[T], form: Callable[[T], Any] = lambda item: item) -> Response:
    """A page of a list."""
    return answer({"items": [form(item) for item in page.items], "next": page.next})


def missing(noun: str, name: str) -> Problem:
    """404 that says what was looked for."""
    return Problem(
        404,
        f"There is no {noun} {name[:100]!r}.",
        slug="not-found",
        errors=[_looked_for(noun, name)],
    )


def _looked_for(noun: str, name: str) -> dict[str, Any]:
    return {
        "field": noun,
        "value": name[:100],
        "limit": None,
        "message": f"there is no {noun} of this name",
    }


async def _strictly(request: Request) -> None:
    """Refuse query parameters that the address does not have, and JSON that databases and other
    languages can't hold.

    A misspelt filter would otherwise answer with everything. Python's parser takes NaN, Infinity
    and 1e999, which JSON hasn't; lone surrogates and NUL can't be stored as text.
    """
    route = request.scope["route"]
    known = {field.alias for field in route.dependant.query_params} | {
        field.alias for sub in route.dependant.dependencies for field in sub.query_params
    }
    for name in request.query_params:
        if name not in known:
            raise BadField(
                name,
                request.query_params[name],
                "unknown parameter",
                limit="one of " + ", ".join(sorted(known)) if known else "none",
            )
    if route.body_field is not None and hasattr(request, "_json"):
        _check(await request.json(), "")


def _check(value: Any, path: str) -> None:
    match value:
        case float() if not math.isfinite(value):
            raise BadField(path or "body", value, "is not a number of JSON", limit="finite")
        case str():
            _check_text(value, path)
        case dict():
            for name, member in value.items():
                _check_text(name, path)
                _check(member, f"{path}.{name}" if path else name)
        case list():
            for number, member in enumerate(value):
                if not isinstance(member, int):  # spares the call for long lists of seeds
                    _check(member, f"{path}.{number}" if path else str(number))


def _check_text(text: str, path: str) -> None:
    if "\0" in text or (
        not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)
    ):
        raise BadField(
            path or "body", text, "holds a character that is no text: NUL or half a surrogate pair"
        )
