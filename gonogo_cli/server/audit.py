"""`gonogo audit`: who did what. Its entries are a chain of hashes, which anybody can verify."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import typer

from gonogo.errors import FieldError
from gonogo_cli.kit import nouns, show
from gonogo_cli.kit.client import Client, lines
from gonogo_cli.kit.destination import destination
from gonogo_cli.kit.files import reading
from gonogo_cli.kit.groups import group
from gonogo_cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo_cli.kit.terminal import plain

AUDIT = Noun(
    "audit",
    {
        "number": "number",
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

app = group("See who did what; export the audit, and verify its chain.")


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


@app.command()
def verify(
    file: Path | None = typer.Argument(
        None, help="An export to verify offline; by default the server's audit (scope admin)."
    ),
    head: str | None = typer.Option(
        None, help="NUMBER:HASH that an earlier `verify` printed: finds a cut tail."
    ),
    as_json: bool = JSON,
) -> None:
    """Check that no entry was changed, deleted or inserted; print the head for you to keep.

    Keep the head where the server's operators can't change it. Exit code 1: the chain is broken.
    """
    from gonogo_storage.access.audit_chain import Head
    from gonogo_storage.access.audit_chain import verify as walk

    try:
        known_head = None if head is None else Head.parse(head)
    except ValueError as problem:
        raise FieldError("--head", head, str(problem)) from None
    if file is not None:
        result = walk(_entries_of(file), known_head)
    else:
        with Client() as client:
            result = walk(map(_entry, lines(client.parts(EXPORT))), known_head)
    if as_json:
        show.print_json(
            {
                "ok": result.problem is None,
                "entries": result.entries,
                "head": str(result.head),
                "problem": result.problem,
            }
        )
    elif result.problem is None:
        print(f"{result.entries} entries, each as it was written; keep this head:\n{result.head}")
    else:
        print(
            plain(f"BROKEN: {result.problem} (the {result.entries} entries before it are in order)")
        )
    raise typer.Exit(0 if result.problem is None else 1)


def _entries_of(file: Path) -> Iterator[Any]:
    with reading(file), file.open("rb") as text:
        yield from map(_entry, text)


def _entry(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None  # the walk says which entry is none
