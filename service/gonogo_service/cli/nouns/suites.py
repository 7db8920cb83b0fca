"""`gonogo suites`: named lists of tests that the server stores."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from gonogo.cli.kit import nouns, show
from gonogo.cli.kit.body_options import JSON, pairs
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.fail_on import FailOn, fail_on_option
from gonogo_service.cli import suites as files
from gonogo_service.suites.noun import FORMS, MAX_TEXT, OF_A_RUN, SUITES

FAIL_ON = fail_on_option("Only with --watch.")


def _show(client: Client, suite: dict[str, Any], *, as_json: bool) -> None:
    """Print a suite with its tests; its content is what it was made of."""
    if as_json:
        show.print_json(suite)
        return
    content = suite.pop("content")
    about = {"description": content.get("description"), "builds": content.get("builds")}
    nouns.print_one(SUITES, {**suite, **about}, as_json=False)


app = nouns.app_of(SUITES, print_one=_show)


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
            content, text = files.read_with_text(file)
            files.require_suite(content, file)
            suite = {name: value for name, value in content.items() if name not in OF_A_RUN}
            if len(text) > MAX_TEXT:
                size = f"more than {MAX_TEXT:,} characters"
                text = f"{file} has {size}: no patch can be made of it"
                show.say(show.console(stderr=True), text)
            elif file.suffix in FORMS:
                suite["file"] = {"path": _path(file), "text": text}
            with files.problems_in(file):
                stored.append(client.call("POST", SUITES.address, body=suite))
    if as_json:
        show.print_json({"items": stored})
    else:
        for suite in stored:
            count = len(suite["tests"])
            print(
                f"stored {suite['name']}, version {suite['version']}: "
                f"{count} test{'s' * (count != 1)}"
            )


def _path(file: Path) -> str:
    """Return the path below this folder, as a patch that is applied here needs it."""
    path, here = file.resolve(), Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name


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
    body = {"suite": name, "builds": build, "labels": pairs(label, "--label")}
    files.submit(body, wait=wait, fail_on=fail_on, as_json=as_json, base=base)
