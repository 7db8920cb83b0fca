"""Suite files on the command line: submit many tests as one run, and follow it to its verdict."""

from __future__ import annotations

import json
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from gonogo import urls
from gonogo.cli.kit import cells, show, waiting
from gonogo.cli.kit.client import Client, Refused
from gonogo.cli.kit.noun import Cell
from gonogo.errors import JobError
from gonogo.fields import did_you_mean
from gonogo.reports import red_hollow
from gonogo.spec import json_text
from gonogo.spec.verdicts import Verdict
from gonogo_service.cli import compare, jobs
from gonogo_workers.cli import selections

ENDED = {"finished", "cancelled"}
TELL_EVERY_S = 30.0
MAX_MESSAGES = 5
"""Tests of a run whose first error is shown: one cause often fails all of them."""
OF_THE_RUN = ("builds", "labels", "commit")
"""Fields of the run that a file may have beside the suite; flags come before them."""


def read(path: Path) -> Any:
    """Return the value in a YAML, JSON or TOML file.

    Raises JobError, also for a value that JSON lacks, such as a date or NaN.
    """
    return read_with_text(path)[0]


def read_with_text(path: Path) -> tuple[Any, str]:
    """Return the value in a file as `read` does, and its text without changes."""
    import yaml

    try:
        text = path.read_bytes().decode()
        if path.suffix in {".yaml", ".yml"}:
            content = yaml.safe_load(text)
        else:
            content = tomllib.loads(text) if path.suffix == ".toml" else json_text.loads(text)
        json.dumps(content, allow_nan=False)
    except (OSError, ValueError, TypeError, RecursionError, yaml.YAMLError) as problem:
        raise JobError(f"{path} can't be read: {_why(problem)}") from problem
    return content, text


def _why(problem: Exception) -> str:
    """Return the reason in one line; YAML's own has five, with the place at the end."""
    mark = getattr(problem, "problem_mark", None)
    if mark is not None:
        reason = getattr(problem, "problem", None) or "is no YAML"
        return f"line {mark.line + 1}, column {mark.column + 1}: {reason}"
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return " ".join(str(problem).split())


def require_suite(content: Any, path: Path) -> None:
    """Raise JobError for a file without `entries`, and name the field that was meant."""
    if not is_suite(content):
        hint = next(
            (
                f"; did you mean `entries` by `{name}`?"
                for name in (content if isinstance(content, dict) else ())
                if did_you_mean(name, ["entries"])
            ),
            "",
        )
        raise JobError(f"{path} is no suite: it has no `entries`{hint}")


@contextmanager
def problems_in(path: Path) -> Iterator[None]:
    """Tell all problems that the server finds in a file, each on a line with its place."""
    try:
        yield
    except Refused as problem:
        errors = problem.document.get("errors") or ()
        if not errors:
            raise
        count = f"{len(errors)} problem{'s' * (len(errors) != 1)}"
        lines = [f"{path} has {count}:", *(f"  {error['message']}" for error in errors)]
        raise Refused("\n".join(lines), problem.document) from None


def is_suite(content: Any) -> bool:
    """Return whether a file holds a suite rather than jobs."""
    return isinstance(content, dict) and "entries" in content


def request(
    content: Mapping[str, Any], builds: Sequence[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the run that a suite file asks for; builds and labels of flags come first."""
    suite = {name: value for name, value in content.items() if name not in OF_THE_RUN}
    body: dict[str, Any] = {"suite": suite, "builds": list(builds) or content.get("builds") or []}
    body["labels"] = {**(content.get("labels") or {}), **labels}
    if content.get("commit") is not None:
        body["commit"] = content["commit"]
    return body


def submit(
    body: Mapping[str, Any],
    *,
    wait: bool,
    fail_on: str,
    as_json: bool,
    base: str | None = None,
    path: Path | None = None,
) -> None:
    """Submit a run: of the suite in a file at `path`, or of a stored one.

    With `wait`, follow it and exit with its code; with `base`, with that of the comparison.
    """
    if base is not None and not wait:
        raise typer.BadParameter("--base needs --watch: what is compared has to be over")
    with Client() as client:
        with nullcontext() if path is None else problems_in(path):
            run = client.call("POST", "/runs", body=body)
        url = client.url + run["links"]["page"]
        if wait:
            run = follow(client, run["id"], quiet=as_json)
            comparisons = (
                []
                if base is None
                else [compare.watch(client, *pair, fail_on) for pair in pairs(run, base)]
            )
            compared = {} if base is None else {"comparisons": comparisons}
            report(client, run | compared, as_json=as_json)
            if not as_json:
                for comparison in comparisons:
                    compare.report(comparison, False, client.url)
            if base is None:
                raise typer.Exit(exit_code(run, fail_on))
            codes = {comparison["gate"]["code"] for comparison in comparisons}
            raise typer.Exit(
                1 if 1 in codes or run["state"] != "finished" else max(codes, default=3)
            )
    if as_json:
        show.print_json({**run, "url": url})
    else:
        count = run["jobs"]
        show.say(show.console(), f"{run['id']}  {count} job{'s' * (count != 1)}  {url}")


def follow(
    client: Client,
    run: str,
    *,
    quiet: bool = False,
    tell: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Show a run's progress bar on stderr until it ends, and once why a job waits; return the run.

    Waits for a server that is away. Without a terminal, `tell` gets a line when jobs have ended, at
    most one in TELL_EVERY_S: many pipelines take silence for a hang.
    """
    last_line, known_reasons = (time.monotonic(), 0), set[str]()
    with show.progress(show.console(stderr=True)) as bars:
        task = bars.add_task("run", total=None, note="", visible=not quiet)

        def show_progress(record: dict[str, Any]) -> None:
            seeds, jobs = record["seeds"], record["jobs"]
            note = f"{jobs['ended']} of {jobs['total']} jobs  {show.counts(seeds['verdicts'])}"
            bars.update(
                task,
                description=record["suite"]["name"],
                completed=seeds["done"],
                total=seeds["total"],
                note=note,
            )
            reasons = {test["waiting_reason"] for test in record["tests"]} - known_reasons - {None}
            for reason in () if quiet else reasons:
                show.say(bars.console, f"warning: {reason}")
            known_reasons.update(reasons)
            nonlocal last_line
            if tell is not None and jobs["ended"] > last_line[1] and _due(last_line[0]):
                last_line = (time.monotonic(), jobs["ended"])
                tell(note)

        return waiting.until(
            lambda: client.call("GET", f"/runs/{run}"),
            lambda record: record["state"] in ENDED,
            show_progress,
        )


def _due(last_at: float) -> bool:
    return not sys.stderr.isatty() and time.monotonic() - last_at >= TELL_EVERY_S


def pairs(run: Mapping[str, Any], base: str) -> list[tuple[str, str]]:
    """Return (base, head) for each build of a run but the base.

    A base that is in the run is taken from there, any other as the server has it.
    """
    builds = list(dict.fromkeys(test["build"] for test in run["tests"]))
    before = f"{base}@{run['id']}" if base in builds else base
    return [(before, f"{build}@{run['id']}") for build in builds if build != base]


def report(client: Client, run: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a run that has ended: one line a test, what failed it, one verdict, one link."""
    url = client.url + urls.run(run["id"])
    if as_json:
        show.print_json({**run, "url": url})
        return
    out = show.console()
    out.print(table(run["tests"]))
    messages = 0
    for test in run["tests"]:
        message = jobs.first_message(client, test) if messages < MAX_MESSAGES else None
        messages += message is not None
        edge = "rounding is at its edge; its job says how many more seeds would decide"
        for sentence in (
            message,
            red_hollow.words(test["red"], test["hollow"], red_hollow.noun(test["test"])),
            test["verdict"] == Verdict.suspect and f"{edge} (gonogo watch {test['id']})",
            test["verdict"] != "pass" and test["diagnosis"],
            test["error"] and f"error: {test['error']}",
        ):
            if sentence:
                show.say(out, f"{test['name']} on {test['build']}: {sentence}")
    line = Text.assemble(
        f"{run['suite']['name']} {show.state(run['state'])}, verdict: ",
        show.verdict(run["verdict"]),
    )
    out.print(line, f"({show.counts(run['seeds']['verdicts'])})")
    if both := red_hollow.words(run["red"], run["hollow"], "job"):
        show.say(out, both)
    show.say(out, url, style="underline")


def table(tests: Sequence[Mapping[str, Any]]) -> Table:
    """Return a table with a row per test of a run."""
    columns: dict[str, Cell] = {
        "test": "name",
        "build": "build",
        "state": "state",
        "seeds": lambda test: f"{test['done']}/{test['total']}",
        "verdict": "verdict",
        "counts": lambda test: show.counts(
            selections.ordered(test["outcomes"]) if test.get("outcomes") else test["counts"]
        ),
    }
    return cells.table(tests, columns)


def exit_code(run: Mapping[str, Any], fail_on: str) -> int:
    """Return 1 when a job is as bad as `fail_on` or the run was canceled.

    Else return 3 when the infrastructure failed a job, else 0.
    """
    codes = [jobs.exit_code(test, fail_on) for test in run["tests"]]
    if 1 in codes or run["state"] != "finished":
        return 1
    return max(codes, default=1)
