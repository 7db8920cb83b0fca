"""Work that is submitted once, whatever is sent again, and within the quotas of who submits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from gonogo_service.kit import idempotency
from gonogo_service.kit.principals import Principal
from gonogo_service.people import quotas
from gonogo_service.people.context import Context


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
