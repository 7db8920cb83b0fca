"""A suite file on the command line: many tests submitted as one run, followed to its one
verdict.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo.errors import JobError
from gonogo_cli.kit import show, waiting
from gonogo_cli.kit.client import Client
from gonogo_cli.local import selections
from gonogo_cli.server import compare

ENDED = {"finished", "cancelled"}
OF_THE_RUN = ("builds", "labels", "commit")
"""What a file may say beside the suite: the run's, unless flags do."""


def read(path: Path) -> Any:
    """The value in a YAML, JSON or TOML file. Raises JobError, also for what JSON hasn't (a date,
    NaN).
    """
    import yaml

    try:
        text = path.read_text()
        if path.suffix in {".yaml", ".yml"}:
            found = yaml.safe_load(text)
        else:
            found = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        json.dumps(found, allow_nan=False)
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as problem:
        raise JobError(f"{path} can't be read: {problem}") from problem
    return found


def is_suite(found: Any) -> bool:
    """Whether a file holds a suite rather than jobs."""
    return isinstance(found, dict) and "entries" in found


def request(
    found: Mapping[str, Any], builds: Sequence[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """The run that a suite file asks for; builds and labels of flags go before those of the
    file.
    """
    suite = {name: value for name, value in found.items() if name not in OF_THE_RUN}
    body: dict[str, Any] = {"suite": suite, "builds": list(builds) or found.get("builds") or []}
    body["labels"] = {**(found.get("labels") or {}), **labels}
    if found.get("commit") is not None:
        body["commit"] = found["commit"]
    return body


def submit(
    found: Mapping[str, Any],
    builds: Sequence[str],
    labels: Mapping[str, str],
    *,
    wait: bool,
    fail_on: str,
    as_json: bool,
    base: str | None = None,
) -> None:
    """Submit a suite as one run; with `wait` follow it and exit with its code, with `base` with
    that of its comparison with the base.
    """
    with Client() as client:
        made = client.call("POST", "/runs", body=request(found, builds, labels))
        url = client.url + made["links"]["page"]
        if wait:
            run = follow(client, made["id"], quiet=as_json)
            compared = (
                []
                if base is None
                else [compare.watch(client, *each, fail_on) for each in pairs(run, base)]
            )
            report(run | ({} if base is None else {"comparisons": compared}), url, as_json)
            if not as_json:
                for each in compared:
                    compare.report(each, False, client.url)
            if base is None:
                raise typer.Exit(exit_code(run, fail_on))
            codes = {each["gate"]["code"] for each in compared}
            raise typer.Exit(
                1 if 1 in codes or run["state"] != "finished" else max(codes, default=3)
            )
    if as_json:
        show.print_json({**made, "url": url})
    else:
        count = made["jobs"]
        show.console().print(
            f"{made['id']}  {count} job{'s' * (count != 1)}  {url}", soft_wrap=True, highlight=False
        )


def follow(client: Client, run: str, *, quiet: bool = False) -> dict[str, Any]:
    """Show a run's progress bar on stderr until it ends; the run. A server that is away is waited
    for.
    """
    with show.progress(show.console(stderr=True)) as bars:
        task = bars.add_task("run", total=None, note="", visible=not quiet)

        def tell(found: dict[str, Any]) -> None:
            seeds, jobs = found["seeds"], found["jobs"]
            note = f"{jobs['ended']} of {jobs['total']} jobs  {show.counts(seeds['verdicts'])}"
            bars.update(
                task,
                description=found["suite"]["name"],
                completed=seeds["done"],
                total=seeds["total"],
                note=note,
            )

        return waiting.until(
            lambda: client.call("GET", f"/runs/{run}"), lambda found: found["state"] in ENDED, tell
        )


def pairs(run: Mapping[str, Any], base: str) -> list[tuple[str, str]]:
    """(base, head) of each build of a run but the base. A base that is in the run is taken from
    there, any other as the server has it.
    """
    builds = list(dict.fromkeys(test["build"] for test in run["tests"]))
    before = f"{base}@{run['id']}" if base in builds else base
    return [(before, f"{each}@{run['id']}") for each in builds if each != base]


def report(run: Mapping[str, Any], url: str, as_json: bool) -> None:
    """Print a run that has ended: one line a test, one verdict, one link."""
    if as_json:
        show.print_json({**run, "url": url})
        return
    out = show.console()
    out.print(table(run["tests"]))
    for test in run["tests"]:
        if test["diagnosis"] and test["verdict"] != "pass":
            out.print(
                f"{test['name']} on {test['build']}: {test['diagnosis']}",
                markup=False,
                soft_wrap=True,
            )
        if test["error"]:
            out.print(
                f"{test['name']} on {test['build']}: error: {test['error']}",
                markup=False,
                soft_wrap=True,
            )
    line = Text.assemble(
        f"{run['suite']['name']} {run['state']}, verdict: ", show.verdict(run["verdict"])
    )
    out.print(line, f"({show.counts(run['seeds']['verdicts'])})")
    out.print(url, style="underline", soft_wrap=True)


def table(tests: Sequence[Mapping[str, Any]]) -> Table:
    """The tests of a run, one a line."""
    made = Table(box=None, header_style="dim", pad_edge=False)
    for name in ("test", "build", "state", "seeds", "verdict", "counts"):
        made.add_column(name)
    for test in tests:
        seeds = f"{test['done']}/{test['total']}"
        said = selections.ordered(test["outcomes"]) if test.get("outcomes") else test["counts"]
        made.add_row(
            test["name"],
            test["build"],
            test["state"],
            seeds,
            show.verdict(test["verdict"]),
            show.counts(said),
        )
    return made


def exit_code(run: Mapping[str, Any], fail_on: str) -> int:
    """1 when a job is as bad as `fail_on`, or the run was cancelled; else 3 when the infrastructure
    failed one; else 0.
    """
    codes = [_code(test, fail_on) for test in run["tests"]]
    if 1 in codes or run["state"] != "finished":
        return 1
    return max(codes, default=1)


def _code(test: Mapping[str, Any], fail_on: str) -> int:
    if test["state"] != "finished":
        return 3 if test["state"] == "failed" else 1
    bad = (
        show.failed(test["verdict"], fail_on)
        if test.get("outcomes") is None
        else selections.failed(test, fail_on)
    )
    return int(bad)
