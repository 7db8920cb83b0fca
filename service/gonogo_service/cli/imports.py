"""`gonogo import`: the report of a run that happened elsewhere, sent to a server."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from gonogo import urls
from gonogo.cli.kit import show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.files import reading
from gonogo_workers.cli import selections


class Format(StrEnum):
    """The format of a report."""

    junit = "junit"
    gtest_xml = "gtest-xml"
    gtest_json = "gtest-json"
    ctrf = "ctrf"
    gonogo = "gonogo"


def import_(
    files: list[Path] = typer.Argument(
        ...,
        metavar="FILE...",
        help="Reports: JUnit XML, gtest XML or JSON, CTRF, GoNoGo's own lines.",
    ),
    form: Format | None = typer.Option(
        None, "--format", help="Format of the files; default: guessed from each."
    ),
    suite: str | None = typer.Option(
        None, help="Name of the suite in the history; default: the file's own name."
    ),
    build: str | None = typer.Option(
        None, help="The build that was tested; by default the file's, else its commit."
    ),
    arch: str | None = typer.Option(None, help="Architecture that it ran on."),
    board: str | None = typer.Option(None, help="Board that it ran on."),
    label: list[str] = typer.Option(
        [], "--label", help="Label the import with NAME=VALUE; repeatable."
    ),
    repository: str | None = typer.Option(None, help="Repository of the commit, OWNER/NAME."),
    sha: str | None = typer.Option(None, help="The commit."),
    pull_request: int | None = typer.Option(None, help="Number of its pull request."),
    as_json: bool = typer.Option(False, "--json", help="Print JSON."),
) -> None:
    """Store the tests of a run that happened elsewhere.

    They are history without numbers, unless the file has numbers.

    The exit code says whether the files were stored, never what is in them.
    """
    from gonogo.reports.reading import guess

    commit = {"repository": repository, "sha": sha, "pull_request": pull_request}
    given = {"suite": suite, "build": build, "arch": arch, "board": board, **commit}
    stored = []
    with Client() as client:
        for file in files:
            with reading(file):
                data = file.read_bytes()
            format_ = form.value if form is not None else guess(data)
            stored.append(
                {
                    "file": str(file),
                    **client.send("/imports", data, format=format_, label=label, **given),
                }
            )
    if as_json:
        show.print_json({"imports": stored})
        return
    for report in stored:
        tests = (
            show.counts(selections.ordered(report["outcomes"])) if report["tests"] else "no tests"
        )
        without = "" if report["numbers"] else "; without numbers"
        show.console().print(
            f"{report['file']}: {tests}{without}", markup=False, highlight=False, soft_wrap=True
        )
        show.console().print(client.url + urls.job(report["id"]), style="underline", soft_wrap=True)
