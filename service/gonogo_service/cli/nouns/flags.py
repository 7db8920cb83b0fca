"""`gonogo flags`: findings about tests that need someone's attention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import typer

from gonogo import urls
from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo.errors import FieldError
from gonogo.fields import did_you_mean
from gonogo.flakiness.flag_kinds import FlagKind

LABELS = {kind.value: kind.label for kind in FlagKind}
FLAGS = Noun(
    "flags",
    {
        "flag": "id",
        "kind": lambda flag: LABELS.get(flag["kind"], flag["kind"]),
        "state": "state",
        "kernel": "kernel",
        "build": "build",
        "where": lambda flag: f"{flag['arch']} {flag['board']}",
        "jobs": "jobs",
        "owner": "owner",
        "updated": "updated_at",
    },
    "a flag",
    page=urls.flag,
    labels={"kind": LABELS},
    parts={
        "history": {
            "at": "at",
            "before": "before",
            "after": "after",
            "actor": "actor",
            "reason": "reason",
        }
    },
)

app = group("Look at flags, acknowledge and resolve them.")


@app.command("list")
def list_(
    kind: str | None = typer.Option(
        None, help="List only this kind, such as flaky or 'hollow pass'."
    ),
    state: str | None = typer.Option(
        "open", help="List only this state: open, acknowledged, resolved; any lists all."
    ),
    test: str | None = typer.Option(None, help="List only flags of this test's key."),
    build: str | None = typer.Option(None, help="List only flags of this build."),
    owner: str | None = typer.Option(None, help="List only flags of this owner."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest flags."""
    state = None if state == "any" else state
    if kind is not None:
        kind = _kind(kind)
    filters = {"kind": kind, "state": state, "test": test, "build": build, "owner": owner}
    nouns.print_list(FLAGS, limit=limit, cursor=cursor, as_json=as_json, **filters)


nouns.add_show(app, FLAGS, "Show a flag with its evidence and its history.")


def _kind(text: str) -> str:
    """Return the kind that a value or a label names. Raises FieldError."""
    kind = FlagKind.named(text)
    if kind is None:
        labels = [label.lower() for label in LABELS.values()]
        hint = did_you_mean(text.lower(), [*labels, *LABELS])
        raise FieldError(
            "--kind", text, f"unknown kind of flag{hint}", limit="one of " + ", ".join(labels)
        )
    return kind.value


@app.command()
def change(
    flag: str = typer.Argument(help="Its id."),
    state: str | None = typer.Option(None, help="Set open, acknowledged or resolved."),
    owner: str | None = typer.Option(
        None, help="Say who looks after it (default: who acknowledges it)."
    ),
    reason: str | None = typer.Option(None, help="Say why; required to acknowledge it."),
    days: float | None = typer.Option(
        None,
        min=0.01,
        max=3650,
        help="Acknowledge it for so many days (default: 14); then it is open again.",
    ),
    as_json: bool = JSON,
) -> None:
    """Acknowledge, resolve or reopen a flag. What you don't name stays.

    Until an acknowledgement ends, the finding blocks no commit.
    """
    expires = None if days is None else (datetime.now(UTC) + timedelta(days=days)).isoformat()
    body = nouns.changed(
        "gonogo flags change", state=state, owner=owner, reason=reason, expires=expires
    )
    with Client() as client:
        record = client.call("PATCH", FLAGS.of(flag), body=body)
        nouns.stored(FLAGS, client, record, f"{record['state']}:", as_json=as_json)
