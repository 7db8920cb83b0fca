"""Makes tokens: with scopes, an end, and limits to builds, repositories and suites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from gonogo import settings as configuration
from gonogo.settings import Settings
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.principals import SCOPES, Keys
from gonogo_service.kit.problems import BadField
from gonogo_service.people.auth import make_token, own_keys, shown_prefix
from gonogo_service.people.model import TokenRow
from gonogo_service.people.noun import MAX_NAME, OVERLAP_HOURS

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

MAX_DAYS: Final = 36_500
DEFAULT: Final = -1
"""In the place of a number of days: the default of the settings."""
MAX_OVERLAP_HOURS: Final = 24 * 30
LIMITS: Final = ("builds", "branches", "repositories", "suites")


def issue_token(
    session: Session,
    name: str,
    scopes: Iterable[str],
    *,
    days: int | None = DEFAULT,
    actor: str = "command line",
    keys: Keys | None = None,
    settings: Settings | None = None,
    **limits: Sequence[str],
) -> str:
    """Create a token in the caller's transaction; return its text, which is shown only once.

    `limits` are patterns: `builds` and `branches` of the builds that it may register with the scope
    submit, `repositories` and `suites` of what it is limited to. `days`: its life; None: it never
    ends. `keys` defaults to those of GONOGO_SECRET_KEY. Raises BadField for a bad value, and
    ValueError without a secret key.
    """
    rights = _checked(
        name.strip(), list(scopes), {field: limits.get(field, ()) for field in LIMITS}
    )
    expires_at = _end(days, settings or configuration.load(), utcnow())
    text, token = _create(session, rights, expires_at, keys)
    detail = {**rights, "prefix": token.prefix, "expires_at": timestamp(expires_at)}
    audit.record(session, actor=actor, action="token.created", subject=token.id, detail=detail)
    return text


def rotate_token(
    session: Session,
    before: TokenRow,
    *,
    overlap_hours: float = OVERLAP_HOURS,
    days: int | None = DEFAULT,
    actor: str = "command line",
    keys: Keys | None = None,
    settings: Settings | None = None,
) -> str:
    """Create a token with the rights of another, which stays valid for the overlap only.

    The caller has locked the other one. Returns the new text. Raises BadField where it has ended.
    """
    if not 0 <= overlap_hours <= MAX_OVERLAP_HOURS:
        limit = f"0 to {MAX_OVERLAP_HOURS}"
        raise BadField("overlap_hours", overlap_hours, "is out of range", limit=limit)
    now = utcnow()
    if not before.valid(now):
        raise BadField("token", before.id, "has ended", limit="a valid token; create a new one")
    end = now + timedelta(hours=overlap_hours)
    before.expires_at = min(end, before.expires_at or end)
    rights = {field: getattr(before, field) for field in ("name", "scopes", *LIMITS)}
    expires_at = _end(days, settings or configuration.load(), now)
    text, token = _create(session, rights, expires_at, keys)
    detail = {
        "name": token.name,
        "prefix": token.prefix,
        "expires_at": timestamp(expires_at),
        "replaces": before.id,
        "replaced_ends_at": timestamp(before.expires_at),
    }
    audit.record(session, actor=actor, action="token.rotated", subject=token.id, detail=detail)
    return text


def _create(
    session: Session, rights: dict[str, Any], expires_at: datetime | None, keys: Keys | None
) -> tuple[str, TokenRow]:
    text = make_token()
    digest = (keys or own_keys()).digest("token", text)
    row = TokenRow(
        id=new_id(),
        prefix=shown_prefix(text),
        hash=digest,
        created_at=utcnow(),
        expires_at=expires_at,
        **rights,
    )
    session.add(row)
    session.flush()
    return text, row


def _checked(name: str, scopes: Sequence[str], limits: dict[str, Sequence[str]]) -> dict[str, Any]:
    """Return the rights in their stored form. Raises BadField."""
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        reason = "unknown scope" if unknown else "at least one is required"
        raise BadField("scopes", unknown, reason, limit="one of " + ", ".join(SCOPES))
    if not name or len(name) > MAX_NAME or not name.isprintable():
        raise BadField("name", name, "must be printable text", limit=f"1 to {MAX_NAME} characters")
    for field, patterns in limits.items():
        if patterns and all(pattern.startswith("!") for pattern in patterns):
            raise BadField(field, list(patterns), "only excludes", limit="a pattern without !")
    if limits["branches"] and not limits["builds"]:
        given = list(limits["branches"])
        raise BadField("branches", given, "limits no builds", limit="with builds")
    if "admin" in scopes and (limits["repositories"] or limits["suites"]):
        field = "repositories" if limits["repositories"] else "suites"
        limit = "the scopes read and submit"
        raise BadField(field, list(limits[field]), "can't limit an admin", limit=limit)
    lists = {field: list(patterns) for field, patterns in limits.items()}
    return {"name": name, "scopes": [scope for scope in SCOPES if scope in scopes], **lists}


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
