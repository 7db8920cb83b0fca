"""Idempotency-Key: the same request twice is done once and answered twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from fastapi import Header, Request, Response
from sqlalchemy.orm import Session

from gonogo_service.access.context import Context
from gonogo_service.access.principals import Principal
from gonogo_service.kit.answers import answer
from gonogo_service.kit.problems import BadField
from gonogo_storage.access import idempotency

MAX_KEY = 255
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=MAX_KEY,
        pattern=r"^[\x21-\x7e]+$",
        description="kept for 24 h per token, method and path",
    ),
]
Made = tuple[int, dict[str, Any], dict[str, str]]
"""Status, body and headers of an answer."""


def once(
    context: Context,
    request: Request,
    principal: Principal,
    key: str | None,
    body: Mapping[str, Any] | None,
    make: Callable[[Session], Made],
) -> tuple[Response, bool]:
    """Do `make` in one transaction with its key. The answer, and whether it was done just now
    (False: repeated from before).

    An error that `make` raises leaves nothing, not even the key, so the request can be mended and
    sent again under it.
    """
    if key is None:
        with context.session() as session:
            made = make(session)
        return _respond(made), True
    scope = _hash([principal.id, request.method, request.url.path, key])
    digest = _hash(body)
    with context.session() as session:
        kept = idempotency.claim(session, scope, digest)
        if kept is None:
            made = make(session)
            idempotency.answer(session, scope, made[0], {"body": made[1], "headers": made[2]})
            return _respond(made), True
    if kept.body != digest:
        raise BadField(
            "Idempotency-Key", key, "was used for another body", limit="one body per key for 24 h"
        )
    return _respond(
        (
            kept.status,
            kept.response["body"],
            {**kept.response["headers"], "Idempotent-Replayed": "true"},
        )
    ), False


def _respond(made: Made) -> Response:
    status, body, headers = made
    return answer(body, status, headers)


def _hash(value: Any) -> str:
    return hashlib.sha256(
        json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()
