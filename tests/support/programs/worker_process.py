"""A worker process with a real Redis and a service of the test's: publish chunks, read what comes
back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from batch_rows import rows_of
from checkout import PYTHONPATH, ROOT
from forked import Forked
from gonogo_workers import queue
from gonogo_workers.server.host_file import Host
from host_service import FINISH, HEALTH, HEARTBEAT, RESULTS, TOKEN, HostService
from patience import WAIT_S, scaled

HOST = "lab-1"
TINY: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [1, 1, 32, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}
Started = Forked | subprocess.Popen[bytes]
"""A worker process, by the fork server or by a command line of its own."""


@dataclass
class Answer:
    """Everything that an attempt sent."""

    attempt: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    artifacts: list[dict[str, Any]] = field(default_factory=list)
    batches: int = 0
    finished: dict[str, Any] | None = None

    def has_finished(self) -> bool:
        """Whether its last message is here."""
        return self.finished is not None

    @property
    def end(self) -> dict[str, Any]:
        """The last message."""
        assert self.finished is not None
        return self.finished

    def contents(self, kind: str) -> list[Any]:
        """Return the contents of the artifacts of a kind."""
        return [artifact["content"] for artifact in self.artifacts if artifact["kind"] == kind]

    @property
    def verdicts(self) -> dict[int, str]:
        """Verdict by seed (of the last repeat)."""
        return {row["seed"]: row["verdict"] for row in self.rows}

    def failed(self, seed: int, verdicts: dict[int, str], *, is_fresh: bool) -> dict[str, Any]:
        """Return the row of a seed that alone failed; is_fresh: a second child ran the others."""
        assert self.verdicts == verdicts
        assert self.end["outcome"] == "done"
        assert len({row["host_run"] for row in self.rows}) == (2 if is_fresh else 1)
        return next(row for row in self.rows if row["seed"] == seed)

    @property
    def work(self) -> list[list[int]]:
        """(seed, repeat) of the rows, sorted."""
        return sorted([row["seed"], row["repeat"]] for row in self.rows)


class Workplace:
    """A broker, a service, and workers of both. `folder` holds their locks and spools."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.folder = folder
        self.service = HostService()
        Host(self.service.url, HOST, TOKEN).save(folder)
        self.redis = queue.redis_client(url)
        self.workers: list[Started] = []
        self.answers: dict[str, Answer] = {}
        self.healths: list[dict[str, Any]] = []
        self.routine: list[dict[str, Any]] = []

    def start(
        self, executors: str = "emulator,troublesome", device: str | None = None, **environment: str
    ) -> Forked:
        """A worker process; returns once its first heartbeat is here."""
        worker = self.start_unheard(executors, device, **environment)
        self.beat(lambda body: body["worker"].endswith(f"/{worker.pid}"))
        return worker

    def start_unheard(
        self, executors: str, device: str | None = None, **environment: str
    ) -> Forked:
        """A worker process whose heartbeats somebody else takes from the queue."""
        words = ["worker", "--executor", executors]
        words += [] if device is None else ["--device", device]
        worker = Forked(words, self._environment(environment), self._log_file)
        self.workers.append(worker)
        return worker

    def start_program(
        self,
        arguments: Sequence[str],
        before: Callable[[], object] | None = None,
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        """A worker by this command line of Python; `before` runs in the new process."""
        with self._log_file.open("ab") as log:
            files = {"stdout": log, "stderr": log, "env": self._environment(environment)}
            command = [sys.executable, *arguments]
            worker = subprocess.Popen(command, preexec_fn=before, start_new_session=True, **files)
        self.workers.append(worker)
        return worker

    def publish(
        self,
        build: str,
        seeds: int,
        *,
        executor: str = "troublesome",
        test: dict[str, Any] = TINY,
        board: str = "n150",
        **changes: Any,
    ) -> str:
        """Offer a chunk and wake a worker; its attempt id."""
        attempt = str(uuid.uuid4())
        ids = {"attempt": attempt, "chunk": f"chunk of {attempt}", "job": "job"}
        work = {"test": test, "build": build, "work": [[seed, 0] for seed in range(seeds)]}
        target = {"executor": executor, "arch": "wormhole", "board": board}
        limits = {"seed_deadline_s": scaled(20), "artifacts": {"first": True, "worst": 1}}
        body = {**ids, **work, **limits, "target": target, "context": "isolated", **changes}
        self.service.chunks[attempt] = body
        self.redis.lpush(queue.chunk_queue(executor, "wormhole", board), attempt)
        return attempt

    def run(self, build: str, seeds: int, **options: Any) -> Answer:
        """Send a chunk and wait for its end."""
        return self.wait(self.publish(build, seeds, **options))

    def answer(self, attempt: str) -> Answer:
        """Return the messages of an attempt so far."""
        return self.answers.setdefault(attempt, Answer(attempt))

    def wait(
        self,
        attempt: str,
        until: Callable[[Answer], bool] = Answer.has_finished,
        seconds: float = WAIT_S,
    ) -> Answer:
        """Read results until the condition holds; AssertionError after `seconds`, with the worker's
        log."""
        deadline = time.monotonic() + seconds
        answer = self.answer(attempt)
        while not until(answer):
            got = self.service.next(RESULTS, 1)
            if got is None:
                assert time.monotonic() < deadline, f"waited {seconds} s\n{self.log()}"
                continue
            task, body = got
            if task == HEALTH:
                (self.routine if body.get("routine") else self.healths).append(body)
                continue
            other = self.answer(body["attempt"])
            assert other.finished is None, f"{task} came after finished"
            if task == RESULTS:
                assert body["path"].endswith(f"/{other.batches}")
                other.batches += 1
                other.rows += rows_of(body)
                other.artifacts += body["artifacts"]
            else:
                assert task == FINISH
                other.finished = body
        return answer

    def heard(
        self, matches: Callable[[dict[str, Any]], bool], seconds: float = WAIT_S
    ) -> dict[str, Any]:
        """The first word on a device's health that is matches, heard before or to come."""
        deadline = time.monotonic() + seconds
        while True:
            for body in self.healths:
                if matches(body):
                    return body
            got = self.service.next(RESULTS, 1)
            if got is not None:
                assert got[0] == HEALTH, got
                (self.routine if got[1].get("routine") else self.healths).append(got[1])
            assert time.monotonic() < deadline, f"waited {seconds} s\n{self.log()}"

    def beat(
        self,
        matches: Callable[[dict[str, Any]], bool],
        task: str = HEARTBEAT,
        seconds: float = WAIT_S,
    ) -> dict[str, Any]:
        """The next heartbeat (or claim) that is matches."""
        deadline = time.monotonic() + seconds
        while True:
            got = self.service.next(HEARTBEAT, 1)
            if got is not None and got[0] == task and matches(got[1]):
                return got[1]
            assert time.monotonic() < deadline, f"waited {seconds} s\n{self.log()}"

    def children(self, worker: Started) -> list[psutil.Process]:
        """The kernel hosts of a worker and what they started."""
        return psutil.Process(worker.pid).children(recursive=True)

    def log(self) -> str:
        """The end of the workers' log."""
        return self._log_file.read_text()[-4000:]

    def close(self) -> None:
        """Stop every worker; none may leave a process."""
        left: list[psutil.Process] = []
        for worker in self.workers:
            if worker.poll() is None:
                left += self.children(worker)
                worker.send_signal(signal.SIGTERM)
        try:
            for worker in self.workers:
                worker.wait(WAIT_S)
            psutil.wait_procs(left, timeout=WAIT_S)
            assert not [process for process in left if process.is_running()], (
                "a worker left processes behind"
            )
        finally:
            for worker in self.workers:
                worker.kill()
                worker.wait()
            self.redis.close()
            self.service.stop()

    @property
    def _log_file(self) -> Path:
        return self.folder / "worker.log"

    def _environment(self, added: dict[str, str]) -> dict[str, str]:
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
        }
        return inherited | {
            "GONOGO_BROKER_URL": self.url,
            "GONOGO_VAR_DIR": str(self.folder),
            "GONOGO_EXECUTORS": "troublesome=troublesome:Troublesome",
            "GONOGO_CHILD_VARIABLES": "TROUBLE_*,REPORT_*",
            "GONOGO_HEARTBEAT_S": "1",
            "PYTHONPATH": os.pathsep.join((PYTHONPATH, str(ROOT / "tests" / "plugins"))),
            **added,
        }

    def order(self, device: str, order: str, test_requests: int = 0) -> None:
        """Give the service's order for a device."""
        self.service.orders[device] = {"order": order, "canaries": test_requests}

    def cancel(self, attempt: str) -> None:
        self.service.canceled.add(attempt)
