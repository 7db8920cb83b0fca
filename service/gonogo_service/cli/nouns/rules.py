"""`gonogo rules`: what deliveries of GitHub and other CI start."""

from __future__ import annotations

from pathlib import Path

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client
from gonogo.errors import JobError
from gonogo_service.ci.noun import RULES
from gonogo_service.cli import suites

app = nouns.app_of(RULES)


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
        stored = client.call("PUT", RULES.address, body=content)
    if as_json:
        show.print_json(stored)
    else:
        print("; ".join(f"{len(stored[word])} {word}" for word in ("stored", "same", "archived")))
