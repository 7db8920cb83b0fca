"""Bearer tokens, stored only as keyed hashes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.people.model import SessionRow, TokenRow

USE_RECORDED_EVERY = timedelta(minutes=5)
"""`last_used_at` is only this precise, so that a busy client doesn't cost a write per request."""


@dataclass(frozen=True)
class Token:
    """A token without its text. `prefix` is the part that people may see and compare."""

    id: str
    name: str
    prefix: str
    scopes: tuple[str, ...]
    builds: tuple[str, ...]
    """Patterns of the names of builds that it may register with the scope submit"""
    branches: tuple[str, ...]
    """Patterns of their branches; empty: any"""
    repositories: tuple[str, ...]
    """Patterns of the repositories whose commits it is limited to; empty: no limit"""
    suites: tuple[str, ...]
    """Patterns of the names of suites that it is limited to; empty: no limit"""
    created_at: datetime
    expires_at: datetime | None
    """It ends then; null: never"""
    last_used_at: datetime | None
    revoked_at: datetime | None

    def valid(self, now: datetime) -> bool:
        """Return whether it gives access at that time."""
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


def create(
    session: Session,
    *,
    name: str,
    prefix: str,
    digest: str,
    scopes: tuple[str, ...],
    expires_at: datetime | None,
    builds: Sequence[str] = (),
    branches: Sequence[str] = (),
    repositories: Sequence[str] = (),
    suites: Sequence[str] = (),
) -> Token:
    """Store a new token by the keyed hash of its text."""
    row = TokenRow(
        id=new_id(),
        name=name,
        prefix=prefix,
        hash=digest,
        scopes=list(scopes),
        builds=list(builds),
        branches=list(branches),
        repositories=list(repositories),
        suites=list(suites),
        created_at=utcnow(),
        expires_at=expires_at,
        last_used_at=None,
        revoked_at=None,
    )
    session.add(row)
    return of_row(row)


def by_hash(session: Session, digest: str) -> Token | None:
    """Return the token with that keyed hash, also one that has ended; None: there is none."""
    row = session.scalar(select(TokenRow).where(TokenRow.hash == digest))
    return None if row is None else of_row(row)


def shorten(session: Session, token_id: str, expires_at: datetime) -> Token | None:
    """Let a token end at that time unless it ends before; None if it doesn't exist or has ended."""
    row = session.get(TokenRow, token_id, with_for_update=True) if is_id(token_id) else None
    if row is None or not of_row(row).valid(utcnow()):
        return None
    row.expires_at = min(expires_at, row.expires_at or expires_at)
    return of_row(row)


def living(session: Session, ids: Collection[str], now: datetime) -> set[str]:
    """Return those of the tokens that are valid now."""
    unexpired = TokenRow.expires_at.is_(None) | (TokenRow.expires_at > now)
    query = select(TokenRow.id).where(TokenRow.id.in_(ids), TokenRow.revoked_at.is_(None))
    return set(session.scalars(query.where(unexpired)))


def get(session: Session, token_id: str) -> Token | None:
    """Return a token, revoked or not; None if it doesn't exist."""
    row = session.get(TokenRow, token_id) if is_id(token_id) else None
    return None if row is None else of_row(row)


def name_of(session: Session, actor: str) -> str:
    """Return the token's name for the actor of an audited change; another actor's as it is."""
    token = get(session, actor.removeprefix("token:")) if actor.startswith("token:") else None
    return actor if token is None else token.name


def named(session: Session, name: str) -> list[Token]:
    """Return the tokens with this name, revoked ones as well, newest first."""
    query = select(TokenRow).where(TokenRow.name == name).order_by(TokenRow.id.desc())
    return [of_row(row) for row in session.scalars(query)]


def list_(session: Session, *, limit: int = 50, cursor: str | None = None) -> Page[Token]:
    """Return tokens, newest first, including revoked ones. Raises BadCursor."""
    return newest_first(session, select(TokenRow), TokenRow.id, of_row, limit=limit, cursor=cursor)


def revoke(session: Session, token_id: str) -> Token | None:
    """Revoke a token and end its sessions; None if it doesn't exist.

    Revoking it twice keeps the first time.
    """
    row = session.get(TokenRow, token_id) if is_id(token_id) else None
    if row is None:
        return None
    if row.revoked_at is None:
        row.revoked_at = utcnow()
    for login in session.scalars(select(SessionRow).where(SessionRow.token_id == token_id)):
        session.delete(login)
    return of_row(row)


def is_stale(token: Token, now: datetime) -> bool:
    """Return whether `last_used_at` is due to be written again."""
    return token.last_used_at is None or now - token.last_used_at >= USE_RECORDED_EVERY


def touch(session: Session, token_id: str, now: datetime) -> None:
    """Record that the token was used about now.

    The condition keeps several processes from all writing it at once.
    """
    stale = (TokenRow.last_used_at.is_(None)) | (TokenRow.last_used_at <= now - USE_RECORDED_EVERY)
    session.execute(update(TokenRow).where(TokenRow.id == token_id, stale).values(last_used_at=now))


def of_row(row: TokenRow) -> Token:
    """Return the value of a row (for modules of storage)."""
    names = ("scopes", "builds", "branches", "repositories", "suites")
    lists = {name: tuple(getattr(row, name)) for name in names}
    return from_object(Token, row, **lists)
