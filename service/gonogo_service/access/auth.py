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
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sqlalchemy.exc import SQLAlchemyError

import gonogo_settings as configuration
from gonogo_service.access.principals import SCOPES, Keys, Principal
from gonogo_service.kit.problems import BadField
from gonogo_storage.access import audit, sessions, tokens
from gonogo_storage.db.encoding import utcnow

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from gonogo_service.access.context import Context

PREFIX: Final = "gng_"
SESSION_LIFE: Final = timedelta(hours=12)
MAX_NAME: Final = 100
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


def issue_token(
    session: Session,
    name: str,
    scopes: Iterable[str],
    *,
    builds: Sequence[str] = (),
    branches: Sequence[str] = (),
    actor: str = "command line",
    keys: Keys | None = None,
) -> str:
    """Create a token in the caller's transaction; return its text, which is shown only once.

    `builds` and `branches` are patterns of the builds that it may register with the scope submit.
    `keys` defaults to those of GONOGO_SECRET_KEY. Raises BadField for a bad name or scope, and
    ValueError without a secret key.
    """
    name, granted = name.strip(), tuple(scope for scope in SCOPES if scope in set(scopes))
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not granted:
        raise BadField(
            "scopes",
            unknown or [],
            "unknown scope" if unknown else "at least one is required",
            limit="one of " + ", ".join(SCOPES),
        )
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise BadField("name", name, "must be printable text", limit=f"1 to {MAX_NAME} characters")
    for field, patterns in (("builds", builds), ("branches", branches)):
        if patterns and all(pattern.startswith("!") for pattern in patterns):
            raise BadField(field, list(patterns), "only excludes", limit="a pattern without !")
    if branches and not builds:
        raise BadField("branches", list(branches), "limits no builds", limit="with builds")
    text = make_token()
    prefix = text[: len(PREFIX) + _ID_LENGTH]
    token = tokens.create(
        session,
        name=name,
        prefix=prefix,
        digest=(keys or own_keys()).digest("token", text),
        scopes=granted,
        builds=builds,
        branches=branches,
    )
    audit.record(
        session,
        actor=actor,
        action="token.created",
        subject=token.id,
        detail={
            "name": name,
            "scopes": list(granted),
            "prefix": prefix,
            "builds": list(builds),
            "branches": list(branches),
        },
    )
    return text


def own_keys() -> Keys:
    """Return the keys of this process's GONOGO_SECRET_KEY. Raises ValueError when it isn't set."""
    secret = configuration.load().secret_key
    if secret is None:
        raise ValueError(
            "GONOGO_SECRET_KEY is not set: tokens and sessions are stored as hashes under it"
        )
    return Keys(secret.get_secret_value())


def by_token(context: Context, text: str) -> Principal | None:
    """Return the principal of a token; None if the token is mistyped, unknown or revoked."""
    if not well_formed(text):
        return None
    with context.reading() as session:
        token = tokens.by_hash(session, context.keys.digest("token", text))
    if token is None:
        return None
    _touch(context, token)
    return _principal("token", token)


def by_cookie(context: Context, cookie: str) -> Principal | None:
    """Return the principal of a session cookie; None if the session has ended."""
    with context.reading() as session:
        login = sessions.by_hash(session, context.keys.digest("session", cookie))
    if login is None:
        return None
    _touch(context, login.token)
    return _principal("session", login.token, login.csrf)


def _principal(kind: str, token: tokens.Token, csrf: str = "") -> Principal:
    scopes = frozenset(token.scopes)
    return Principal(kind, token.id, token.name, scopes, csrf, token.builds, token.branches)


def login(context: Context, text: str) -> str | None:
    """Create a session for a token; return the cookie's value, or None for an invalid token."""
    principal = by_token(context, text.strip())
    if principal is None:
        return None
    cookie = secrets.token_urlsafe(32)
    with context.session() as session:
        digest = context.keys.digest("session", cookie)
        sessions.create(
            session,
            digest=digest,
            token_id=principal.id,
            csrf=secrets.token_urlsafe(24),
            expires_at=utcnow() + SESSION_LIFE,
        )
        audit.record(session, actor=principal.actor, action="session.created", subject=principal.id)
    return cookie


def logout(context: Context, principal: Principal, cookie: str) -> None:
    """End the session of a cookie."""
    with context.session() as session:
        sessions.remove(session, context.keys.digest("session", cookie))
        audit.record(session, actor=principal.actor, action="session.ended", subject=principal.id)


def _touch(context: Context, token: tokens.Token) -> None:
    now = utcnow()
    if tokens.is_stale(token, now):
        try:
            with context.session() as session:
                tokens.touch(session, token.id, now)
        except SQLAlchemyError:  # a full disk must not lock out readers
            pass


def _random(length: int) -> str:
    return "".join(secrets.choice(_DIGITS) for _ in range(length))


def _checksum(text: str) -> str:
    number, digits = zlib.crc32(text.encode()), ""
    for _ in range(_CHECK_LENGTH):
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits
