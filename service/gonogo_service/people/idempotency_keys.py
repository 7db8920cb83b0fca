"""Idempotency-Key: a repeated request is executed once, and gets the same answer again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol

from fastapi import Header, Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from gonogo_service.kit.answers import answer
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField
from gonogo_service.people import idempotency, quotas
from gonogo_service.people.context import Context

MAX_KEY = 255
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY,
        pattern=r"^[\x21-\x7e]+$",
        description="Remembered for 24 h per token, method and path",
    ),
]
Answer = tuple[int, Any, dict[str, str]]
"""Status, body (JSON or a dataclass) and headers of an answer."""


def once(
    context: Context,
    request: Request,
    principal: Principal,
    key: str | None,
    body: Mapping[str, Any] | None,
    make: Callable[[Session], Answer],
    *,
    counted: bool = True,
) -> tuple[Response, bool]:
    """Run `make` and store its key in one transaction.

    Returns the answer, and whether `make` ran now (False: the answer is a stored one). An error
    that `make` raises stores nothing, not even the key. The client can correct the request and send
    it again with the same key.

    counted: `make` adds work, which the quotas of the principal limit. Raises Problem 429 then.
    """
    if key is None:
        with context.session() as session:
            result = _make(context, session, principal, make, counted)
        return _respond(result), True
    scope = _hash([principal.id, request.method, request.url.path, key])
    digest = _hash(body)
    with context.session() as session:
        stored = idempotency.claim(session, scope, digest)
        if stored is None:
            result = _make(context, session, principal, make, counted)
            status, content, headers = result
            idempotency.answer(session, scope, status, {"body": content, "headers": headers})
            return _respond(result), True
    if stored.body != digest:
        raise BadField(
            "Idempotency-Key", key, "was used for another body", limit="one body per key for 24 h"
        )
    return _respond(
        (
            stored.status,
            stored.response["body"],
            {**stored.response["headers"], "Idempotent-Replayed": "true"},
        )
    ), False


class Links(Protocol):
    """The addresses of a noun."""

    @property
    def self(self) -> str:
        """Return the noun's own address."""
        ...


class Created(Protocol):
    """The answer to the creation of a noun."""

    @property
    def links(self) -> Links:
        """Return the noun's addresses."""
        ...


def created(
    context: Context,
    request: Request,
    principal: Principal,
    key: str | None,
    body: BaseModel | None,
    make: Callable[[Session], Created],
    *,
    status: int = 202,
    counted: bool = True,
) -> Response:
    """Create a noun once, as `once` does; answer with it and its address, and wake the workers."""

    def answered(session: Session) -> Answer:
        noun = make(session)
        return status, noun, {"Location": noun.links.self}

    sent = None if body is None else body.model_dump(mode="json")
    response, new = once(context, request, principal, key, sent, answered, counted=counted)
    if new:
        context.notifier.notify()
    return response


def _make(
    context: Context,
    session: Session,
    principal: Principal,
    make: Callable[[Session], Answer],
    counted: bool,
) -> Answer:
    if not counted:
        return make(session)
    with quotas.guard(session, context.settings, principal.name):
        return make(session)


def _respond(result: Answer) -> Response:
    status, body, headers = result
    return answer(body, status, headers)


def _hash(value: Any) -> str:
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
