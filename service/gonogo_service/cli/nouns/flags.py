"""`gonogo flags`: findings about tests that need someone's attention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import typer

from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT
from gonogo.errors import FieldError
from gonogo.fields import did_you_mean
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags.noun import FLAGS, LABELS

assert FLAGS.change is not None
CHANGE = FLAGS.change
_HELP = FLAGS.filters

app = nouns.app_of(FLAGS)


@app.command("list")
def list_(
    kind: str | None = typer.Option(None, help=_HELP["kind"]),
    state: str | None = typer.Option("open", help=_HELP["state"]),
    test: str | None = typer.Option(None, help=_HELP["test"]),
    build: str | None = typer.Option(None, help=_HELP["build"]),
    owner: str | None = typer.Option(None, help=_HELP["owner"]),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest flags."""
    named = None if kind is None else FlagKind.named(kind)
    if kind is not None and named is None:
        labels = [label.lower() for label in LABELS.values()]
        hint = did_you_mean(kind.lower(), [*labels, *LABELS])
        limits = "one of " + ", ".join(labels)
        raise FieldError("--kind", kind, f"unknown kind of flag{hint}", limit=limits)
    filters = {"kind": named, "state": None if state == "any" else state}
    filters |= {"test": test, "build": build, "owner": owner}
    nouns.print_list(FLAGS, limit=limit, cursor=cursor, as_json=as_json, **filters)


def change(identity: str, as_json: bool, days: float | None, **options: Any) -> None:
    """Acknowledge, resolve or reopen a flag."""
    body = nouns.body_of(CHANGE, options)
    if days is not None:
        body["expires"] = (datetime.now(UTC) + timedelta(days=days)).isoformat()
    body = nouns.changed("gonogo flags change", **body)
    with Client() as client:
        record = client.call("PATCH", FLAGS.of(identity), body=body)
        nouns.stored(FLAGS, client, record, f"{record['state']}:", as_json=as_json)


_DAYS = typer.Option(
    None, min=0.01, max=3650, help="Acknowledge it for so many days; then it is open again."
)
_MORE = {
    "identity": (str, typer.Argument(metavar="ID", help=FLAGS.argument_help)),
    "days": (float | None, _DAYS),
}
app.command("change", help=CHANGE.sentence)(nouns.with_options(change, CHANGE, _MORE))
