"""Measure GET /readyz under attack, and GET /compare: `python -m benchmarks.attack`.

A real `gonogo serve`, a real Redis or Valkey, and SQLite with two imports of 19,900 tests each. The
first phases add up: heavy reads by three tokens, hostile bodies, then strangers with slow bodies,
half headers and large deliveries that nobody signed. The others run by themselves: a client behind
a proxy, senders that don't wait for answers, half headers and slow bodies from several networks,
and floods of probes. Asked: readyz in under 100 ms (median and 95th percentile; else it exits with
1), compare in under .5 s. The attackers have less priority than the service, because in earnest
they have machines of their own.
"""

from __future__ import annotations

import argparse
import math
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import httpx
import psutil  # type: ignore[import-untyped]  # it ships no types
from rich.console import Console
from rich.table import Table

from benchmarks.attackers import ALONE, TOGETHER, Target, attacking
from benchmarks.flow import private_redis
from benchmarks.service import command, environment
from gonogo import urls
from gonogo_service.access.issuing import issue_token
from gonogo_service.access.principals import Keys
from gonogo_settings import Settings
from gonogo_storage.db import engine as engines
from gonogo_storage.ops import schema

TESTS = 19_900
"""The tests of tt-train's nightly file, on which the comparison once took 41 s."""
READY_MS, COMPARE_S = 100.0, 0.5
KEY = "k" * 40
START_S = 60.0
PAUSE_S = 0.05
COMPARES = 5


def probe(port: int, seconds: float) -> list[float]:
    """Return the milliseconds of each GET /readyz, each over a connection of its own.

    One that is refused or not ready never came.
    """
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        began, status = time.perf_counter(), 0
        with suppress(OSError, HTTPException):
            connection = HTTPConnection("127.0.0.1", port, timeout=30)
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            answer.read()
            connection.close()
            status = answer.status
        times.append(1e3 * (time.perf_counter() - began) if status == 200 else math.inf)
        time.sleep(PAUSE_S)
    return sorted(times)


def p95(ordered: Sequence[float]) -> float:
    """Return the 95th percentile."""
    return ordered[int(0.95 * (len(ordered) - 1))]


def report(failing: int) -> bytes:
    """Return a JUnit file in which each `failing`-th test has failed."""
    failure = '<failure message="max abs error 0.75 exceeds the tolerance 0.5">trace</failure>'
    cases = (
        f'<testcase classname="LayerNormBackward.suite{number % 97}" '
        f'name="NIGHTLY_LargeFeatures_{number:05d}" time="0.01">'
        f"{failure if number % failing == 0 else ''}</testcase>"
        for number in range(TESTS)
    )
    return f'<testsuites><testsuite name="big">{"".join(cases)}</testsuite></testsuites>'.encode()


@contextmanager
def served(file: Path, redis_url: str) -> Iterator[tuple[Target, psutil.Process]]:
    """Run `gonogo serve` on the database, which is made where it doesn't exist."""
    is_new, url = not file.exists(), f"sqlite:///{file}"
    engine = engines.make_engine(url)
    schema.upgrade(engine)
    with engines.session(engine) as session:
        tokens = tuple(
            issue_token(session, f"bench-{number}", ["submit"], keys=Keys(KEY), settings=Settings())
            for number in range(3)
        )
    engine.dispose()
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        port = int(listener.getsockname()[1])
        process = subprocess.Popen(
            command("serve", "--fd", str(listener.fileno())),
            cwd=file.parent,
            env=environment()
            | {
                "GONOGO_DATABASE_URL": url,
                "GONOGO_BROKER_URL": redis_url,
                "GONOGO_SECRET_KEY": KEY,
                "GONOGO_GITHUB_WEBHOOK_SECRET": "g" * 40,
                # the service at its work, not at refusing it
                "GONOGO_QUOTA_REQUESTS": "0",
                "GONOGO_PROXIES": "127.0.0.1",
                "GONOGO_LOG_LEVEL": "error",
            },
            pass_fds=[listener.fileno()],
        )
        try:
            target = Target(port, tokens, "")
            wait_ready(target)
            if is_new:
                upload(target)
            yield Target(port, tokens, urls.history(_test(target))), psutil.Process(process.pid)
        finally:
            process.kill()
            process.wait()


def wait_ready(target: Target) -> None:
    """Wait until the service is ready. Raises TimeoutError."""
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        with suppress(httpx.TransportError), target.client() as client:
            if client.get("/readyz").is_success:
                return
        time.sleep(0.1)
    raise TimeoutError(f"`gonogo serve` was not ready within {START_S:g} s")


def upload(target: Target) -> None:
    """Import both files."""
    with target.client(0) as client:
        for build, failing in (("base", 7), ("head", 5)):
            query = {"format": "junit", "build": build, "suite": "big"}
            client.post(urls.IMPORTS, params=query, content=report(failing)).raise_for_status()


def _test(target: Target) -> str:
    with target.client(0) as client:
        return str(client.get(f"{urls.API}/tests").raise_for_status().json()["items"][0]["key"])


def compares(target: Target, process: psutil.Process) -> tuple[float, float]:
    """Return the median seconds of GET /compare, by the clock and of the service's processor."""
    walls, busy = [], []
    with target.client(0) as client:
        for counted in range(-1, COMPARES):
            before, began = sum(process.cpu_times()[:2]), time.perf_counter()
            client.get(f"{urls.API}/compare?base=base&head=head").raise_for_status()
            if counted >= 0:
                walls.append(time.perf_counter() - began)
                busy.append(sum(process.cpu_times()[:2]) - before)
    return statistics.median(walls), statistics.median(busy)


def measure(file: Path, redis_url: str, seconds: float) -> tuple[Table, list[str]]:
    """Return the table of all phases, and the names of those whose probes took too long."""
    table = Table("phase", "asked", "median", "p95", "times the idle service's")
    with served(file, redis_url) as (target, process):
        wall, busy = compares(target, process)
        idle = probe(target.port, seconds)
        rows = {"nothing else": idle}
        running: list[str] = []

        def phase(names: Sequence[str]) -> None:
            if not names:
                return
            with attacking(names[0], target):
                running.append(names[0])
                time.sleep(2)  # the attacker's start
                rows[names[0]] = probe(target.port, seconds)
                phase(names[1:])

        phase(list(TOGETHER))
        for name in ALONE:
            phase([name])
    slow = []
    for name, times in rows.items():
        median, high = statistics.median(times), p95(times)
        if max(median, high) >= READY_MS:
            slow.append(name)
        table.add_row(
            f"GET /readyz, {name}",
            f"{READY_MS:g} ms",
            f"{median:.0f} ms",
            f"{high:.0f} ms",
            f"{median / statistics.median(idle):.1f}, p95 {high / p95(idle):.1f}",
        )
    table.add_row(
        f"GET /compare, {TESTS:,} tests", f"{COMPARE_S} s", f"{wall:.2f} s", "", f"CPU {busy:.2f} s"
    )
    return table, slow


def main(words: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.attack",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seconds", type=float, default=6.0, help="of each phase (default 6)")
    parser.add_argument(
        "--folder", type=Path, help="keep the database here, or use the one that is here"
    )
    options = parser.parse_args(words)
    folder = options.folder or Path(tempfile.mkdtemp(prefix="gonogo-attack-", dir="/tmp"))
    try:
        folder.mkdir(exist_ok=True, parents=True)
        with tempfile.TemporaryDirectory(dir="/tmp") as name, private_redis(Path(name)) as url:
            table, slow = measure(folder / "gonogo.sqlite", url, options.seconds)
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    Console(width=150 if not sys.stdout.isatty() else None).print(table)
    for name in slow:
        print(f"too slow: GET /readyz, {name}", file=sys.stderr)
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
