"""Tokens, the logins to the pages, and failed attempts."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from gonogo_service.kit.database.base import Base
from gonogo_service.kit.database.columns import SECRET, IdType


class TokenRow(Base):
    """A bearer token; only a keyed hash of it is stored.

    `prefix` is the part that people may see and compare.
    """

    __tablename__ = "tokens"
    id: Mapped[str] = mapped_column(IdType, primary_key=True)
    name: Mapped[str]
    prefix: Mapped[str]
    hash: Mapped[str] = mapped_column(unique=True, info=SECRET)
    scopes: Mapped[list[str]]
    builds: Mapped[list[str]] = mapped_column(
        doc="Patterns of the names of builds that it may register with the scope submit"
    )
    branches: Mapped[list[str]] = mapped_column(doc="Patterns of their branches; empty: any")
    repositories: Mapped[list[str]] = mapped_column(
        doc="Patterns of the repositories whose commits it is limited to; empty: no limit"
    )
    suites: Mapped[list[str]] = mapped_column(
        doc="Patterns of the names of suites that it is limited to; empty: no limit"
    )
    created_at: Mapped[datetime]
    expires_at: Mapped[datetime | None] = mapped_column(doc="It ends then; null: never")
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]

    def valid(self, now: datetime) -> bool:
        """Return whether it gives access at that time."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class SessionRow(Base):
    """A login to the pages; `id` is the hash of the cookie."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(primary_key=True, info=SECRET)
    token_id: Mapped[str] = mapped_column(IdType, ForeignKey("tokens.id"), index=True)
    csrf: Mapped[str] = mapped_column(info=SECRET)
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
