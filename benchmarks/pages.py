"""Measure the pages on a large database: server time, and when two pages are painted.

`python -m benchmarks.pages [--seeds N] [--requests N] [--folder F] [--postgres]`. The
database (SQLite, in a temporary folder, some 1.2 kB a seed; or a private PostgreSQL) is made
anew and removed at the end. Asked for 10 million seeds: p95 of a page's server time under 100 ms,
first contentful paint of the overview and of a test's page within .4 s (the browser part needs
playwright and chromium).
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import psutil
from pydantic import SecretStr
from rich.console import Console
from sqlalchemy import func, select

from benchmarks import harvest
from benchmarks.report import Figure, report
from gonogo import urls
from gonogo.settings import PREFIX, Settings
from gonogo_service.background.assess import Assessor
from gonogo_service.flags import evidence
from gonogo_service.flags import store as flags
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.background_context import open_background_context
from gonogo_service.kit.database import engine as engines
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.operate import schema

WARM_UP, START_S = 5, 60.0
P95_MS, PAINT_MS = 100.0, 400.0
PAINT = "performance.getEntriesByName('first-contentful-paint')"
PER_JOB, TESTS, HUGE = 1000, 60, 1_000_000
SMALL: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
SUITE = {
    "name": "bench",
    "builds": ["correct"],
    "entries": [{"name": "small", "test": SMALL, "seeds": {"count": 2}}],
}
console = Console(highlight=False)


def main(words: list[str] | None = None) -> int:
    """Build, serve, measure; 1 if a page is slower than what is asked."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pages", description=__doc__)
    parser.add_argument("--seeds", type=int, default=10_000_000)
    parser.add_argument("--requests", type=int, default=50, choices=range(2, 10_000), metavar="N")
    parser.add_argument(
        "--folder", type=Path, help="keep the database here, or use the one that is here"
    )
    parser.add_argument("--postgres", action="store_true", help="on a PostgreSQL of its own")
    options = parser.parse_args(words)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="gonogo-pages-"))
    try:
        folder.mkdir(exist_ok=True, parents=True)
        file = nullcontext(f"sqlite:///{folder / 'gonogo.sqlite'}")
        with postgres() if options.postgres else file as url:
            if is_empty(url):
                build(url, options.seeds)
            return measure(url, options.requests)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def postgres() -> Iterator[str]:
    """Run the tests' PostgreSQL, which commits without waiting for its disk; yield its URL."""
    from servers import PostgresServer

    server = PostgresServer()
    server.start()
    try:
        yield server.url()
    finally:
        server.close()


def is_empty(url: str) -> bool:
    """Make the tables where there are none; say whether there is no job in them."""
    engine = engines.make_engine(url)
    schema.upgrade(engine)
    with engines.reading(engine) as session:
        empty = session.scalar(select(JobRow.id).limit(1)) is None
    engine.dispose()
    return empty


def build(url: str, seeds: int) -> None:
    """Make the database: TESTS tests on several builds, one job of HUGE seeds, assessed."""
    began = time.monotonic()
    engine = engines.make_engine(url)
    now = utcnow()
    tests = [harvest.spec(number) for number in range(TESTS)]
    builds = max(4, round((seeds - HUGE) / (TESTS * PER_JOB)))
    with engines.session(engine) as session:
        first = harvest.Place(harvest.spec(TESTS), "b0000", 0, now - timedelta(days=builds + 2))
        sources = [
            harvest.Source(session, harvest.stored(session, kind, first, PER_JOB))
            for kind in harvest.KINDS
        ]
    for sequence in range(1, builds + 1):
        with engines.session(engine) as session:
            at = now - timedelta(days=builds - sequence + 1)
            harvest.night(session, sources, tests, sequence, at=at, fixed=2 * sequence > builds)
    with engines.session(engine) as session:
        sources[1].copy(
            session,
            harvest.Place(tests[3], f"b{builds + 1:04d}", builds + 1, now),
            times=HUGE // PER_JOB,
            number=TESTS,
        )
        for row in list(
            session.scalars(
                select(JobRow).where(
                    JobRow.build == f"b{builds:04d}", JobRow.verdict == "pass_by_tolerance"
                )
            )
        ):
            for finding in evidence.findings(session, row):
                flags.upsert(session, finding, now=now)
    assessed = assess(url)
    with engines.reading(engine) as session:
        stored = session.scalar(select(func.sum(JobRow.done)))
    engine.dispose()  # the last connection empties SQLite's log into the file
    took = time.monotonic() - began
    console.print(
        f"{stored:,} seeds of {TESTS} tests on {builds} builds, {assessed} assessed: "
        f"{size_of(url)}made in {took:.0f} s"
    )


def size_of(url: str) -> str:
    """Return the size of SQLite's file in words; "" for PostgreSQL."""
    file = Path(url.removeprefix("sqlite:///"))
    return f"{file.stat().st_size / 2**30:.2f} GiB, " if file.exists() else ""


@contextmanager
def assessing(url: str) -> Iterator[Assessor]:
    """Yield what assesses tests in the background."""
    settings = Settings(
        database_url=url, broker_url="redis://127.0.0.1:1/0", secret_key=SecretStr("k" * 40)
    )
    core = open_background_context(settings, threading.Event())
    try:
        yield Assessor(core)
    finally:
        core.close()


def assess(url: str) -> int:
    """Assess every test as the background does; return how many."""
    with assessing(url) as assessor:
        return sum(iter(assessor.run_once, 0))


@contextmanager
def served(database_url: str) -> Iterator[tuple[str, psutil.Process]]:
    """Serve this database as `gonogo up` does; yield the address and the process."""
    settings = {
        "DATABASE_URL": database_url,
        "BROKER_URL": "redis://127.0.0.1:1/0",
        "SECRET_KEY": "k" * 40,
        "EMBEDDED": "1",
    }
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(PREFIX)
    } | {f"{PREFIX}{name}": value for name, value in settings.items()}
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as listening:  # what asks before it answers waits in the queue of this socket
        port, fd = listening.getsockname()[1], listening.fileno()
        words = [sys.executable, "-P", "-m", "gonogo.cli", "serve", "--fd", str(fd)]
        process = subprocess.Popen(
            words, cwd=tempfile.gettempdir(), env=variables, stdin=subprocess.DEVNULL, pass_fds=[fd]
        )
    try:
        url = f"http://127.0.0.1:{port}"
        try:
            httpx.get(f"{url}/healthz", timeout=START_S)
        except httpx.TransportError as problem:
            raise RuntimeError(
                f"gonogo serve does not answer (it ended with {process.poll()}); its log "
                "said why above"
            ) from problem
        yield url, psutil.Process(process.pid)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def addresses(database_url: str, url: str) -> dict[str, str]:
    """Return the addresses to measure, by name."""
    with httpx.Client(base_url=url) as client:

        def post(noun: str, body: dict[str, Any]) -> str:
            answer = client.post(f"{urls.API}/{noun}", json=body)
            answer.raise_for_status()
            return str(answer.json()["id"])

        run = post("runs", {"suite": SUITE})
        gauge = post("gauges", {"test": SMALL, "seeds": {"count": 2}})
        bisection = post("bisections", {"test": SMALL, "builds": ["correct"] * 16})
        flagged = client.get("/flags.json?limit=1").json()["items"]
    engine = engines.make_engine(database_url)
    with engines.reading(engine) as session:
        branch_jobs = select(JobRow.id).where(JobRow.branch == harvest.LINE)
        largest, newest = (
            branch_jobs.order_by(JobRow.done.desc()),
            branch_jobs.order_by(JobRow.build_sequence.desc(), JobRow.done, JobRow.id),
        )
        huge, plain = (
            jobs.get(session, session.scalars(query.limit(1)).one())
            for query in (largest, newest.where(JobRow.done == PER_JOB))
        )
        assert huge is not None
        assert plain is not None
        base = (
            session.scalars(
                select(JobRow.build)
                .where(JobRow.build < plain.build)
                .order_by(JobRow.build.desc())
                .limit(1)
            ).first()
            or ""
        )
    engine.dispose()
    pages = {
        "overview": urls.overview(),
        "jobs": urls.jobs(),
        "jobs, hollow": urls.jobs({"verdict": "pass_by_tolerance"}),
        "job": urls.job(plain.id),
        f"job of {huge.total:,} seeds": urls.job(huge.id),
        "new job": urls.NEW_JOB,
        "runs": urls.runs(),
        "run": urls.run(run),
        "schedules": urls.schedules(),
        "tests": urls.catalogue(),
        "tests, searched": urls.catalogue({"search": "3x273 atol=0.5", "range": "90d"}),
        "search": urls.search("b01"),
        "what got worse": urls.worse({"branch": harvest.LINE, "since": "2020-01-01"}),
        "builds to compare": urls.compare(),
        "test": urls.history(plain.test_key),
        "test, huge": urls.history(huge.test_key),
        "matrix": urls.matrix({"branch": harvest.LINE}),
        "compare": urls.compare(base, plain.build),
        "my branch": urls.branch({"head": plain.build}),
        "tolerances": urls.tolerances(),
        "waivers": urls.waivers(),
        "gauges": urls.gauges(),
        "gauge": urls.gauge(gauge),
        "bisections": urls.bisections(),
        "bisection": urls.bisection(bisection),
        "flags": urls.flags(),
        "devices": urls.devices(),
        "webhooks": urls.webhooks(),
        "answers": urls.answers(),
        "incoming webhooks": urls.hooks(),
        "rules": urls.rules(),
    }
    return pages | ({"flag": urls.flag(flagged[0]["id"])} if flagged else {})


def measure(database_url: str, requests: int) -> int:
    """Ask for each page again and again, one request at a time; report the times."""
    with served(database_url) as (url, process):
        pages = addresses(database_url, url)
        headers = {"Accept-Encoding": "identity"}
        with httpx.Client(base_url=url, headers=headers, timeout=60) as client:
            figures = [
                page_figure(client, process, name, path, requests) for name, path in pages.items()
            ]
        figures += painted(url, {name: pages[name] for name in ("overview", "test, huge")})
    return report("pages", figures)


def page_figure(
    client: httpx.Client, process: psutil.Process, name: str, path: str, requests: int
) -> Figure:
    """Return the p95 of a page's server time; beside it median, processor time and size."""
    times, size, busy = [], 0, 0.0
    for number in range(WARM_UP + requests):
        busy = cpu(process) if number == WARM_UP else busy
        began = time.perf_counter()
        answer = client.get(path)
        took = 1000 * (time.perf_counter() - began)
        answer.raise_for_status()
        size = len(answer.content)
        times += [took] if number >= WARM_UP else []
    busy_ms = 1000 * (cpu(process) - busy) / requests
    note = f"p50 {statistics.median(times):.1f} ms, {busy_ms:.1f} ms of CPU, {size / 1000:.0f} kB"
    p95 = statistics.quantiles(times, n=20)[-1]
    return Figure(f"{name}: p95", p95, "ms", most=P95_MS, note=note)


def cpu(process: psutil.Process) -> float:
    """Seconds of processor time so far: what a page costs whatever else the machine does."""
    times = process.cpu_times()
    return float(times.user + times.system)


def chromium() -> str | None:
    """Return the browser that GONOGO_CHROMIUM names, or an installed one."""
    known = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    return os.environ.get("GONOGO_CHROMIUM") or known


def painted(url: str, pages: dict[str, str]) -> list[Figure]:
    """Return the first contentful paint in a fresh browser, the median of five; [] without one."""
    program = chromium()
    if program is None:
        console.print("chromium is not installed: nothing painted")
        return []
    from playwright.sync_api import sync_playwright

    figures = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox"] if os.getuid() == 0 else []
        )
        for name, path in pages.items():
            times = []
            for _ in range(5):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                page = context.new_page()
                page.goto(url + path, wait_until="load")
                page.wait_for_function(f"() => {PAINT}.length > 0")
                times.append(float(page.evaluate(f"{PAINT}[0].startTime")))
                context.close()
            note = f"{min(times):.0f} to {max(times):.0f} ms"
            median = statistics.median(times)
            figures.append(Figure(f"{name}: painted", median, "ms", most=PAINT_MS, note=note))
        browser.close()
    return figures


if __name__ == "__main__":
    sys.exit(main())
