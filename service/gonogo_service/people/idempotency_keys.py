"""Work that is submitted once, whatever is sent again, and within the quotas of who submits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from gonogo_service.kit import idempotency
from gonogo_service.kit.listing import R
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.people import quotas
from gonogo_service.people.context import Context

Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])
Makes = Callable[[Act, Any], R]
"""Makes the row of a body, in the transaction of an act."""


def submits(resource: Resource[R], accepted: Callable[[R], Any]) -> Callable[[Makes[R]], Makes[R]]:
    """Return a decorator like `resource.on_create`, of work within the quotas of who submits it.

    accepted: returns the answer about a row, whose address is `links.self`.
    """

    def add(function: Makes[R]) -> Makes[R]:
        @wraps(function)
        def within(act: Act, body: Any) -> R:
            with quotas.guard(act.session, act.context.settings, act.who.name):
                return function(act, body)

        resource.on_create(within, accepted)
        return function

    return add


def once_at(
    router: APIRouter, path: str, answer: type[Any], summary: str, status: int = 202, **more: Any
) -> Callable[[Endpoint], Endpoint]:
    """Return the decorator of an endpoint whose response `created` makes."""
    responses: dict[int | str, dict[str, Any]] = {status: {"model": answer}}
    options = {"status_code": status, "response_class": Response, "summary": summary, **more}
    return router.post(path, responses=responses, **options)


def created(
    context: Context,
    request: Request,
    principal: Principal,
    key: str | None,
    body: BaseModel | Mapping[str, Any] | None,
    make: Callable[[Session], Any],
    *,
    status: int = 202,
) -> Response:
    """Create work once, within the quotas of the principal.

    Answers with what `make` returns, whose `links.self` is its address. Raises Problem 429 beyond a
    quota.
    """

    def answered(session: Session) -> idempotency.Answer:
        with quotas.guard(session, context.settings, principal.name):
            noun = make(session)
        return status, noun, {"Location": noun.links.self}

    sent = body.model_dump(mode="json") if isinstance(body, BaseModel) else body
    return idempotency.once(context, request, principal, key, sent, answered)
