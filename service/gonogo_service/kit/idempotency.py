"""Idempotency-Key: a repeated request is executed once, and gets the same answer again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Header, Request, Response
from sqlalchemy import Integer, delete
from sqlalchemy.orm import Mapped, Session, mapped_column

from gonogo_service.kit.answers import answer
from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField

MAX_KEY = 255
TIME_TO_LIVE = timedelta(hours=24)
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


class IdempotencyRow(Base):
    """The response to a request with an Idempotency-Key.

    `scope` is a hash of token, method, path and key.
    """

    __tablename__ = "idempotency_keys"
    scope: Mapped[str] = mapped_column(primary_key=True)
    body: Mapped[str]
    status: Mapped[int] = mapped_column(Integer)
    response: Mapped[dict[str, Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


def once(
    context: Any,
    request: Request,
    principal: Principal,
    key: str | None,
    body: Mapping[str, Any] | None,
    make: Callable[[Session], Answer],
) -> Response:
    """Run `make` and store its key in one transaction, or return the stored answer.

    An error that `make` raises stores nothing, not even the key. The client can correct the request
    and send it again with the same key.
    """
    digest = _hash(body)
    with context.session() as session:
        row = None
        if key is not None:
            scope = _hash([principal.id, request.method, request.url.path, key])
            row = _claim(session, scope, digest)
        if row is None or not row.status:
            status, content, headers = make(session)
            if row is not None:
                row.status, row.response = status, {"body": content, "headers": headers}
            return answer(content, status, headers)
        stored, status, response = row.body, row.status, row.response
    if stored != digest:
        limit = "one body per key for 24 h"
        raise BadField("Idempotency-Key", key, "was used for another body", limit=limit)
    headers = {**response["headers"], "Idempotent-Replayed": "true"}
    return answer(response["body"], status, headers)


def _claim(session: Session, scope: str, body: str) -> IdempotencyRow:
    """Return the key's row; its status is 0 if this request has claimed it now.

    A second concurrent request waits here until the first one's transaction ends (PostgreSQL: on
    the unique index; SQLite: on the write lock). Then it gets the first one's response, or the key
    if that failed.
    """
    table, now = IdempotencyRow, utcnow()
    session.execute(delete(table).where(table.expires_at <= now))
    times = {"created_at": now, "expires_at": now + TIME_TO_LIVE}
    fresh = {"scope": scope, "body": body, "status": 0, "response": {}, **times}
    insert_once(session, table, [fresh])
    return session.get_one(table, scope)


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
