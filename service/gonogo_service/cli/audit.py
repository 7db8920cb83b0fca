"""`gonogo audit`: who did what."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import typer

from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.destination import destination
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

AUDIT = Noun(
    "audit",
    {
        "at": "at",
        "actor": "actor",
        "action": "action",
        "subject": "subject",
        "detail": "detail",
    },
    "an entry",
    plural="entries",
)
EXPORT = "/audit/export"

app = group("See who did what; export the audit.")


@app.command("list")
def list_(
    action: str | None = typer.Option(None, help="Only this action, such as token.revoked."),
    actor: str | None = typer.Option(None, help="Only this actor, such as token:ID."),
    subject: str | None = typer.Option(None, help="Only this object: its ID or name."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest entries. Needs the scope admin."""
    nouns.print_list(
        AUDIT,
        limit=limit,
        cursor=cursor,
        as_json=as_json,
        **nouns.given(action=action, actor=actor, subject=subject),
    )


@app.command()
def export(
    output: Path | None = typer.Option(
        None, "--output", help="Write it to this file; by default to standard output."
    ),
) -> None:
    """Print every entry as a line of JSON, oldest first. Needs the scope admin."""
    with Client() as client:
        parts = client.parts(EXPORT)
        parts = chain([next(parts, b"")], parts)  # a server that refuses leaves no empty file
        with destination(output) as file:
            file.writelines(parts)
