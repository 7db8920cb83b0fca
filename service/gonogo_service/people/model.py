"""Tokens, sessions, audit entries, failed logins and idempotency keys."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import BigInteger, ForeignKey, Integer
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import IdType


class TokenRow(Base):
    """A bearer token; only a keyed hash of it is stored."""

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]
    prefix: Mapped[str]
    hash: Mapped[str] = mapped_column(unique=True)
    scopes: Mapped[list[Any]]
    builds: Mapped[list[Any]]
    branches: Mapped[list[Any]]
    repositories: Mapped[list[Any]]
    suites: Mapped[list[Any]]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SessionRow(Base):
    """A login to the pages; `id` is the hash of the cookie."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(primary_key=True)
    token_id: Mapped[str] = mapped_column(IdType, ForeignKey("tokens.id"), index=True)
    csrf: Mapped[str]
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime] = mapped_column(index=True)


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


class AccessFailureRow(Base):
    """Refused tokens and failed logins of an hour, from one address and for one token."""

    __tablename__ = "access_failures"
    hour: Mapped[datetime] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    client: Mapped[str] = mapped_column(primary_key=True)
    prefix: Mapped[str] = mapped_column(primary_key=True)
    count: Mapped[int] = mapped_column(BigInteger)
    minute: Mapped[datetime]
    minute_count: Mapped[int] = mapped_column(BigInteger)
