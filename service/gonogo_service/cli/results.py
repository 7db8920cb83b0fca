"""`gonogo results`: the numbers of every seed, as a table, JSON, or a file in a format."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path

import typer

from gonogo.cli.kit import show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client, lines
from gonogo.cli.kit.destination import destination
from gonogo.errors import FieldError
from gonogo.reports.table import OF_JOB
from gonogo_service.cli import parquet


class Format(StrEnum):
    """Formats of results: the server's, and Parquet, which is made of its NDJSON."""

    json = "json"
    csv = "csv"
    ndjson = "ndjson"
    parquet = "parquet"
    junit = "junit"
    ctrf = "ctrf"


def results(
    job: str = typer.Argument(help="The job's id; with --run a run's."),
    form: Format | None = typer.Option(
        None,
        "--format",
        help="Stream all results as the server writes them; parquet needs gonogo[parquet].",
    ),
    run: bool = typer.Option(
        False, "--run", help="The results of all jobs of a run; needs a --format that is streamed."
    ),
    output: Path | None = typer.Option(
        None, "--output", help="Write them to this file; by default to standard output."
    ),
    limit: int | None = typer.Option(None, min=1, help="At most this many seeds."),
    as_json: bool = JSON,
) -> None:
    """Print every seed's numbers of a job."""
    if form in (None, Format.json) and (run or output is not None):
        raise FieldError(
            "--format",
            form,
            "must be one that is streamed",
            limit="csv, ndjson, parquet, junit or ctrf",
        )
    with Client() as client:
        if form is not None and form is not Format.json:
            _export(client, job, form, run=run, output=output)
            return
        items = list(client.pages(f"/jobs/{job}/results", most=limit, limit=200))
        if as_json or form is Format.json:
            show.print_json({"items": items})
        else:
            out = show.console()
            out.print(show.results_table(items))
            for line in show.arithmetic_lines(items):
                out.print(line, soft_wrap=True)


def _export(client: Client, identity: str, form: Format, *, run: bool, output: Path | None) -> None:
    as_parquet = form is Format.parquet
    if as_parquet:
        parquet.check_installed()  # before the server is asked
    job_fields = {}
    if as_parquet and not run:
        record = client.job(identity)
        job_fields = {name: record["id" if name == "job" else name] for name in OF_JOB}
    path = f"/{'runs' if run else 'jobs'}/{identity}/results"
    parts = client.parts(path, format="ndjson" if as_parquet else form.value)
    with destination(output, complete=as_parquet) as file:
        if as_parquet:
            parquet.write(file, (job_fields | json.loads(line) for line in lines(parts)))
        else:
            file.writelines(parts)
