"""`gonogo results`: the numbers of every seed, as a table, JSON, or a file in a format."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer
from rich.text import Text

from gonogo.cli.kit import cells, show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.cells import Cell
from gonogo.cli.kit.client import Client, lines
from gonogo.cli.kit.files import destination
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


COLUMNS: dict[str, Cell] = {
    "seed": "seed",
    "repeat": "repeat",
    "verdict": "verdict",
    "output": "output",
    "explanation": "explanation",
    "max |e|": "max_abs",
    "tolerance ratio": "tolerance_ratio",
    "error/rounding": "rounding_ratio",
    "1-PCC": "pcc_deficit",
    "ms": "duration_ms",
    "message": lambda line: str(line["message"] or "").partition("\n")[0],
}


def _lines(items: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield a line per output; the first one of a seed has what the seed has."""
    for item in items:
        of_seed = {"seed": show.sample(item), "verdict": show.verdict(item["verdict"])}
        of_seed |= {name: item.get(name) for name in ("repeat", "duration_ms", "message")}
        for name, judged in (item.get("outputs") or {"": {}}).items():
            words = show.plain_words(judged.get("outcome") or judged.get("explanation") or "-")
            message = of_seed.pop("message", None) or judged.get("message")
            columns = {"output": name, "explanation": words, "message": message}
            yield {**judged, "verdict": Text(), **of_seed, **columns}
            of_seed = {}


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
            out.print(cells.table(_lines(items), COLUMNS))
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
