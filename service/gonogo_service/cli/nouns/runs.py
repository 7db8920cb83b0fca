"""`gonogo runs`: suites that were submitted, each with one verdict."""

from __future__ import annotations

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client
from gonogo_service.cli import suites
from gonogo_service.suites.noun import RUNS

app = nouns.app_of(RUNS, print_one=suites.report)


@app.command()
def cancel(run: str = typer.Argument(help=RUNS.argument_help), as_json: bool = JSON) -> None:
    """Cancel a run and its open jobs. Results that are there stay."""
    with Client() as client:
        record = client.call("POST", f"{RUNS.of(run)}:cancel")
    if as_json:
        show.print_json(record)
    else:
        print(f"{run} is {show.state(record['state'])}")
