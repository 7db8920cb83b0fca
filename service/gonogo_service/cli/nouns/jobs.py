"""`gonogo jobs`: one test on one build with its seeds."""

from __future__ import annotations

import typer

from gonogo import urls
from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun

JOBS = Noun(
    "jobs",
    {
        "job": "id",
        "test": lambda job: f"{job['kernel']} {show.what(job.get('test') or {})}",
        "build": "build",
        "state": "state",
        "seeds": lambda job: f"{job['done']}/{job['total']}",
        "verdict": "verdict",
        "counts": lambda job: show.counts(job.get("counts") or {}),
    },
    "a job",
    page=urls.job,
)

app = group("Look at jobs, cancel and delete them. `gonogo submit` starts one.")


@app.command("list")
def list_(
    state: str | None = typer.Option(
        None,
        help="List only jobs in this state: queued, running, finished, cancelled or failed.",
    ),
    verdict: str | None = typer.Option(
        None, help="List only jobs with this verdict, such as 'hollow pass' or fail."
    ),
    build: str | None = typer.Option(None, help="List only jobs of this build."),
    test: str | None = typer.Option(None, help="List only jobs of this test's key."),
    label: str | None = typer.Option(None, help="List only jobs with this label, NAME=VALUE."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the newest jobs."""
    verdict = None if verdict is None else show.verdict_value(verdict)
    filters = {"state": state, "verdict": verdict, "build": build, "test": test, "label": label}
    nouns.print_list(JOBS, limit=limit, cursor=cursor, as_json=as_json, **filters)


nouns.add_show(app, JOBS, "Show a job: what was submitted, its state, its counts, its diagnosis.")


nouns.add_remove(
    app, JOBS, "Delete a job that has ended, with its results and artifacts, for ever.", "deleted"
)


@app.command()
def cancel(job: str = typer.Argument(help="Its id."), as_json: bool = JSON) -> None:
    """Cancel a job. A running kernel is stopped within seconds; results that are there stay."""
    with Client() as client:
        record = client.call("POST", f"{JOBS.of(job)}:cancel")
    if as_json:
        show.print_json(record)
    else:
        print(f"{job} is {show.state(record['state'])}")
