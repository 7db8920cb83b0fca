"""`gonogo waivers`: accept until a date what `gonogo compare` would block a commit for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from gonogo.cli.kit import nouns
from gonogo.errors import FieldError
from gonogo_service.waivers.noun import WAIVERS

DAYS = 14.0
"""Long enough for a fix, short enough that someone looks again."""
_DAYS = typer.Option(
    None, min=0.01, max=3650, help=f"Until so many days from now; a new one: {DAYS:g}."
)
_EXPIRES = typer.Option(
    None, help="Instead of --days: a date or a time in UTC, 2026-12-31 or 2026-12-31T12:00."
)
END = {"days": (float | None, _DAYS), "expires": (str | None, _EXPIRES)}


def _prepare(verb: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return the options with the end that --days or --expires says."""
    days, expires = options.pop("days", None), options.get("expires")
    if None not in (days, expires):
        raise FieldError("--days", days, "is said by --expires already", limit="one of the two")
    if expires is not None:
        options["expires"] = _time(expires)
    elif days is not None or verb == "create":
        options["expires"] = (datetime.now(UTC) + timedelta(days=days or DAYS)).isoformat()
    return options


def _time(text: str) -> str:
    try:
        end = datetime.fromisoformat(text)
    except ValueError:
        limit = "such as 2026-12-31 or 2026-12-31T12:00"
        raise FieldError("expires", text, "is no time", limit=limit) from None
    return (end if end.tzinfo else end.replace(tzinfo=UTC)).isoformat()


app = nouns.app_of(WAIVERS, prepare=_prepare, more={"create": END, "change": END})
