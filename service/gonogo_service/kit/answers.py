"""Helpers that all endpoints share: JSON answers, pages of lists, strict reading of requests."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import is_dataclass
from functools import cache
from typing import Annotated, Any, TypeVar, cast, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.datastructures import DefaultPlaceholder
from fastapi.routing import APIRoute
from pydantic import ConfigDict

from gonogo.fields import did_you_mean
from gonogo.urls import API
from gonogo_service.kit import json_bodies, rows
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.principals import Principal, demand
from gonogo_service.kit.problems import BadField, Problem

T = TypeVar("T")
MAX_LIMIT = 500
MAX_CURSOR = 300
MAX_FILTER = 300

Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of items")]
Cursor = Annotated[
    str | None, Query(max_length=MAX_CURSOR, description="`next` of the previous page")
]
Filter = Annotated[str | None, Query(max_length=MAX_FILTER)]


SHAPES = ConfigDict(alias_generator=lambda name: name.removesuffix("_"))
"""How dataclasses look as JSON: `import_`, which can't be a Python name otherwise, is `import`."""

# its items are rows, whose answers have more than their columns
Page.__pydantic_config__ = ConfigDict(  # type: ignore[attr-defined]
    revalidate_instances="always", from_attributes=True
)


class Route(APIRoute):
    """A route whose endpoint returns a dataclass or a mapped row: its fields are the answer."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        returned = get_type_hints(endpoint).get("return")
        shape = get_origin(returned) or returned
        parts = [part for part in get_args(returned) if _is_row(part)]
        if isinstance(options.get("response_model"), DefaultPlaceholder):
            if _is_row(returned):
                options["response_model"] = rows.answer_of(returned)
            elif shape is Page and parts:
                options["response_model"] = Page[rows.answer_of(parts[0])]  # type: ignore[misc]
        if isinstance(shape, type) and is_dataclass(shape) and shape is not Page:
            shape.__pydantic_config__ = SHAPES  # type: ignore[attr-defined]
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> json_bodies.Handler:
        handle = super().get_route_handler()
        field = self.body_field
        return handle if field is None else json_bodies.reading_first(handle, field)


def _is_row(shape: Any) -> bool:
    return isinstance(shape, type) and issubclass(shape, Base)


def make_router(tag: str) -> APIRouter:
    """Return a router below /api/v1 that reads its requests strictly."""
    return APIRouter(prefix=API, tags=[tag], dependencies=[Depends(_strictly)], route_class=Route)


def answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a JSON response."""
    return Response(
        encode(value), status_code=status, media_type="application/json", headers=headers
    )


def require(thing: T | None, noun: str, name: str) -> T:
    """Return a thing. Raises Problem 404 where there is none."""
    if thing is None:
        raise missing(noun, name)
    return thing


def missing(noun: str, name: str, names: Iterable[str] = ()) -> Problem:
    """Return a 404 that names what doesn't exist, and which of `names` was meant."""
    hint = did_you_mean(name, names)
    return Problem(
        404,
        f"There is no {noun} {name[:100]!r}{hint or '.'}",
        slug="not-found",
        errors=[
            {
                "field": noun,
                "value": name[:100],
                "limit": None,
                "message": f"there is no {noun} with this name",
            }
        ],
    )


def principal_of(request: Request) -> Principal | None:
    """Return the principal that the edge identified; None on the public addresses."""
    return cast("Principal | None", request.scope.get("state", {}).get("principal"))


@cache
def caller(scope: str) -> Callable[[Request], Awaitable[Principal]]:
    """Return the dependency that demands a scope of who calls."""

    # async, so that FastAPI calls it on the event loop: a sync dependency goes through the thread
    # pool
    async def who(request: Request) -> Principal:
        return demand(principal_of(request), scope)

    return who


async def _strictly(request: Request) -> None:
    """Reject unknown query parameters: a misspelled filter would return everything."""
    route = request.scope["route"]
    known = _query_names(route.dependant)
    for name in request.query_params:
        if name not in known:
            raise BadField(
                name,
                request.query_params[name],
                "unknown parameter" + did_you_mean(name, known),
                limit="one of " + ", ".join(sorted(known)) if known else "none",
            )


def _query_names(dependant: Any) -> set[str]:
    """Return the query parameters of an endpoint and of everything that it depends on."""
    return {field.alias for field in dependant.query_params}.union(
        *map(_query_names, dependant.dependencies)
    )
