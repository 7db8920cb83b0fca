"""Jobs, rows and a simulated device worker, for benchmarks and for tests of the job flow."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from celery import Celery

from gonogo_storage.jobs.job import NewJob
from gonogo_workers import queue

KEY = "k" * 32
QUEUE = "emulator.wormhole.n150"
CANONICAL: dict[str, Any] = {
    "kernel": "layernorm_bw",
    "shape": [8, 64],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}


def new_job(seeds: int | Sequence[int] = 4, **changes: Any) -> NewJob:
    """A request for a small backward test on the emulator; a number of seeds means 0, 1, ..."""
    fields: dict[str, Any] = {
        "test_key": "v1-test",
        "workload_key": "v1-workload",
        "kernel": "layernorm_bw",
        "canonical": CANONICAL,
        "elements": 512,
        "build": "tt-train-2025",
        "branch": "emulator",
        "build_sequence": 1,
        "executor": "emulator",
        "arch": "wormhole",
        "board": "n150",
        "seeds": tuple(range(seeds)) if isinstance(seeds, int) else seeds,
    }
    return NewJob(**(fields | changes))


def output(
    verdict: str = "pass", explanation: str = "explained", **statistics: Any
) -> dict[str, Any]:
    """The judgement of one output, with a few statistics."""
    usual = {
        "tolerance_ratio": 0.026,
        "budget_ratio": 0.99,
        "row_z": 1.1,
        "max_abs": 0.013,
        "rms": 0.0017,
        "ulp_max": 1.0,
        "digest": "ab" * 8,
    }
    return {"verdict": verdict, "explanation": explanation, **usual, **statistics}


def row(
    seed: int,
    repeat: int = 0,
    verdict: str = "pass",
    explanation: str = "explained",
    **changes: Any,
) -> dict[str, Any]:
    """One seed's result as a worker sends it: three outputs, dx with the seed's verdict."""
    usual = {
        "seed": seed,
        "repeat": repeat,
        "verdict": verdict,
        "explanation": explanation,
        "device": "emulator:0",
        "host_run": "run-1",
        "position": seed % 100,
        "duration_ms": 2.5,
        "arithmetic": "tt-train",
        "policy": "1",
        "outputs": {"dx": output(verdict, explanation), "dgamma": output(), "dbeta": output()},
    }
    return usual | changes


def empty_row(seed: int, verdict: str, message: str, repeat: int = 0) -> dict[str, Any]:
    """A seed without numbers: hang, crash or error."""
    return row(seed, repeat, verdict, "not_judged", outputs={}, message=message)


class SimulatedWorker:
    """A device worker's side of the queue: real messages over the real broker, invented numbers.

    Each step is a call, so that a test decides what happens when, and what never does.
    """

    def __init__(
        self, app: Celery, name: str = "worker-1", queues: Sequence[str] = (QUEUE,)
    ) -> None:
        self.app, self.name, self.queues = app, name, list(queues)

    def beat(self, attempt: str | None = None) -> None:
        """A heartbeat, idle or busy."""
        body = {
            "worker": self.name,
            "queues": self.queues,
            "device": "emulator:0",
            "attempt": attempt,
            "seed": None,
            "stage": None,
        }
        queue.send(self.app, KEY, queue.HEARTBEAT_QUEUE, queue.HEARTBEAT, body)

    @contextmanager
    def alive(self, attempt: str | None = None, every_s: float = 0.2) -> Iterator[None]:
        """Heartbeats from a thread."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.is_set():
                self.beat(attempt)
                stop.wait(every_s)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def take(self, timeout_s: float = 20.0) -> dict[str, Any]:
        """The next chunk message of the first queue. Raises queue.Empty after the timeout."""
        with (
            self.app.connection_for_read() as connection,
            connection.SimpleQueue(self.queues[0]) as chunks,
        ):
            message = chunks.get(timeout=timeout_s)
            message.ack()
            (sealed, signature), _, _ = message.payload
            return queue.unseal(KEY, queue.RUN_CHUNK, sealed, signature, max_age_s=queue.MAX_AGE_S)

    def start(self, chunk: dict[str, Any]) -> None:
        """Say that the attempt began."""
        body = {
            "attempt": chunk["attempt"],
            "worker": self.name,
            "device": "emulator:0",
            "host": "host-1",
            "host_run": "run-1",
        }
        queue.send(self.app, KEY, queue.HEARTBEAT_QUEUE, queue.STARTED, body)

    def send(
        self,
        chunk: dict[str, Any],
        rows: Iterable[dict[str, Any]],
        batch: int = 0,
        artifacts: Iterable[dict[str, Any]] = (),
    ) -> None:
        """Send one batch of results."""
        body = {
            "attempt": chunk["attempt"],
            "batch": batch,
            "rows": list(rows),
            "artifacts": list(artifacts),
        }
        queue.send(self.app, KEY, queue.BACKGROUND_QUEUE, queue.RESULTS, body)

    def finish(
        self,
        chunk: dict[str, Any],
        sent: Iterable[Sequence[int]] | None = None,
        outcome: str = "done",
        **more: Any,
    ) -> None:
        """Say the last word; `sent` defaults to all of the work."""
        pairs = [list(pair) for pair in (chunk["work"] if sent is None else sent)]
        body = {
            "attempt": chunk["attempt"],
            "outcome": outcome,
            "sent": pairs,
            "log_tail": "",
            "error": None,
            **more,
        }
        queue.send(self.app, KEY, queue.BACKGROUND_QUEUE, queue.FINISHED, body)

    def run(self, chunk: dict[str, Any], **changes: Any) -> None:
        """The whole of an attempt without trouble."""
        self.start(chunk)
        self.send(chunk, [row(seed, repeat, **changes) for seed, repeat in chunk["work"]])
        self.finish(chunk)
