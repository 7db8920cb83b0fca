"""A worker process with a real Redis, seen from the service's side: publish chunks, read what comes
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
from gonogo_service.kit.signing import service_key
from gonogo_workers import queue
from gonogo_workers.messages.identity import Identity
from gonogo_workers.queue import PrivateKey
from patience import WAIT_S, scaled

SECRET = "secret-key-of-the-tests-" + "k" * 20
SERVICE_KEY = service_key(SECRET)
HOST = "lab-1"
IDENTITY = Identity("host-of-the-tests", HOST, PrivateKey.of(b"h" * 32), SERVICE_KEY.public)
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
    def verdicts(self) -> dict[int, str]:
        """Verdict by seed (of the last repeat)."""
        return {row["seed"]: row["verdict"] for row in self.rows}

    @property
    def work(self) -> list[list[int]]:
        """(seed, repeat) of the rows, sorted."""
        return sorted([row["seed"], row["repeat"]] for row in self.rows)


class Workplace:
    """A broker, and workers on it. `folder` holds their locks and spools."""

    def __init__(self, url: str, folder: Path, clock_ahead_s: float = 0.0) -> None:
        """`clock_ahead_s` is by how much the workers' clock seems ahead of the service's."""
        self.url = url
        self.folder = folder
        self._clock_ahead_s = clock_ahead_s
        IDENTITY.save(folder)
        self.redis = queue.redis_client(url)
        self.workers: list[Started] = []
        self.answers: dict[str, Answer] = {}
        self.healths: list[dict[str, Any]] = []
        self.routine: list[dict[str, Any]] = []
        self.sealed = ""

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
            worker = subprocess.Popen(
                [sys.executable, *arguments],
                env=self._environment(environment),
                preexec_fn=before,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.workers.append(worker)
        return worker

    def publish(
        self,
        build: str,
        seeds: int,
        *,
        executor: str = "troublesome",
        test: dict[str, Any] = TINY,
        key: PrivateKey = SERVICE_KEY,
        board: str = "n150",
        **changes: Any,
    ) -> str:
        """Send a chunk; its attempt id. `sealed` has its text."""
        attempt = uuid.uuid4().hex
        body = {
            "attempt": attempt,
            "chunk": f"chunk of {attempt}",
            "job": "job",
            "test": test,
            "work": [[seed, 0] for seed in range(seeds)],
            "build": build,
            "target": {"executor": executor, "arch": "wormhole", "board": board},
            "context": "isolated",
            "seed_deadline_s": scaled(20),
            "artifacts": {"first": True, "worst": 1},
            **changes,
        }
        self.sealed = queue.seal(key, queue.RUN_CHUNK, body)
        queue.publish(self.redis, queue.chunk_queue(executor, "wormhole", board), self.sealed)
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
            got = self._pop(queue.BACKGROUND_QUEUE)
            if got is None:
                assert time.monotonic() < deadline, f"waited {seconds} s\n{self.log()}"
                continue
            task, body = got
            if task == queue.HEALTH:
                (self.routine if body.get("routine") else self.healths).append(body)
                continue
            other = self.answer(body["attempt"])
            assert other.finished is None, f"{task} came after finished"
            if task == queue.RESULTS:
                assert body["batch"] == other.batches
                other.batches += 1
                other.rows += rows_of(body)
                other.artifacts += body["artifacts"]
            else:
                assert task == queue.FINISHED
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
            got = self._pop(queue.BACKGROUND_QUEUE)
            if got is not None:
                assert got[0] == queue.HEALTH, got
                (self.routine if got[1].get("routine") else self.healths).append(got[1])
            assert time.monotonic() < deadline, f"waited {seconds} s\n{self.log()}"

    def beat(
        self,
        matches: Callable[[dict[str, Any]], bool],
        task: str = queue.HEARTBEAT,
        seconds: float = WAIT_S,
    ) -> dict[str, Any]:
        """The next message of this kind on the heartbeat queue that is matches."""
        deadline = time.monotonic() + seconds
        while True:
            got = self._pop(queue.HEARTBEAT_QUEUE)
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

    def _pop(self, name: str) -> tuple[str, dict[str, Any]] | None:
        got: Any = self.redis.brpop([name], timeout=1)
        if got is None:
            return None
        text = got[1].decode()
        task = queue.task_of(text)
        assert task is not None
        try:
            message = queue.unseal(text, task, lambda _: IDENTITY.key.public)
        except queue.MessageRefused as refusal:
            # on a slow machine, a heartbeat that no test asked for may lie here for minutes
            if (refusal.reason, name) == ("age", queue.HEARTBEAT_QUEUE):
                return None
            raise
        if task == queue.HELLO:
            self._tell_time(message.body["nonce"])
        return task, message.body

    def _tell_time(self, nonce: str) -> None:
        body = {"nonce": nonce, "time": time.time() - self._clock_ahead_s}
        self.redis.rpush(queue.reply_key(nonce), queue.seal(SERVICE_KEY, queue.REPLY, body))

    def order(
        self, device: str, order: str, test_requests: int = 0, number: int | None = None
    ) -> None:
        """Write the service's order for a device."""
        body = {"device": device, "order": order, "asked": test_requests}
        text = queue.seal(SERVICE_KEY, queue.ORDER, body, number)
        self.redis.set(queue.device_key(device), text)

    def cancel(self, attempt: str) -> None:
        """Write the service's request to stop an attempt."""
        text = queue.seal(SERVICE_KEY, queue.CANCEL, {"attempt": attempt})
        self.redis.set(queue.cancel_key(attempt), text)
