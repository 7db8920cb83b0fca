"""`gonogo runs`: suites that were submitted, each with one verdict."""

from __future__ import annotations

import typer

from gonogo import urls
from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo_service.cli import suites

RUNS = Noun(
    "runs",
    {
        "run": "id",
        "suite": "suite.name",
        "builds": "builds",
        "state": "state",
        "jobs": lambda run: f"{run['jobs']['ended']}/{run['jobs']['total']}",
        "verdict": "verdict",
        "created": "created_at",
    },
    "a run",
    page=urls.run,
)

app = group("Look at runs of suites, and cancel them. `gonogo submit SUITE.yaml` starts one.")


@app.command("list")
def list_(
    suite: str | None = typer.Option(None, help="List only runs of the suite of this name."),
    state: str | None = typer.Option(
        None, help="List only runs in this state: running, cancelling, finished, cancelled."
    ),
    schedule: str | None = typer.Option(None, help="List only runs of this schedule's id."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest runs."""
    filters = {"suite": suite, "state": state, "schedule": schedule}
    nouns.print_list(RUNS, limit=limit, cursor=cursor, as_json=as_json, **filters)


@app.command("show")
def show_one(run: str = typer.Argument(help="Its id."), as_json: bool = JSON) -> None:
    """Show a run: its verdict, and a line per test."""
    with Client() as client:
        record = client.call("GET", RUNS.of(run))
        suites.report(client, record, as_json=as_json)


@app.command()
def cancel(run: str = typer.Argument(help="Its id."), as_json: bool = JSON) -> None:
    """Cancel a run and its open jobs. Results that are there stay."""
    with Client() as client:
        record = client.call("POST", f"{RUNS.of(run)}:cancel")
    if as_json:
        show.print_json(record)
    else:
        print(f"{run} is {show.state(record['state'])}")
