"""`gonogo bisect`: ask a server which build of a series changed a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import typer

from gonogo import urls
from gonogo.cli.kit import show, waiting
from gonogo.cli.kit.body_options import JSON
from gonogo.cli.kit.client import ENDED, Client
from gonogo.cli.kit.option_groups import grouped
from gonogo.flakiness.bisecting import Expect, Signal
from gonogo_service.cli.submit import SelectionFlags, TargetFlags
from gonogo_workers.cli import options, selections

ANSWERS = {"found", "no_change"}
"""Conclusions that answer the question."""


@grouped
def bisect(
    test: options.TestFlags,
    target: TargetFlags,
    selection: SelectionFlags,
    builds: str | None = typer.Option(
        None, "--builds", help="The builds in order, with commas between them."
    ),
    branch: str | None = typer.Option(
        None, help="Instead of --builds: search all builds of this branch, in their order."
    ),
    first: str | None = typer.Option(None, help="With --branch: begin with this build."),
    last: str | None = typer.Option(None, help="With --branch: end with this build."),
    signal: Signal | None = typer.Option(
        None,
        "--signal",
        "--outcome",
        help="Tell builds apart by this; default: numbers for a kernel, verdicts for a suite.",
    ),
    expect: Expect = typer.Option(
        Expect.either, help="How the last build differs from the first; knowing it saves runs."
    ),
    several: bool = typer.Option(
        False,
        "--several",
        help="With verdicts: look for further changes after the first one is found.",
    ),
    max_runs: int = typer.Option(
        500, "--max-runs", help="End undecided after this many runs without an answer."
    ),
    seed_start: int = typer.Option(0, "--seed-start", help="The first seed of every build."),
    wait: bool = typer.Option(False, "--watch", help="Wait for the answer."),
    as_json: bool = JSON,
) -> None:
    """Find the build of a series that changed a test, although its runs are noisy.

    With --watch, wait for the answer.
    """
    chosen = selections.requested(target.executor, selection.suite, selection.words)
    shape = test.shape
    if (shape is None and not chosen) or (builds is None) == (branch is None):
        raise typer.BadParameter("either --builds or --branch is needed, and --shape for a kernel")
    is_selection = shape is None or chosen
    test_body = (
        selections.from_flags(selection.suite, selection.words)
        if is_selection
        else test.test(shape or "")
    )
    names = None if builds is None else [name.strip() for name in builds.split(",")]
    series = {"builds": names, "branch": branch, "first": first, "last": last}
    body: dict[str, Any] = {
        "test": test_body,
        "target": asdict(target),
        "expect": expect.value,
        "several": several,
        "max_runs": max_runs,
        "seed_start": seed_start,
        **{name: value for name, value in series.items() if value is not None},
    }
    if signal is not None:
        body["signal"] = signal.value
    with Client() as client:
        created = client.call("POST", "/bisections", body=body)
        page = client.url + urls.bisection(created["id"])
        if not wait:
            if as_json:
                show.print_json(created)
            else:
                show.console().print(f"{created['id']}  {page}", soft_wrap=True, highlight=False)
            return
        ended = _follow(client, created["id"], quiet=as_json)
        if as_json:
            show.print_json(ended | {"url": page})
        else:
            _tell(ended, page)
    if ended["state"] == "failed":
        raise typer.Exit(3)
    raise typer.Exit(int(ended["conclusion"] not in ANSWERS))


def _follow(client: Client, bisection: str, *, quiet: bool) -> dict[str, Any]:
    """Return the bisection once it has ended, and show its progress on stderr until then.

    Waits for a server that is away.
    """
    with show.progress(show.console(stderr=True)) as bars:
        task = bars.add_task("bisect", total=None, completed=0, note="", visible=not quiet)

        def tell(record: dict[str, Any]) -> None:
            note = "; ".join(map(_standing, record["tracks"]))
            bars.update(task, completed=record["runs"], total=record["max_runs"], note=note)

        return waiting.until(
            lambda: client.call("GET", f"/bisections/{bisection}"),
            lambda record: record["state"] in ENDED,
            tell,
        )


def _standing(track: Mapping[str, Any]) -> str:
    if track["stage"] in ("gate", "no_change") or track["build"] is None:
        return f"{track['track']}: {track['stage'].replace('_', ' ')}"
    return f"{track['track']}: {track['build']} {track['probability']:.2f}"


def _tell(bisection: Mapping[str, Any], page: str) -> None:
    out = show.console()
    counts = f"{bisection['runs']} runs of {len(bisection['builds'])} builds"
    lines = [f"{bisection['words'] or bisection['state']} ({counts})"]
    lines += [
        f"  {change['before']} to {change['build']}, by {change['track']}:"
        f" {change['comparison']['words']}"
        for change in bisection["findings"]
    ]
    if bisection["error"]:
        lines.append(f"error: {bisection['error']}")
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)
    out.print(page, style="underline", soft_wrap=True)
