"""`gonogo compare`: what a commit did to every test, and an exit code that a CI job can gate on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo_cli.kit import show, waiting
from gonogo_cli.kit.client import Client
from gonogo_cli.server.jobs import JSON, FailOn

COLOURS = {
    "new_failure": "bold red",
    "new_hollow_pass": "bold magenta",
    "unknown": "yellow",
    "infrastructure": "red",
    "red_but_right": "yellow",
    "fixed": "green",
    "no_longer_hollow": "green",
    "passed": "green",
}
GATES = {0: ("may pass", "green"), 1: ("may not pass", "bold red"), 3: ("can't be said", "yellow")}
"""What a gate's code means, and its colour."""
QUIET = ("passed", "not_run")
"""Classes that are counted, and listed with --all only."""


def compare(
    base: str = typer.Argument(
        help="Before the commit: a build, a run's id, build@run, or the commit of a registered build."
    ),
    head: str = typer.Argument(help="With the commit: the same."),
    wait: bool = typer.Option(False, "--watch", help="Wait until all jobs of both are over."),
    fail_on: FailOn = typer.Option(FailOn.new, "--fail-on", help="What makes the exit code 1."),
    everything: bool = typer.Option(False, "--all", help="List tests that passed as well."),
    as_json: bool = JSON,
) -> None:
    """Classify every test of head against base: new failures, new hollow passes, what base or a
    flag knows already.
    """
    with Client() as client:
        found = (watch if wait else read)(client, base, head, fail_on)
        if as_json:
            show.print_json(found)
        else:
            report(found, everything, client.url)
    raise typer.Exit(found["gate"]["code"])


def read(client: Client, base: str, head: str, fail_on: str) -> dict[str, Any]:
    """The whole comparison: every page of its tests under `items`."""
    found: dict[str, Any] = client.call(
        "GET", "/compare", base=base, head=head, fail_on=str(fail_on), limit=500
    )
    while found["next"] is not None:
        more = client.call(
            "GET",
            "/compare",
            base=base,
            head=head,
            fail_on=str(fail_on),
            limit=500,
            cursor=found["next"],
        )
        found = {**more, "items": [*found["items"], *more["items"]]}
    return found


def watch(client: Client, base: str, head: str, fail_on: str) -> dict[str, Any]:
    """The comparison once every job of both sides is over. A server that is away is waited for."""

    def glance() -> dict[str, Any]:
        found: dict[str, Any] = client.call(
            "GET", "/compare", base=base, head=head, fail_on=str(fail_on), limit=1
        )
        return read(client, base, head, fail_on) if found["complete"] else found

    return waiting.until(glance, lambda found: bool(found["complete"]))


def report(found: Mapping[str, Any], everything: bool, url: str) -> None:
    """One line a test, what closes the gate, and the command that runs a bad test again."""
    out = show.console()
    shown = [
        each
        for each in found["items"]
        if everything or any(said["class"] not in QUIET for said in each["findings"])
    ]
    if shown:
        out.print(table(shown))
    for test in shown:
        if test["check"] and test["class"] in ("new_failure", "new_hollow_pass", "unknown"):
            out.print(f"again: {test['check']}", markup=False, highlight=False, soft_wrap=True)
    sides = " against ".join(
        f"{side['asked']} ({', '.join(side['builds']) or 'never run'})"
        for side in (found["head"], found["base"])
    )
    out.print(f"{sides}: {found['words']}", markup=False, soft_wrap=True)
    gate = found["gate"]
    out.print(Text.assemble("gate: ", GATES[gate["code"]], f" ({gate['words']})"), soft_wrap=True)
    out.print(f"{url}{found['links']['page']}", style="underline", soft_wrap=True, highlight=False)


def table(tests: Sequence[Mapping[str, Any]]) -> Table:
    """Tests, one line for each thing that is said of them."""
    made = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("class", "test", "where", "what"):
        made.add_column(name)
    for test in tests:
        for position, said in enumerate(test["findings"]):
            label = Text(
                said["class"].replace("_", " ").upper(), style=COLOURS.get(said["class"], "")
            )
            where = f"{test['arch']} {test['board']}"
            made.add_row(
                label,
                Text(test["name"]) if not position else "",
                where if not position else "",
                Text(said["words"]),
            )
    return made
