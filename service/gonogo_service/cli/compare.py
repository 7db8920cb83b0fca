"""`gonogo compare`: what a commit did to every test, and an exit code that a CI job can gate on."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo.cli.kit import cells, show, waiting
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import PAGE, Client
from gonogo.cli.kit.fail_on import FAIL_ON, FailOn
from gonogo.cli.kit.terminal import plain
from gonogo.fields import did_you_mean
from gonogo.flakiness.classes import Class
from gonogo.flakiness.gating import LABELS
from gonogo_workers.cli import references

GATE_COLORS = {0: "green", 1: "bold red", 3: "yellow"}
"""The color of a gate's code."""
MAX_NAMES = 2000
"""Builds among which a misspelled one is looked for."""
COLUMNS = {"class": "class", "test": "name", "where": "where", "what": "words"}
QUIET = ("passed", "not_run")
"""Classes that are counted, and listed with --all only."""


def compare(
    base: str = typer.Argument(
        help="Before the commit: a build, a run's id, build@run, or a registered build's commit."
    ),
    head: str = typer.Argument(help="With the commit: the same."),
    wait: bool = typer.Option(False, "--watch", help="Wait until all jobs of both are over."),
    fail_on: FailOn = FAIL_ON,
    everything: bool = typer.Option(False, "--all", help="List tests that passed as well."),
    as_json: bool = JSON,
) -> None:
    """Classify every test of head against base: new failures, new hollow passes, known ones."""
    with Client() as client:
        comparison = (watch if wait else read)(client, base, head, fail_on)
        if as_json:
            show.print_json(comparison)
        else:
            report(comparison, everything, client.url)
            for side in (comparison["base"], comparison["head"]):
                if not side["builds"]:
                    _hint(client, side["requested"])
    raise typer.Exit(comparison["gate"]["code"])


def _hint(client: Client, name: str) -> None:
    """Tell which build was meant where a name has run nothing."""
    names = [build["name"] for build in client.some("/builds", limit=MAX_NAMES)["items"]]
    if name not in names and (hint := did_you_mean(name, names)):
        print(plain(f"no build {name!r}{hint}"), file=sys.stderr)


def read(client: Client, base: str, head: str, fail_on: str) -> dict[str, Any]:
    """Return the whole comparison, with every page of its tests under `items`."""
    query: dict[str, Any] = {"base": base, "head": head, "fail_on": str(fail_on), "limit": PAGE}
    comparison: dict[str, Any] = client.call("GET", "/compare", **query)
    while comparison["next"] is not None:
        more = client.call("GET", "/compare", **query, cursor=comparison["next"])
        comparison = {**more, "items": [*comparison["items"], *more["items"]]}
    return comparison


def watch(client: Client, base: str, head: str, fail_on: str) -> dict[str, Any]:
    """Return the comparison once every job of both sides is over, even if the server was away."""

    def glance() -> dict[str, Any]:
        comparison: dict[str, Any] = client.call(
            "GET", "/compare", base=base, head=head, fail_on=str(fail_on), limit=1
        )
        return read(client, base, head, fail_on) if comparison["complete"] else comparison

    return waiting.until(glance, lambda comparison: bool(comparison["complete"]))


def report(
    comparison: Mapping[str, Any], everything: bool, url: str, *, with_gate: bool = True
) -> None:
    """Print a line per test, the gate's reasons, and the commands that run bad tests again."""
    out = show.console()
    shown = [
        test
        for test in comparison["items"]
        if everything or any(finding["class"] not in QUIET for finding in test["findings"])
    ]
    if shown:
        out.print(table(shown))
    for test in shown:
        if test["check"] and test["class"] in ("new_failure", "new_hollow_pass", "unknown"):
            out.print(f"again: {test['check']}", markup=False, highlight=False, soft_wrap=True)
    for test in comparison["items"]:
        for output in (test["pair"] or {}).get("flips", ()):
            if test not in shown and not output["one_way"]:
                continue
            line = Text.assemble(f"{test['name']}: ", references.flips_line(output))
            out.print(line, soft_wrap=True)
    sides = " against ".join(
        f"{side['requested']} ({', '.join(side['builds']) or 'never run'})"
        for side in (comparison["head"], comparison["base"])
    )
    out.print(f"{sides}: {comparison['words']}", markup=False, soft_wrap=True)
    gate, code = comparison["gate"], comparison["gate"]["code"]
    if with_gate:
        out.print(
            Text.assemble((LABELS[code], GATE_COLORS[code]), f": {gate['words']}"), soft_wrap=True
        )
    out.print(
        f"{url}{comparison['links']['page']}", style="underline", soft_wrap=True, highlight=False
    )


def table(tests: Iterable[Mapping[str, Any]]) -> Table:
    """Return a table of tests with a row per finding."""
    lines = []
    for test in tests:
        place = {"name": test["name"], "where": f"{test['arch']} {test['board']}"}
        for finding in test["findings"]:
            kind = Class(finding["class"])
            label = Text(kind.label, kind.color)
            lines.append({**place, "class": label, "words": finding["words"]})
            place = {}
    return cells.table(lines, COLUMNS)
