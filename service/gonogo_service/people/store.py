"""Bearer tokens, and logins to the pages, stored only as keyed hashes.

A login belongs to a token and ends with it.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.people.model import SessionRow, TokenRow

USE_RECORDED_EVERY = timedelta(minutes=5)
"""`last_used_at` is only this precise, so that a busy client doesn't cost a write per request."""


def by_hash(session: Session, digest: str) -> TokenRow | None:
    """Return the token with that keyed hash, also one that has ended; None: there is none."""
    return session.scalar(select(TokenRow).where(TokenRow.hash == digest))


def login_by_hash(session: Session, digest: str) -> tuple[SessionRow, TokenRow] | None:
    """Return the login with that keyed hash and its token; None if one of the two has ended."""
    now = utcnow()
    query = (
        select(SessionRow, TokenRow)
        .join(TokenRow, TokenRow.id == SessionRow.token_id)
        .where(SessionRow.id == digest, SessionRow.expires_at > now)
    )
    match = session.execute(query).first()
    return (match[0], match[1]) if match is not None and match[1].valid(now) else None


def living(
    session: Session, tokens: Collection[str], logins: Collection[str], now: datetime
) -> set[str]:
    """Return those of the tokens and of the logins that are valid now."""
    unexpired = TokenRow.expires_at.is_(None) | (TokenRow.expires_at > now)
    valid = TokenRow.revoked_at.is_(None) & unexpired
    of_tokens = select(TokenRow.id).where(TokenRow.id.in_(tokens), valid)
    of_logins = (
        select(SessionRow.id)
        .join(TokenRow, TokenRow.id == SessionRow.token_id)
        .where(SessionRow.id.in_(logins), SessionRow.expires_at > now, valid)
    )
    return {*session.scalars(of_tokens), *session.scalars(of_logins)}


def name_of(session: Session, actor: str) -> str:
    """Return the token's name for the actor of an audited change; another actor's as it is."""
    token_id = actor.removeprefix("token:")
    token = session.get(TokenRow, token_id) if token_id != actor and is_id(token_id) else None
    return actor if token is None else token.name


def named(session: Session, name: str) -> list[TokenRow]:
    """Return the tokens with this name, revoked ones as well, newest first."""
    query = select(TokenRow).where(TokenRow.name == name).order_by(TokenRow.id.desc())
    return list(session.scalars(query))


def revoke(session: Session, token: TokenRow) -> None:
    """Revoke a token and end its sessions. Revoking it twice keeps the first time."""
    token.revoked_at = token.revoked_at or utcnow()
    session.execute(delete(SessionRow).where(SessionRow.token_id == token.id))


def touch(session: Session, token_id: str, now: datetime) -> None:
    """Record that the token was used about now.

    The condition keeps several processes from all writing it at once.
    """
    stale = (TokenRow.last_used_at.is_(None)) | (TokenRow.last_used_at <= now - USE_RECORDED_EVERY)
    session.execute(update(TokenRow).where(TokenRow.id == token_id, stale).values(last_used_at=now))
