"""`gonogo waivers`: accept until a date what `gonogo compare` would block a commit for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT
from gonogo.cli.kit.terminal import plain
from gonogo.errors import FieldError
from gonogo_service.waivers.noun import WAIVERS, about

assert WAIVERS.create is not None
assert WAIVERS.change is not None
CREATE, CHANGE = WAIVERS.create, WAIVERS.change
DAYS = 14.0
"""Long enough for a fix, short enough that someone looks again."""
_DAYS = typer.Option(None, min=0.01, max=3650, help="Until so many days from now.")
_EXPIRES = typer.Option(
    None, help="Instead of --days: a date or a time in UTC, 2026-12-31 or 2026-12-31T12:00."
)
_END = {"days": (float | None, _DAYS), "expires": (str | None, _EXPIRES)}

app = nouns.app_of(WAIVERS)


@app.command("list")
def list_(
    test: str | None = typer.Option(None, help=WAIVERS.filters["test"]),
    state: str = typer.Option("active", help=f"{WAIVERS.filters['state']} any: all."),
    owner: str | None = typer.Option(None, help=WAIVERS.filters["owner"]),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest waivers that are in force."""
    filters = {"test": test, "state": None if state == "any" else state, "owner": owner}
    nouns.print_list(WAIVERS, limit=limit, cursor=cursor, as_json=as_json, **filters)


def create(as_json: bool, days: float | None, expires: Any, **options: Any) -> None:
    """Waive classes of some tests."""
    body = nouns.body_of(CREATE, options) | {"expires": _end(days or DAYS, expires)}
    with Client() as client:
        waiver = client.call("POST", WAIVERS.address, body=body)
    if as_json:
        show.print_json(waiver)
    else:
        print(plain(f"{waiver['id']}  {about(waiver)}: {waiver['words']}"))


def change(identity: str, as_json: bool, days: float | None, expires: Any, **options: Any) -> None:
    """Renew or change a waiver."""
    body = nouns.body_of(CHANGE, options)
    if days is not None or expires is not None:
        body["expires"] = _end(days or DAYS, expires)
    body = nouns.changed("gonogo waivers change", **body)
    with Client() as client:
        record = client.call("PATCH", WAIVERS.of(identity), body=body)
        nouns.stored(WAIVERS, client, record, CHANGE.done, as_json=as_json)


app.command("create", help=f"{CREATE.sentence} By default for {DAYS:g} days.")(
    nouns.with_options(create, CREATE, _END)
)
_IDENTITY = {"identity": (str, typer.Argument(metavar="ID", help=WAIVERS.argument_help))}
app.command("change", help=f"{CHANGE.sentence} What you don't name stays.")(
    nouns.with_options(change, CHANGE, _IDENTITY | _END)
)


def _end(days: float, expires: str | None) -> str:
    if expires is None:
        return (datetime.now(UTC) + timedelta(days=days)).isoformat()
    try:
        end = datetime.fromisoformat(expires)
    except ValueError:
        limit = "such as 2026-12-31 or 2026-12-31T12:00"
        raise FieldError("expires", expires, "is no time", limit=limit) from None
    return (end if end.tzinfo else end.replace(tzinfo=UTC)).isoformat()
