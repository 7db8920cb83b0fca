"""Logins to the pages: a session belongs to a token and ends with it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.people.model import SessionRow, TokenRow


@dataclass(frozen=True)
class Login:
    """A live session: its token, and the CSRF token that its pages must send back."""

    id: str
    token: TokenRow
    csrf: str
    expires_at: datetime


def create(
    session: Session, *, digest: str, token_id: str, csrf: str, expires_at: datetime
) -> None:
    """Store a session by the keyed hash of its cookie, and delete expired sessions."""
    now = utcnow()
    session.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
    session.add(
        SessionRow(id=digest, token_id=token_id, csrf=csrf, created_at=now, expires_at=expires_at)
    )
    session.flush()


def by_hash(session: Session, digest: str) -> Login | None:
    """Return the session with that keyed hash; None if it has expired, or its token has ended."""
    now = utcnow()
    query = (
        select(SessionRow, TokenRow)
        .join(TokenRow, TokenRow.id == SessionRow.token_id)
        .where(SessionRow.id == digest, SessionRow.expires_at > now)
    )
    match = session.execute(query).first()
    if match is None:
        return None
    row, token = match
    return Login(row.id, token, row.csrf, row.expires_at) if token.valid(now) else None


def living(session: Session, digests: Collection[str], now: datetime) -> set[str]:
    """Return those of the sessions that are valid now."""
    unexpired = TokenRow.expires_at.is_(None) | (TokenRow.expires_at > now)
    query = (
        select(SessionRow.id)
        .join(TokenRow, TokenRow.id == SessionRow.token_id)
        .where(SessionRow.id.in_(digests), SessionRow.expires_at > now)
        .where(TokenRow.revoked_at.is_(None), unexpired)
    )
    return set(session.scalars(query))


def remove(session: Session, digest: str) -> None:
    """End a session; do nothing if it doesn't exist."""
    session.execute(delete(SessionRow).where(SessionRow.id == digest))
