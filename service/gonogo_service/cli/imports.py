"""`gonogo import`: the report of a run that happened elsewhere, sent to a server."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import typer

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.files import reading
from gonogo.cli.kit.option_groups import grouped
from gonogo_workers.cli import selections


class Format(StrEnum):
    """The format of a report."""

    junit = "junit"
    gtest_xml = "gtest-xml"
    gtest_json = "gtest-json"
    ctrf = "ctrf"
    gonogo = "gonogo"


@dataclass(frozen=True)
class OriginFlags:
    """The run that is imported: its suite, its build and its place."""

    suite: str | None = typer.Option(
        None, help="Name of the suite in the history; default: the file's own name."
    )
    build: str | None = typer.Option(
        None, help="The build that was tested; by default the file's, else its commit."
    )
    arch: str | None = typer.Option(None, help="Architecture that it ran on.")
    board: str | None = typer.Option(None, help="Board that it ran on.")
    repository: str | None = typer.Option(None, help="Repository of the commit, OWNER/NAME.")
    sha: str | None = typer.Option(None, help="The commit.")
    pull_request: int | None = typer.Option(None, help="Number of its pull request.")
    label: list[str] = typer.Option(
        [], "--label", help="Label the import with NAME=VALUE; repeatable."
    )


@grouped
def import_(
    origin: OriginFlags,
    files: list[Path] = typer.Argument(
        ...,
        metavar="FILE...",
        help="Reports: JUnit XML, gtest XML or JSON, CTRF, GoNoGo's own lines.",
    ),
    form: Format | None = typer.Option(
        None, "--format", help="Format of the files; default: guessed from each."
    ),
    as_json: bool = JSON,
) -> None:
    """Store the tests of a run that happened elsewhere.

    They are history without numbers, unless the file has numbers.

    The exit code says whether the files were stored, never what is in them.
    """
    from gonogo.reports.reading import guess

    stored = []
    with Client() as client:
        for file in files:
            with reading(file):
                data = file.read_bytes()
            query = {"format": form.value if form is not None else guess(data), **asdict(origin)}
            stored.append({"file": str(file), **client.send("/imports", data, **query)})
    if as_json:
        show.print_json({"imports": stored})
        return
    out = show.console()
    for report in stored:
        outcomes = selections.ordered(report["outcomes"])
        tests = show.counts(outcomes) if report["tests"] else "no tests"
        without = "" if report["numbers"] else "; without numbers"
        line = f"{report['file']}: {tests}{without}"
        out.print(line, markup=False, highlight=False, soft_wrap=True)
        out.print(client.url + urls.job(report["id"]), style="underline", soft_wrap=True)
