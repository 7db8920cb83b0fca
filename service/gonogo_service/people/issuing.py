"""Makes tokens: with scopes, an end, and limits to builds, repositories and suites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from gonogo import settings as configuration
from gonogo.settings import Settings
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.principals import SCOPES, Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.people import store as tokens
from gonogo_service.people.auth import make_token, own_keys, shown_prefix

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_NAME: Final = 100
MAX_DAYS: Final = 36_500
DEFAULT: Final = -1
"""In the place of a number of days: the default of the settings."""
OVERLAP_HOURS: Final = 24
"""A rotated token stays valid this long by default: time to give the new one to its users."""
MAX_OVERLAP_HOURS: Final = 24 * 30


@dataclass(frozen=True)
class Grant:
    """The rights of a token. Empty patterns: no builds to register, and no other limits."""

    scopes: tuple[str, ...]
    builds: Sequence[str] = ()
    branches: Sequence[str] = ()
    repositories: Sequence[str] = ()
    suites: Sequence[str] = ()


def issue_token(
    session: Session,
    name: str,
    scopes: Iterable[str],
    *,
    builds: Sequence[str] = (),
    branches: Sequence[str] = (),
    repositories: Sequence[str] = (),
    suites: Sequence[str] = (),
    days: int | None = DEFAULT,
    actor: str = "command line",
    keys: Keys | None = None,
    settings: Settings | None = None,
) -> str:
    """Create a token in the caller's transaction; return its text, which is shown only once.

    `builds` and `branches` are patterns of the builds that it may register with the scope submit.
    `repositories` and `suites` limit it to what belongs to them. `days`: its life; None: it never
    ends. `keys` defaults to those of GONOGO_SECRET_KEY. Raises BadField for a bad value, and
    ValueError without a secret key.
    """
    grant = Grant(tuple(scopes), builds, branches, repositories, suites)
    name, grant = _checked(name, grant)
    expires_at = _end(days, settings or configuration.load(), utcnow())
    text, token = _create(session, name, grant, expires_at, keys)
    audit.record(
        session,
        actor=actor,
        action="token.created",
        subject=token.id,
        detail={
            "name": name,
            "scopes": list(grant.scopes),
            "prefix": token.prefix,
            "builds": list(builds),
            "branches": list(branches),
            "repositories": list(repositories),
            "suites": list(suites),
            "expires_at": timestamp(expires_at),
        },
    )
    return text


def rotate_token(
    session: Session,
    token_id: str,
    *,
    overlap_hours: float = OVERLAP_HOURS,
    days: int | None = DEFAULT,
    actor: str = "command line",
    keys: Keys | None = None,
    settings: Settings | None = None,
) -> str | None:
    """Create a token with the rights of another, which stays valid for the overlap only.

    Returns the new text; None if there is no such token. Raises BadField where it has ended.
    """
    if not 0 <= overlap_hours <= MAX_OVERLAP_HOURS:
        limit = f"0 to {MAX_OVERLAP_HOURS}"
        raise BadField("overlap_hours", overlap_hours, "is out of range", limit=limit)
    if tokens.get(session, token_id) is None:
        return None
    now = utcnow()
    before = tokens.shorten(session, token_id, now + timedelta(hours=overlap_hours))
    if before is None:
        raise BadField("token", token_id, "has ended", limit="a valid token; create a new one")
    grant = Grant(before.scopes, before.builds, before.branches, before.repositories, before.suites)
    expires_at = _end(days, settings or configuration.load(), now)
    text, token = _create(session, before.name, grant, expires_at, keys)
    audit.record(
        session,
        actor=actor,
        action="token.rotated",
        subject=token.id,
        detail={
            "name": token.name,
            "prefix": token.prefix,
            "expires_at": timestamp(expires_at),
            "replaces": before.id,
            "replaced_ends_at": timestamp(before.expires_at),
        },
    )
    return text


def _create(
    session: Session, name: str, grant: Grant, expires_at: datetime | None, keys: Keys | None
) -> tuple[str, tokens.Token]:
    text = make_token()
    token = tokens.create(
        session,
        name=name,
        prefix=shown_prefix(text),
        digest=(keys or own_keys()).digest("token", text),
        scopes=grant.scopes,
        expires_at=expires_at,
        builds=grant.builds,
        branches=grant.branches,
        repositories=grant.repositories,
        suites=grant.suites,
    )
    return text, token


def _checked(name: str, grant: Grant) -> tuple[str, Grant]:
    """Return the name and the grant in their stored form. Raises BadField."""
    name, scopes = name.strip(), tuple(scope for scope in SCOPES if scope in grant.scopes)
    unknown = [scope for scope in grant.scopes if scope not in SCOPES]
    if unknown or not scopes:
        raise BadField(
            "scopes",
            unknown or [],
            "unknown scope" if unknown else "at least one is required",
            limit="one of " + ", ".join(SCOPES),
        )
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise BadField("name", name, "must be printable text", limit=f"1 to {MAX_NAME} characters")
    for field in ("builds", "branches", "repositories", "suites"):
        patterns = getattr(grant, field)
        if patterns and all(pattern.startswith("!") for pattern in patterns):
            raise BadField(field, list(patterns), "only excludes", limit="a pattern without !")
    if grant.branches and not grant.builds:
        raise BadField("branches", list(grant.branches), "limits no builds", limit="with builds")
    if "admin" in scopes and (grant.repositories or grant.suites):
        field = "repositories" if grant.repositories else "suites"
        limit = "the scopes read and submit"
        raise BadField(field, list(getattr(grant, field)), "can't limit an admin", limit=limit)
    return name, Grant(scopes, grant.builds, grant.branches, grant.repositories, grant.suites)


def _end(days: int | None, settings: Settings, now: datetime) -> datetime | None:
    """Return when a token of that life ends. Raises BadField beyond the bound of the settings."""
    most = settings.max_token_days
    if days == DEFAULT:
        days = min(settings.token_days, most or settings.token_days)
    if most is not None and (days is None or days > most):
        raise BadField("days", days, "is too long", limit=f"1 to {most} (GONOGO_MAX_TOKEN_DAYS)")
    if days is None:
        return None
    if not 1 <= days <= MAX_DAYS:
        raise BadField("days", days, "is out of range", limit=f"1 to {MAX_DAYS}, or null: no end")
    return now + timedelta(days=days)
