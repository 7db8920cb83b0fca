"""`gonogo demo`: the reason why GoNoGo exists, in one minute.

The nightly LayerNorm backward test, for a right kernel and for the one that was wrong for months.
allclose is green for both on every seed; the table at the end shows what GoNoGo says.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

import gonogo.settings
from gonogo import urls
from gonogo.cli.kit import problem as problems
from gonogo.cli.kit import show
from gonogo.cli.kit.client import Client
from gonogo.cli.kit.extras import require_service
from gonogo.errors import GonogoError, InfrastructureError
from gonogo_service.cli.jobs import follow
from gonogo_service.cli.operate.up import own_command, read_record

TEST: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [3, 273, 1, 8462],
    "inputs": {"regime": "uniform", "low": -1, "high": 1},
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
EXPECTED = {"correct": "pass", "tt-train-2025": "pass_by_tolerance"}
"""Build -> the verdict that the demo must end with."""
GREEN = frozenset({"pass", "pass_by_tolerance", "suspect"})
STOP_S = 15.0


@contextmanager
def _service(var: Path | None, out: Console) -> Iterator[str]:
    """Yield the URL of a running service.

    That is this folder's `gonogo up`, else one that is started for the demo and stopped at the end.
    """
    folder = (var or Path(gonogo.settings.load().var_dir)).absolute()
    record = read_record(folder)
    if record is not None and Path(f"/proc/{record['pid']}").exists():
        out.print(f"using the service that runs at {record['url']}")
        yield str(record["url"])
        return
    command = own_command("up", "--any-port", "--json", "--var", str(folder))
    # its own session: Ctrl-C reaches the demo, which then stops it in order
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()  # printed once the API answers; empty if it ended
            record = json.loads(line) if line else {"error": f"it ended with {process.wait()}"}
            if "error" in record:
                raise InfrastructureError(f"the service did not start: {record['error']}")
            yield str(record["url"])
        finally:
            process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _run(client: Client, seeds: int) -> list[dict[str, Any]]:
    """Submit one job a build, follow them, and return the rows of the table."""
    more = {"seeds": {"start": 0, "count": seeds}, "labels": {"suite": "demo"}}
    jobs = [
        client.call("POST", "/jobs", body={"test": TEST, "build": build, **more})["id"]
        for build in EXPECTED
    ]
    return [_row(client, follow(client, job)) for job in jobs]


def _row(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job's row of the table, from its stored numbers."""
    results = list(client.pages(f"/jobs/{job['id']}/results", limit=200))
    outputs = [judged for result in results for judged in result["outputs"].values()]
    worst = {
        name: max(
            (output[name] for output in outputs if output.get(name) is not None), default=None
        )
        for name in ("tolerance_ratio", "rounding_ratio")
    }
    diagnosis = client.call("GET", f"/jobs/{job['id']}/diagnosis") or {}
    return {
        "build": job["build"],
        "job": job["id"],
        "seeds": len(results),
        "green": sum(result["verdict"] in GREEN for result in results),
        **worst,
        "verdict": job.get("verdict"),
        "diagnosis": diagnosis.get("words") or "",
        "url": client.url + urls.job(job["id"]),
    }


def _table(rows: list[dict[str, Any]]) -> Table:
    """Return the table that makes the demo's point."""
    summary = Table(
        title="LayerNorm backward, 3x273x1x8462, uniform[-1, 1], rtol 1e-3, atol 0.5",
        title_style="bold",
        show_lines=True,
    )
    summary.add_column("build", no_wrap=True)
    summary.add_column("allclose(1e-3, .5)")
    summary.add_column("GoNoGo says", no_wrap=True)
    summary.add_column("worst error ÷ rounding", justify="right")
    summary.add_column("why", ratio=1, min_width=30)
    for row in rows:
        green, passes = f"{row['green']}/{row['seeds']} green", row["verdict"] == "pass"
        ratio = "-" if row["rounding_ratio"] is None else f"{row['rounding_ratio']:.3g}"
        why = "every error is explained by rounding" if passes else "no diagnosis"
        summary.add_row(
            row["build"],
            Text(green, style="green" if row["green"] == row["seeds"] else "red"),
            show.verdict(row["verdict"]),
            Text(ratio, style="green" if passes else "bold red"),
            row["diagnosis"] or why,
        )
    return summary


def _conclude(rows: list[dict[str, Any]], out: Console) -> bool:
    """Print the table, its point, and the pages; return whether every verdict is as expected."""
    as_expected = all(row["verdict"] == EXPECTED[row["build"]] for row in rows)
    out.print()
    out.print(_table(rows))
    if as_expected:
        point = (
            "Both are green on every seed. Only one of them computes LayerNorm: "
            "the other passes because its tolerance is loose."
        )
        out.print(Panel.fit(point, border_style="magenta"))
    else:
        out.print(f"[bold red]Unexpected:[/] the verdicts should be {EXPECTED}.")
    for row in rows:
        out.print(f"{row['build']:<14} {row['url']}", soft_wrap=True, highlight=False)
    return as_expected


def demo(
    leave: bool = typer.Option(
        False, "--exit", help="Stop when the table is printed, also on a terminal."
    ),
    seeds: int = typer.Option(4, min=1, help="Seeds per build, about a second each."),
    var: Path | None = typer.Option(
        None, help="Folder of the service (default: GONOGO_VAR_DIR, ./var)."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the table as JSON."),
) -> None:
    """Start everything, run the nightly test on a right and a wrong kernel, and compare them."""
    require_service()
    out = show.console(stderr=as_json)
    # SIGTERM ends the demo in the same, orderly way as Ctrl-C
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    began, good = time.monotonic(), False
    try:
        out.print("starting the service ...")
        with _service(var, out) as url, Client(url) as client:
            rows = _run(client, seeds)
            if as_json:
                show.print_json({"rows": rows, "seconds": time.monotonic() - began})
            good = _conclude(rows, out)
            out.print(f"[dim]{time.monotonic() - began:.0f} s[/]")
            if not leave and sys.stdout.isatty():
                out.print(f"\nThe service stays up at [bold link={url}]{url}[/]; Ctrl-C stops it.")
                signal.pause()
    except KeyboardInterrupt:
        out.print("\nstopped")
    except GonogoError as problem:
        if as_json:
            problems.tell(problem, 3)
        else:
            print(f"gonogo demo: {problem}", file=sys.stderr)
        raise typer.Exit(3) from None
    raise typer.Exit(0 if good else 1)
