"""`gonogo rules`: what deliveries of GitHub and other CI start."""

from __future__ import annotations

from pathlib import Path

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo.errors import JobError
from gonogo_service.cli import suites

RULES = Noun(
    "rules",
    {
        "name": "name",
        "version": "version",
        "events": "events",
        "repositories": "repositories",
        "owner": "owner",
        "updated": "updated_at",
    },
    "a rule",
    key="name",
)

app = group("Say which deliveries of GitHub and other CI start which suites.")


@app.command("list")
def list_(limit: int = LIMIT, cursor: str | None = CURSOR, as_json: bool = JSON) -> None:
    """List the rules in use by name."""
    nouns.print_list(RULES, limit=limit, cursor=cursor, as_json=as_json)


nouns.add_show(app, RULES, "Show a rule.")


@app.command()
def push(
    file: Path = typer.Argument(
        ..., help="YAML, TOML or JSON: {rules: [...]}. Rules that it does not name are archived."
    ),
    as_json: bool = JSON,
) -> None:
    """Store a rules file: all of it, or nothing where one rule is wrong."""
    content = suites.read(file)
    if not isinstance(content, dict):
        raise JobError(f"{file} must hold an object with `rules`")
    with Client() as client, suites.problems_in(file):
        stored = client.call("PUT", "/rules", body=content)
    if as_json:
        show.print_json(stored)
    else:
        print("; ".join(f"{len(stored[word])} {word}" for word in ("stored", "same", "archived")))


nouns.add_remove(app, RULES, "Archive a rule. What it started stays.", "archived")
