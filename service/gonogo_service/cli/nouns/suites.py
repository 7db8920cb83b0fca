"""`gonogo suites`: named lists of tests that the server stores."""

from __future__ import annotations

from pathlib import Path

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.fail_on import FailOn, fail_on_option
from gonogo.cli.kit.groups import group
from gonogo.cli.kit.nouns import CURSOR, JSON, LIMIT, Noun
from gonogo_service.cli import suites as files

SUITES = Noun(
    "suites",
    {
        "name": "name",
        "version": "version",
        "tests": "tests",
        "builds": "builds",
        "owner": "owner",
        "updated": "updated_at",
        "archived": "archived_at",
    },
    "a suite",
    key="name",
    parts={
        "tests": {
            "test": "name",
            "kernel": "kernel",
            "seeds": "seeds",
            "key": "test_key",
        }
    },
)

FAIL_ON = fail_on_option("Only with --watch.")
OF_A_RUN = ("labels", "commit")
"""Fields of a suite file that only a run has."""

app = group("Store suites of tests on the server, look at them, and run them.")


@app.command("list")
def list_(
    archived: bool = typer.Option(False, "--archived", help="List archived suites as well."),
    limit: int = LIMIT,
    cursor: str | None = CURSOR,
    as_json: bool = JSON,
) -> None:
    """List the stored suites by name."""
    nouns.print_list(SUITES, limit=limit, cursor=cursor, as_json=as_json, archived=archived or None)


@app.command("show")
def show_one(name: str = typer.Argument(help="Its name."), as_json: bool = JSON) -> None:
    """Show a suite with its tests."""
    with Client() as client:
        suite = client.call("GET", SUITES.of(name))
    if as_json:
        show.print_json(suite)
    else:
        content = suite.pop("content")
        about = {"description": content.get("description"), "builds": content.get("builds")}
        nouns.print_one(SUITES, {**suite, **about}, as_json=False)


@app.command()
def push(
    files_: list[Path] = typer.Argument(
        ..., metavar="FILE...", help="Suite files: YAML, TOML or JSON (manual: suites)."
    ),
    as_json: bool = JSON,
) -> None:
    """Store suite files. A changed suite is the next version of its name.

    A wrong file is told with all its problems, and not stored.
    """
    stored = []
    with Client() as client:
        for file in files_:
            content = files.read(file)
            files.require_suite(content, file)
            suite = {name: value for name, value in content.items() if name not in OF_A_RUN}
            with files.problems_in(file):
                stored.append(client.call("POST", "/suites", body=suite))
    if as_json:
        show.print_json({"items": stored})
    else:
        for suite in stored:
            count = len(suite["tests"])
            print(
                f"stored {suite['name']}, version {suite['version']}: "
                f"{count} test{'s' * (count != 1)}"
            )


@app.command()
def run(
    name: str = typer.Argument(help="Its name."),
    build: list[str] = typer.Option(
        [], "--build", help="Build to run; repeatable; default: the suite's builds."
    ),
    label: list[str] = typer.Option([], "--label", help="NAME=VALUE of the run; repeatable."),
    wait: bool = typer.Option(False, "--watch", help="Wait for the verdict."),
    fail_on: FailOn = FAIL_ON,
    base: str | None = typer.Option(
        None, "--base", help="With --watch: gate on what is new against this build or run."
    ),
    as_json: bool = JSON,
) -> None:
    """Submit a stored suite as one run; with --watch, wait for its verdict."""
    body = {"suite": name, "builds": build, "labels": nouns.pairs(label, "--label")}
    files.submit(body, wait=wait, fail_on=fail_on, as_json=as_json, base=base)


nouns.add_remove(
    app,
    SUITES,
    "Archive a suite: it starts no more runs. Push it again to restore it.",
    "archived",
)
