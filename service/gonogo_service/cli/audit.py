"""`gonogo audit`: who did what."""

from __future__ import annotations

from pathlib import Path

import typer

from gonogo.cli.kit import nouns
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.files import destination
from gonogo_service.people.audit_noun import AUDIT

app = nouns.app_of(AUDIT)


@app.command()
def export(
    output: Path | None = typer.Option(
        None, "--output", help="Write it to this file; by default to standard output."
    ),
) -> None:
    """Print every entry as a line of JSON, oldest first. Needs the scope admin."""
    with Client() as client:
        parts = client.parts("/audit/export")
        with destination(output) as file:
            file.writelines(parts)
