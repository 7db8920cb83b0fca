"""Authentication: bearer tokens, logins of the pages, scopes, CSRF tokens.

A token is `gng_<id>_<secret><checksum>`. The id is for people ("which token is that in my log?").
The secret has 190 bits. The checksum (CRC-32) rejects a mistyped or foreign string without a
database query. Only a keyed hash of the whole token is stored, under a key derived from
GONOGO_SECRET_KEY: a copy of the database alone gives no access.
"""

from __future__ import annotations

import hmac
import secrets
import string
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy import delete
from sqlalchemy.exc import SQLAlchemyError

from gonogo import settings as configuration
from gonogo.settings import Settings
from gonogo_service.hosts import store as hosts
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.principals import Keys, Principal, unauthorized
from gonogo_service.kit.problems import Problem
from gonogo_service.people import store as tokens
from gonogo_service.people.model import SessionRow, TokenRow

if TYPE_CHECKING:
    from gonogo_service.people.context import Context

PREFIX: Final = "gng_"
SESSION_LIFE: Final = timedelta(hours=12)
EXPIRED: Final = "This token has expired. An admin makes another: gonogo tokens rotate, or create"
_DIGITS: Final = string.digits + string.ascii_letters
_ID_LENGTH, _SECRET_LENGTH, _CHECK_LENGTH = 8, 32, 6


def make_token() -> str:
    """Return a new token's text, from the system's random numbers."""
    body = PREFIX + _random(_ID_LENGTH) + "_" + _random(_SECRET_LENGTH)
    return body + _checksum(body)


def well_formed(text: str) -> bool:
    """Return whether the text has the form of a token and a correct checksum."""
    ok = (
        len(text) == len(PREFIX) + _ID_LENGTH + 1 + _SECRET_LENGTH + _CHECK_LENGTH
        and text.isascii()
        and text.startswith(PREFIX)
    )
    return ok and hmac.compare_digest(_checksum(text[:-_CHECK_LENGTH]), text[-_CHECK_LENGTH:])


def shown_prefix(text: str) -> str:
    """Return the part of a token that people may see and compare."""
    return text[: len(PREFIX) + _ID_LENGTH]


def own_keys() -> Keys:
    """Return the keys of this process's GONOGO_SECRET_KEY. Raises ValueError when it isn't set."""
    return keys_of(configuration.load())


def keys_of(settings: Settings) -> Keys:
    """Return the keys of GONOGO_SECRET_KEY. Raises ValueError when it isn't set."""
    if settings.secret_key is None:
        raise ValueError(
            "GONOGO_SECRET_KEY is not set: tokens and sessions are stored as hashes under it"
        )
    return Keys(settings.secret_key.get_secret_value())


@dataclass(frozen=True)
class Refusal:
    """The reason why a text is no valid token."""

    reason: str
    """mistyped, unknown, revoked, expired or elsewhere"""
    prefix: str = ""
    """The prefix of a token that gave access once, or its host; "" for any other text."""
    detail: str = "This token is not valid: mistyped, unknown or revoked."
    """The sentence for who sent it."""

    @property
    def problem(self) -> Problem:
        """Return the answer to who sent it."""
        if self.reason == "elsewhere":
            return Problem(403, self.detail, slug="address")
        return unauthorized(self.detail)


def elsewhere(problem: hosts.Elsewhere) -> Refusal:
    """Return the refusal of a host that asks from an address that isn't one of its own."""
    return Refusal("elsewhere", f"host:{problem.name}", str(problem))


def by_token(context: Context, text: str) -> Principal | Refusal:
    """Return the principal of a token, or why it has none."""
    if not well_formed(text):
        return Refusal("mistyped")
    with context.reading() as session:
        token = tokens.by_hash(session, context.keys.digest("token", text))
    if token is None:
        return Refusal("unknown")
    if not token.valid(utcnow()):
        if token.revoked_at is not None:
            return Refusal("revoked", token.prefix)
        return Refusal("expired", token.prefix, EXPIRED)
    _touch(context, token)
    return _principal("token", token, token.id)


def by_bearer(context: Context, text: str, client: str) -> Principal | Refusal:
    """Return the principal of a token or of a host's, or why it has none. `client` sent it."""
    if not text.startswith(hosts.TOKEN_PREFIX):
        return by_token(context, text)
    with context.reading() as session:
        host = hosts.by_token(session, context.keys, text)
    if host is None:
        return Refusal("unknown")
    if not hosts.may_ask(host, client):
        return elsewhere(hosts.Elsewhere(host.name, client))
    return Principal("host", host.id, host.name, frozenset(), queues=tuple(host.queues))


def by_cookie(context: Context, cookie: str) -> Principal | None:
    """Return the principal of a session cookie; None if the session has ended."""
    with context.reading() as session:
        login_and_token = tokens.login_by_hash(session, context.keys.digest("session", cookie))
    if login_and_token is None:
        return None
    login, token = login_and_token
    _touch(context, token)
    return _principal("session", token, login.id, login.csrf)


def _principal(kind: str, token: TokenRow, credential: str, csrf: str = "") -> Principal:
    return Principal(
        kind,
        token.id,
        token.name,
        frozenset(token.scopes),
        csrf,
        tuple(token.builds),
        tuple(token.branches),
        tuple(token.repositories),
        tuple(token.suites),
        token.expires_at,
        credential,
    )


def login(context: Context, text: str) -> tuple[str, datetime] | Refusal:
    """Create a session for a token; return the cookie's value and its end, or why there is none.

    A session ends with its token at the latest. Those that have ended are deleted.
    """
    principal = by_token(context, text.strip())
    if isinstance(principal, Refusal):
        return principal
    now, cookie = utcnow(), secrets.token_urlsafe(32)
    ends = min(now + SESSION_LIFE, principal.expires_at or datetime.max.replace(tzinfo=UTC))
    with context.session() as session:
        session.execute(delete(SessionRow).where(SessionRow.expires_at <= now))
        row = SessionRow(
            id=context.keys.digest("session", cookie),
            token_id=principal.id,
            csrf=secrets.token_urlsafe(24),
            created_at=now,
            expires_at=ends,
        )
        session.add(row)
        audit.record(session, actor=principal.actor, action="session.created", subject=principal.id)
    return cookie, ends


def logout(context: Context, principal: Principal, cookie: str) -> None:
    """End the session of a cookie."""
    digest = context.keys.digest("session", cookie)
    with context.session() as session:
        session.execute(delete(SessionRow).where(SessionRow.id == digest))
        audit.record(session, actor=principal.actor, action="session.ended", subject=principal.id)


def _touch(context: Context, token: TokenRow) -> None:
    now = utcnow()
    if token.last_used_at is None or now - token.last_used_at >= tokens.USE_RECORDED_EVERY:
        with suppress(SQLAlchemyError), context.session() as session:
            # suppressed: a full disk must not lock out readers
            tokens.touch(session, token.id, now)


def _random(length: int) -> str:
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def _checksum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
