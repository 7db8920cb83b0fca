"""A whole GoNoGo of real processes for acceptance tests: production's shape (API, background,
workers, each alone) or `gonogo up`."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import psutil

import migrated_files
from checkout import PYTHONPATH, ROOT
from forked import Forked
from gonogo.cli.kit.client import Client
from gonogo_service.cli.operate.db import join_here
from gonogo_service.kit.database.engine import make_engine
from patience import WAIT_S, scaled

TINY: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
HOST = "lab-1"

QUICK = {
    "GONOGO_HEARTBEAT_S": "0.5",
    "GONOGO_HEARTBEAT_TIMEOUT_S": str(scaled(2)),
    "GONOGO_POLL_S": "0.5",
}
"""Settings under which bad luck is noticed within seconds. A background process that looked for
work five times a second would take a tenth of a processor, twice as much."""


def gonogo(*words: str) -> list[str]:
    """The command line of a gonogo command in this interpreter."""
    return [sys.executable, "-P", "-m", "gonogo.cli", *words]


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without variables of GoNoGo and pytest, the checkout importable,
    plug-ins of tests/plugins on the path."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("GONOGO_", "PYTEST_"))
    }
    return (
        inherited
        | {
            "PYTHONPATH": f"{PYTHONPATH}{os.pathsep}{ROOT / 'tests' / 'plugins'}",
            "GONOGO_CHILD_VARIABLES": "TROUBLE_*,REPORT_*",
        }
        | extra
    )


def until(
    condition: Callable[[], Any],
    seconds: float = WAIT_S,
    what: str | Callable[[], str] = "the condition",
) -> Any:
    """Wait until `condition()` is truthy and give that value; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            words = what if isinstance(what, str) else what()
            raise AssertionError(f"waited {seconds:.0f} s for {words}")
        time.sleep(0.1)


def family(pid: int) -> list[psutil.Process]:
    """A process and everything that it started."""
    try:
        process = psutil.Process(pid)
        return [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def gone(processes: Iterable[psutil.Process]) -> bool:
    """Return whether none of the processes runs any more; a zombie has ended."""
    return not any(_runs(process) for process in processes)


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it ended between the two questions
        return False


class Process:
    """One gonogo process that a test may kill, pause and start again. A `listener` is handed over
    at each start, as systemd does."""

    def __init__(
        self,
        words: list[str],
        environment: dict[str, str],
        log: Path,
        listener: socket.socket | None = None,
    ) -> None:
        self.words, self.environment, self.log = words, environment, log
        self.listener = listener
        self.process: Forked | None = None

    def start(self, ahead_s: float = 0.0) -> None:
        """Start it, in a session of its own; its wall clock is ahead by `ahead_s`."""
        self.process = Forked(
            self.words, self.environment, self.log, listener=self.listener, ahead_s=ahead_s
        )

    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """SIGSTOP, and SIGCONT at the end of the block."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """kill -9, the process alone: what it started is not told."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(WAIT_S)

    def stop(self) -> int:
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(WAIT_S)

    def close(self) -> None:
        """End it whatever it does, with all that it started."""
        if self.process is not None:
            left = family(self.process.pid)
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(WAIT_S)
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self.process = None


class Service:
    """API, background and workers as production runs them, on the given database and broker."""

    def __init__(self, folder: Path, database_url: str, broker_url: str, **extra: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        self.folder, self.url = folder, f"http://127.0.0.1:{port}"
        worker = clean_environment(**QUICK, **extra) | {
            "GONOGO_BROKER_URL": broker_url,
            "GONOGO_VAR_DIR": str(folder / "var"),
        }
        # embedded: no login on loopback, which other tests are about
        self.environment = worker | {
            "GONOGO_EMBEDDED": "true",
            "GONOGO_DATABASE_URL": database_url,
            "GONOGO_SECRET_KEY": secrets.token_urlsafe(32),
        }
        self.api = Process(["serve", "--port", str(port)], self.environment, folder / "api.log")
        self.background = Process(["background"], self.environment, folder / "background.log")
        self.workers = [
            Process(["worker", "--executor", "emulator"], worker, folder / "worker.log")
        ]
        self.worker_environment = worker
        self._is_upgraded = False

    @property
    def worker(self) -> Process:
        return self.workers[0]

    @property
    def processes(self) -> list[Process]:
        return [self.api, self.background, *self.workers]

    def add_worker(self, executor: str, **environment: str) -> Process:
        self.upgrade()
        variables = {**self.worker_environment, **environment}
        process = Process(
            ["worker", "--executor", executor],
            variables,
            self.folder / f"worker-{len(self.workers)}.log",
        )
        self.workers.append(process)
        process.start()
        return process

    def upgrade(self) -> None:
        """Make the tables and add the host, as `gonogo db upgrade --host` does (whose process
        starts twenty times as slowly as it works)."""
        if self._is_upgraded:
            return
        self._is_upgraded = True
        engine = make_engine(self.environment["GONOGO_DATABASE_URL"])
        migrated_files.upgrade(engine)
        join_here(
            engine,
            HOST,
            self.url,
            Path(self.environment["GONOGO_VAR_DIR"]),
            self.environment["GONOGO_SECRET_KEY"],
        )
        engine.dispose()

    def start(self) -> None:
        """Make the tables, start all, wait until the API is ready."""
        self.upgrade()
        for worker in self.workers:
            worker.start()
        self.start_all_but_workers()

    def start_all_but_workers(self) -> None:
        """The same for a test that has started workers of its own."""
        self.upgrade()
        self.api.start()
        self.background.start()
        self.wait_ready()

    def wait_ready(self) -> None:
        until(
            lambda: answers(self.url),
            what=lambda: f"the API; its log: {self.api.log.read_text()[-2000:]}",
        )

    def close(self) -> None:
        for process in self.processes:
            process.close()

    def client(self) -> Client:
        """A client of its API, whose answers are checked against the OpenAPI document."""
        # imported here: it needs the whole API, which takes the chaos run a second
        import documented

        client = Client(self.url)
        client._http.event_hooks = documented.HOOKS
        return client

    def logs(self) -> str:
        """The ends of all logs, for a failure's message."""
        return "\n".join(
            f"== {path.name}\n{path.read_text(errors='replace')[-3000:]}"
            for path in sorted(self.folder.glob("*.log"))
        )


def answers(url: str) -> bool:
    try:
        # without TLS's certificates, whose loading takes longer than an answer
        return httpx.get(f"{url}/readyz", timeout=scaled(2), verify=False).status_code == 200
    except httpx.TransportError:
        return False


def submit(client: Client, count: int = 1, **changes: Any) -> str:
    """Submit a tiny job; its id."""
    body = {"test": TINY, "build": "correct", "seeds": {"start": 0, "count": count}} | changes
    return str(client.call("POST", "/jobs", body=body)["id"])


def every_seed_once(client: Client, job: str, seeds: Iterable[int]) -> list[dict[str, Any]]:
    """The job's results, after checking that each seed is there exactly once."""
    items = list(client.pages(f"/jobs/{job}/results", limit=200))
    assert sorted(item["seed"] for item in items) == sorted(seeds)
    return items


def interrupt(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGINT)
