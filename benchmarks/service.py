"""Measure what the service adds to the kernels' time: `python -m benchmarks.service`.

Real processes: `gonogo up` in a folder of its own.

Times of a job are differences between this process's clock and the times that the service stored
(one machine, one clock), read when the job is over, so that looking costs little while it runs.
Machines are shared and noisy: beside each figure is one of the same run.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]  # it ships no types
from rich.console import Console
from rich.table import Table

from gonogo.judging import inputs
from gonogo.judging.judging import judge
from gonogo.kernels.layernorm import emulation
from gonogo.spec.test_spec import TestSpec
from gonogo_storage.db.engine import make_engine, reading
from gonogo_storage.messages import event_positions
from gonogo_storage.messages import events as stored_events
from gonogo_storage.messages.events import Event

ROOT = Path(__file__).resolve().parent.parent
TINY: Mapping[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
JOBS = 20
SEEDS = 1000
REQUESTS = 100
RUNS = 5
PAUSE_S = 1.5
"""Between two single jobs: a fresh child is started after each, and the figure is that of a service
at rest."""
REST_S = 5.0
"""For which the service's processes are watched at rest."""
START_S = 60.0
PATIENCE_S = 120.0
CHECK = (
    "check",
    "--kernel",
    "layernorm_bw",
    "--shape",
    "1,1,32,1024",
    "--build",
    "correct",
    "--seeds",
    "1",
    "--rtol",
    "1e-3",
    "--atol",
    "0.5",
)


def environment() -> dict[str, str]:
    """This process's, without GONOGO_ variables, and this checkout first."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")} | {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    }


def command(*words: str) -> list[str]:
    """A gonogo command in this interpreter."""
    return [sys.executable, "-P", "-m", "gonogo_cli", *words]


@contextmanager
def running(folder: Path) -> Iterator[dict[str, Any]]:
    """`gonogo up` in `folder` on a free port; its record (url, database_url, ...).

    `supervisor` is the id of its process, which has all others below it.
    """
    words = command("up", "--port", "0", "--json")
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(
                    f"gonogo up ended with {process.wait()}; its logs said why above"
                )
            yield {**json.loads(line), "supervisor": process.pid}
        finally:
            process.terminate()
            process.wait(30)


class Service:
    """The running service: its API over one kept-alive connection, and the times that it stored."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        self.http = httpx.Client(base_url=record["url"] + "/api/v1", timeout=30, trust_env=False)
        self._engine = make_engine(record["database_url"])
        self._supervisor = psutil.Process(record["supervisor"])

    def cpu_s(self) -> float:
        """Return the processor seconds of all the service's processes, of ended ones, too."""
        seconds = 0.0
        for process in (self._supervisor, *self._supervisor.children(recursive=True)):
            try:
                seconds += sum(process.cpu_times()[:4])
            except psutil.NoSuchProcess:
                continue
        return seconds

    def close(self) -> None:
        """Give back the connections."""
        self.http.close()
        self._engine.dispose()

    def submit(self, seeds: int, **changes: Any) -> tuple[str, float]:
        """Submit a job of the tiny test; return its id and the time (s) just before the request."""
        body = {"test": TINY, "build": "correct", "seeds": {"start": 0, "count": seeds}, **changes}
        began = time.time()
        answer = self.http.post("/jobs", json=body)
        answer.raise_for_status()
        return str(answer.json()["id"]), began

    def ended(self, job: str) -> list[Event[dict[str, Any]]]:
        """Wait for the job's end; its events, in order.

        Raises RuntimeError when it didn't pass or took too long.
        """
        deadline = time.monotonic() + PATIENCE_S
        while True:
            with reading(self._engine) as session:
                position = event_positions.positions(session, [job])[job]
            if position.final:
                break
            if time.monotonic() > deadline:
                raise RuntimeError(f"job {job} did not end within {PATIENCE_S:.0f} s")
            time.sleep(0.05)
        events: list[Event[dict[str, Any]]] = []
        with reading(self._engine) as session:
            while more := stored_events.after(session, job, events[-1].number if events else 0):
                events += more
        last = [event.data for event in events if event.type == "state"][-1]
        if last.get("verdict") != "pass":
            raise RuntimeError(f"job {job} ended as {last}")
        return events


def moment(events: Sequence[Event[Any]], matches: Callable[[Event[Any]], bool]) -> float:
    """When the first such event was stored, in s since the epoch."""
    return next(event.at.timestamp() for event in events if event.at and matches(event))


def becomes(state: str) -> Callable[[Event[Any]], bool]:
    """Whether an event says that the job is now in this state."""
    return lambda event: event.type == "state" and event.data["state"] == state


def p50_p95(milliseconds: Sequence[float]) -> str:
    """Both, as text."""
    ordered = sorted(milliseconds)
    return (
        f"p50 {statistics.median(ordered):.1f}, p95 "
        f"{ordered[int(0.95 * (len(ordered) - 1))]:.1f} ms"
    )


def first_seed(service: Service) -> tuple[list[float], list[float]]:
    """Return milliseconds from before POST until a worker runs the job, and to the first result."""
    runs, results = [], []
    for _ in range(JOBS):
        time.sleep(PAUSE_S)
        job, began = service.submit(1)
        events = service.ended(job)
        runs.append(1e3 * (moment(events, becomes("running")) - began))
        results.append(
            1e3 * (moment(events, lambda event: event.type in {"progress", "verdict"}) - began)
        )
    return runs, results


@dataclass(frozen=True)
class PerSeed:
    """Milliseconds a seed of a large job, and of the same work in this process."""

    wall: float
    cpu: float
    """Processor time of all the service's processes, beyond what they use at rest."""
    alone: float
    alone_cpu: float


def per_seed(service: Service) -> PerSeed:
    """Return milliseconds a seed of a large job, from POST to its end, and of the same work here.

    The work here runs one seed after the other.
    """
    measured = []
    for _ in range(3):
        time.sleep(PAUSE_S)  # the next child starts now
        resting = service.cpu_s()
        time.sleep(REST_S)  # the processor time that the service uses at rest
        before, start = service.cpu_s(), time.perf_counter()
        job, began = service.submit(SEEDS)
        events = service.ended(job)
        rest_s = (before - resting) / REST_S * (time.perf_counter() - start)
        cpu = 1e3 * (service.cpu_s() - before - rest_s) / SEEDS
        wall = 1e3 * (moment(events, becomes("finished")) - began) / SEEDS
        measured.append((wall, cpu, *in_process()))
    return PerSeed(*(statistics.median(figures) for figures in zip(*measured, strict=True)))


def in_process(seeds: int = 200) -> tuple[float, float]:
    """Make the inputs, run the emulated kernel and judge; return milliseconds a seed: wall, CPU."""
    test = TestSpec.parse(TINY)
    for counted in (False, True):
        began, cpu = time.perf_counter(), time.process_time()
        for seed in range(seeds if counted else 1):
            raw = inputs.generate(test, seed)
            given = inputs.quantise(test, raw)
            judge(
                test,
                raw,
                given,
                emulation.run(test, given, "correct", seed=seed),
                arithmetic="tt-train",
            )
    return (
        1e3 * (time.perf_counter() - began) / seeds,
        1e3 * (time.process_time() - cpu) / seeds,
    )


def requests(service: Service) -> dict[str, list[float]]:
    """Milliseconds of each kind of request, seen from this process over one connection, in turn.

    Nobody serves these jobs' queue.
    """
    times: dict[str, list[float]] = {"POST /jobs": [], "GET /jobs/{id}": [], "GET /healthz": []}
    health = str(service.http.base_url.copy_with(path="/healthz"))
    elsewhere = {"executor": "emulator", "arch": "wormhole", "board": "n300"}
    for counted in range(-3, REQUESTS):
        began = time.perf_counter()
        job, _ = service.submit(10, target=elsewhere)
        posted = time.perf_counter()
        service.http.get(f"/jobs/{job}").raise_for_status()
        got = time.perf_counter()
        service.http.get(health).raise_for_status()
        if counted >= 0:
            for name, seconds in zip(
                times, (posted - began, got - posted, time.perf_counter() - got), strict=True
            ):
                times[name].append(1e3 * seconds)
    return times


def walls(*commands: Sequence[str]) -> list[float]:
    """Median wall seconds of runs command, in turn, after one run that is not counted."""
    times: list[list[float]] = [[] for _ in commands]
    with tempfile.TemporaryDirectory() as folder:
        for counted in range(-1, RUNS):
            for place, words in enumerate(commands):
                began = time.perf_counter()
                done = subprocess.run(
                    words,
                    cwd=folder,
                    env=environment(),
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                )
                if done.returncode:
                    raise RuntimeError(
                        f"{' '.join(words)} exits with {done.returncode}: {done.stderr[-500:]}"
                    )
                if counted >= 0:
                    times[place].append(time.perf_counter() - began)
    return [statistics.median(runs) for runs in times]


def main() -> int:
    """Print the table."""
    table = Table("figure", "asked", "measured", "beside it")
    bare, help_, check = walls([sys.executable, "-c", "pass"], command("--help"), command(*CHECK))
    with tempfile.TemporaryDirectory() as folder, running(Path(folder)) as record:
        service = Service(record)
        try:
            service.ended(service.submit(1)[0])  # the worker's compiled code is loaded
            runs, results = first_seed(service)
            job = per_seed(service)
            times = requests(service)
        finally:
            service.close()
    table.add_row(
        (
            "from before POST /jobs to the first seed run, judged and stored: later than its "
            f"start ({JOBS} jobs, service at rest)"
        ),
        "p50 < 150 ms",
        p50_p95(results),
        f"until the worker's word that it takes the job up is stored: {p50_p95(runs)}",
    )
    table.add_row(
        f"a job of {SEEDS} tiny seeds: what the service adds to inputs, kernel and judging",
        "< .6 ms a seed",
        f"{job.wall - job.alone:.2f} ms of wall, {job.cpu - job.alone_cpu:.2f} ms of CPU a seed",
        (
            f"the job: {job.wall:.2f} ms of wall, {job.cpu:.2f} ms of CPU a seed; the same work in "
            f"one process: {job.alone:.2f} ms, {job.alone_cpu:.2f} ms"
        ),
    )
    health = statistics.median(times["GET /healthz"])
    for name in ("POST /jobs", "GET /jobs/{id}"):
        middle = statistics.median(times[name])
        beside = f"{middle / health:.1f} times GET /healthz ({health:.1f} ms)"
        table.add_row(f"{name}, seen by a client on this machine", "", p50_p95(times[name]), beside)
    table.add_row(
        "gonogo --help",
        "< 0.5 s",
        f"{help_:.2f} s",
        f"{help_ / bare:.0f} times `python -c pass` ({bare:.3f} s)",
    )
    table.add_row(
        f"gonogo {' '.join(CHECK)}",
        "< 3 s",
        f"{check:.2f} s",
        f"{check / bare:.0f} times `python -c pass`",
    )
    Console(width=170 if not sys.stdout.isatty() else None).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
