"""`gonogo demo`: the reason why GoNoGo exists, in one minute.

The nightly LayerNorm backward test, for a right kernel and for the one that was wrong for months.
allclose is green for both on every seed; the table at the end shows what GoNoGo says.
"""

from __future__ import annotations

import json
import os
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
from gonogo_service.cli.operate.up import own_command, read_record

TEST: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [3, 273, 1, 8462],
    "inputs": {"regime": "uniform", "low": -1, "high": 1},
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
EXPECTED = {"correct": "pass", "tt-train-2025": "pass_by_tolerance"}
"""Build -> the verdict that the demo must end with."""
STOP_S = 15.0


@contextmanager
def service(var: Path | None, out: Console) -> Iterator[str]:
    """Yield the URL of a running service.

    That is this folder's `gonogo up`, else one that is started for the demo and stopped at the end.
    """
    folder = (var or Path(gonogo.settings.load().var_dir)).absolute()
    record = read_record(folder)
    if record is not None and alive(record["pid"]):
        out.print(f"using the service that runs at {record['url']}")
        yield str(record["url"])
        return
    command = own_command("up", "--any-port", "--json", "--var", str(folder))
    # its own session: Ctrl-C reaches the demo, which then stops it in order
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # printed once the API answers; empty if it ended before
        record = json.loads(line) if line else {"error": f"it ended with {process.wait()}"}
        if "error" in record:
            raise InfrastructureError(f"the service did not start: {record['error']}")
        yield str(record["url"])
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()


def alive(pid: int) -> bool:
    """Whether a process with this number runs."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def run_jobs(client: Client, seeds: int, out: Console) -> dict[str, dict[str, Any]]:
    """Submit one job a build and follow them all with progress bars; build -> ended job."""
    jobs = {}
    for build in EXPECTED:
        body = {
            "test": TEST,
            "build": build,
            "seeds": {"start": 0, "count": seeds},
            "labels": {"suite": "demo"},
        }
        jobs[build] = client.call("POST", "/jobs", body=body)["id"]
    width = max(map(len, jobs))
    with show.progress(out) as bars:
        tasks = {
            build: bars.add_task(f"{build:<{width}}", total=seeds, note="waiting") for build in jobs
        }
        for build, job in jobs.items():
            if not out.is_terminal:
                out.print(f"running {build}: {seeds} {'seed' if seeds == 1 else 'seeds'} ...")
            for kind, data in client.follow(job):
                if kind == "progress":
                    bars.update(
                        tasks[build],
                        completed=data["done"],
                        note=show.counts(data.get("verdicts") or {}),
                    )
                elif kind == "state":
                    bars.update(tasks[build], note=data["state"])
            ended = client.job(job)
            bars.update(
                tasks[build], completed=ended["done"], note=show.counts(ended.get("counts") or {})
            )
    return {build: client.job(job) for build, job in jobs.items()}


def row(client: Client, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job's row of the table, from its stored numbers."""
    results = list(client.pages(f"/jobs/{job['id']}/results", limit=200))
    outputs = [judged for result in results for judged in result["outputs"].values()]
    ratios = [
        judged["tolerance_ratio"] for judged in outputs if judged.get("tolerance_ratio") is not None
    ]
    rounding = [
        judged["rounding_ratio"] for judged in outputs if judged.get("rounding_ratio") is not None
    ]
    green = sum(
        1 for result in results if result["verdict"] in {"pass", "pass_by_tolerance", "suspect"}
    )
    diagnosis = client.call("GET", f"/jobs/{job['id']}/diagnosis") or {}
    return {
        "build": job["build"],
        "job": job["id"],
        "seeds": len(results),
        "green": green,
        "tolerance_ratio": max(ratios, default=None),
        "rounding_ratio": max(rounding, default=None),
        "verdict": job.get("verdict"),
        "diagnosis": diagnosis.get("words") or "",
        "url": client.url + urls.job(job["id"]),
    }


def table(rows: list[dict[str, Any]]) -> Table:
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
        all_green = row["green"] == row["seeds"]
        allclose = Text(
            f"{row['green']}/{row['seeds']} green", style="green" if all_green else "red"
        )
        rounding = row["rounding_ratio"]
        ratio = Text(
            "-" if rounding is None else f"{rounding:.3g}",
            style="green" if row["verdict"] == "pass" else "bold red",
        )
        words = row["diagnosis"] or (
            "every error is explained by rounding" if row["verdict"] == "pass" else "no diagnosis"
        )
        summary.add_row(row["build"], allclose, show.verdict(row["verdict"]), ratio, words)
    return summary


def conclude(rows: list[dict[str, Any]], out: Console) -> bool:
    """Print the table, its point, and the pages; return whether every verdict is as expected."""
    as_expected = all(row["verdict"] == EXPECTED[row["build"]] for row in rows)
    out.print()
    out.print(table(rows))
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
    signal.signal(
        signal.SIGTERM, signal.default_int_handler
    )  # both end the demo the same, orderly way
    began = time.monotonic()
    good = False
    try:
        out.print("starting the service ...")
        with service(var, out) as url, Client(url) as client:
            rows = [row(client, job) for job in run_jobs(client, seeds, out).values()]
            if as_json:
                show.print_json({"rows": rows, "seconds": time.monotonic() - began})
            good = conclude(rows, out)
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
