"""`gonogo waivers`: accept until a date what `gonogo compare` would block a commit for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.cells import Item
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo.cli.kit.terminal import plain
from gonogo.errors import FieldError

DAYS = 14.0
"""Long enough for a fix, short enough that someone looks again."""


def about(waiver: Item) -> str:
    """Return which tests a waiver covers, in a few words."""
    labels = [f"{name}={value}" for name, value in waiver["labels"].items()]
    parts = [
        *filter(None, [waiver["test"]]),
        *waiver["names"],
        *labels,
        *(f"on {build}" for build in waiver["builds"]),
    ]
    return ", ".join(parts)


WAIVERS = Noun(
    "waivers",
    {
        "id": "id",
        "state": "state",
        "tests": about,
        "until": "expires_at",
        "owner": "owner",
        "reason": "reason",
    },
    "a waiver",
)
REASON = "Say why the finding is accepted."
OWNER = "Say who looks after it; default: the token's name."
EXPIRES = "Instead of --days: a date or a time in UTC, 2026-12-31 or 2026-12-31T12:00."
CLASS = typer.Option(
    [], "--class", help="Class to waive; repeatable; default: all that are red or hollow."
)

app = group(
    "Accept findings until a date, so that they block no commit. Verdicts stay as they are."
)


@app.command()
def create(
    reason: str = typer.Option(..., "--reason", help=REASON),
    test: str | None = typer.Option(None, "--test", help="Key of the test (v1-...)."),
    name: list[str] = typer.Option(
        [],
        "--name",
        help="Pattern of names as `gonogo compare` shows them; repeatable; ! excludes.",
    ),
    label: list[str] = typer.Option(
        [], "--label", help="NAME=VALUE of the test's jobs; repeatable."
    ),
    build: list[str] = typer.Option(
        [], "--build", help="Pattern of head's build; repeatable; default: any."
    ),
    kind: list[str] = CLASS,
    owner: str | None = typer.Option(None, help=OWNER),
    days: float = typer.Option(DAYS, min=0.01, max=3650, help="For how long."),
    expires: str | None = typer.Option(None, help=EXPIRES),
    as_json: bool = JSON,
) -> None:
    """Waive classes of some tests until a date.

    A test must match each of --test, --name and --label that is given.
    """
    body: dict[str, Any] = {
        "test": test,
        "names": name,
        "labels": nouns.pairs(label, "--label"),
        "builds": build,
        "reason": reason,
        "owner": owner,
        "expires": _end(days, expires).isoformat(),
        **({"classes": kind} if kind else {}),
    }
    with Client() as client:
        waiver = client.call("POST", "/waivers", body=body)
    if as_json:
        show.print_json(waiver)
    else:
        print(plain(f"{waiver['id']}  {about(waiver)}: {waiver['words']}"))


@app.command("list")
def list_(
    test: str | None = typer.Option(None, "--test", help="List only waivers of this test's key."),
    state: str = typer.Option("active", help="List only this state: active, expired, ended; any."),
    owner: str | None = typer.Option(None, help="List only waivers of this owner."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest waivers."""
    filters = {"test": test, "state": None if state == "any" else state, "owner": owner}
    nouns.print_list(WAIVERS, limit=limit, cursor=cursor, as_json=as_json, **filters)


nouns.add_show(app, WAIVERS, "Show a waiver.")


@app.command()
def change(
    waiver: str = typer.Argument(help="Its id."),
    reason: str | None = typer.Option(None, help=REASON),
    owner: str | None = typer.Option(None, help="Say who looks after it."),
    kind: list[str] = CLASS,
    days: float | None = typer.Option(
        None, min=0.01, max=3650, help="Renew it: so many days from now."
    ),
    expires: str | None = typer.Option(None, help=EXPIRES),
    as_json: bool = JSON,
) -> None:
    """Renew or change an active waiver. What you don't name stays."""
    until = None if days is None and expires is None else _end(days or DAYS, expires).isoformat()
    body = nouns.changed(
        "gonogo waivers change", reason=reason, owner=owner, classes=kind, expires=until
    )
    with Client() as client:
        record = client.call("PATCH", WAIVERS.of(waiver), body=body)
        nouns.stored(WAIVERS, client, record, "changed", as_json=as_json)


nouns.add_remove(app, WAIVERS, "End a waiver now. It stays visible.", "ended")


def _end(days: float, expires: str | None) -> datetime:
    if expires is None:
        return datetime.now(UTC) + timedelta(days=days)
    try:
        end = datetime.fromisoformat(expires)
    except ValueError:
        raise FieldError(
            "expires", expires, "is no time", limit="such as 2026-12-31 or 2026-12-31T12:00"
        ) from None
    return end if end.tzinfo else end.replace(tzinfo=UTC)
