"""Jobs, rows and a simulated device worker, for benchmarks and for tests of the job flow."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from sqlalchemy import Engine

from gonogo.spec.verdicts import JUDGE
from gonogo_service.hosts import store as hosts
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.engine import session
from gonogo_service.kit.principals import Keys
from gonogo_workers import queue
from gonogo_workers.server.client import Answer, Away, Server
from gonogo_workers.server.host_file import Host

KEY = "k" * 32
"""GONOGO_SECRET_KEY of the service."""
HOST = "host-1"
DEVICE = f"{HOST}/emulator:0"
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
        "rounding_ratio": 0.99,
        "distance": 0.4,
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
        "device": DEVICE,
        "host_run": "run-1",
        "position": seed % 100,
        "duration_ms": 2.5,
        "arithmetic": "tt-train",
        "judge": JUDGE,
        "outputs": {"dx": output(verdict, explanation), "dgamma": output(), "dbeta": output()},
    }
    return usual | changes


def empty_row(seed: int, verdict: str, message: str, repeat: int = 0) -> dict[str, Any]:
    """A seed without numbers: hang, crash or error."""
    return row(seed, repeat, verdict, "not_judged", outputs={}, message=message)


def joined(
    engine: Engine, name: str = HOST, secret: str = KEY, queues: Sequence[str] = hosts.ANY
) -> str:
    """Add a host and let it join; return its token."""
    keys = Keys(secret)
    with session(engine) as current:
        code = hosts.add(current, keys, name, queues, actor="simulated").secret
        return hosts.join(current, keys, code).secret


class SimulatedWorker:
    """A device worker's side: real requests, woken by the real broker, with invented numbers.

    Each step is a call, so that a test decides what happens when, and what never does. `token` is
    that of its host (see `joined`).
    """

    def __init__(
        self,
        url: str,
        broker_url: str,
        token: str,
        queues: Sequence[str] = (QUEUE,),
        host: str = HOST,
    ) -> None:
        self.client = queue.redis_client(broker_url)
        me = Host(url, host, token)
        self.server = Server(lambda: me, url, None)
        self.name, self.device, self.queues = f"{host}/worker-1", f"{host}/emulator:0", list(queues)
        self.host = host

    def close(self) -> None:
        """Close the connections."""
        self.client.close()
        self.server.close()

    def beat(self, attempt: str | None = None) -> Answer:
        """A heartbeat, idle or busy."""
        body = {
            "worker": self.name,
            "queues": self.queues,
            "device": self.device,
            "attempt": attempt,
            "attempt_device": self.device,
            "seed": None,
            "stage": None,
        }
        return self.server.request("PUT", "/hosts/self", body)

    @contextmanager
    def alive(self, attempt: str | None = None, every_s: float = 0.2) -> Iterator[None]:
        """Heartbeats from a thread."""
        stop = threading.Event()

        def beat() -> None:
            while not stop.is_set():
                with suppress(Away):
                    self.beat(attempt)
                stop.wait(every_s)

        thread = threading.Thread(target=beat)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def take(self, timeout_s: float = 300.0) -> dict[str, Any]:
        """Claim the next attempt of the first queue; return what to run. Raises TimeoutError."""
        return self.claim(self.woken(timeout_s))

    def woken(self, timeout_s: float = 300.0) -> str:
        """The id of the next attempt, not claimed."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            item: Any = self.client.brpop([self.queues[0]], timeout=1)
            if item is not None:
                return str(item[1].decode())
        raise TimeoutError(f"no attempt on {self.queues[0]} within {timeout_s} s")

    def claim(self, attempt: str) -> dict[str, Any]:
        """Claim an attempt; return what to run."""
        place = {"worker": self.name, "device": self.device}
        return self.server.request("POST", f"/attempts/{attempt}:claim", place)

    def send(
        self,
        chunk: dict[str, Any],
        rows: Iterable[dict[str, Any]],
        batch: int = 0,
        artifacts: Iterable[dict[str, Any]] = (),
    ) -> Answer:
        """Send one batch of results."""
        body = {"rows": list(rows), "artifacts": list(artifacts)}
        return self.server.request("PUT", f"/attempts/{chunk['attempt']}/results/{batch}", body)

    def finish(
        self,
        chunk: dict[str, Any],
        sent: Iterable[Sequence[int]] | None = None,
        outcome: str = "done",
        **more: Any,
    ) -> Answer:
        """Say the last word; `sent` defaults to all of the work."""
        pairs = [list(pair) for pair in (chunk["work"] if sent is None else sent)]
        body = {"outcome": outcome, "sent": pairs, "log_tail": "", "error": None, **more}
        return self.server.request("POST", f"/attempts/{chunk['attempt']}:finish", body)

    def run(self, chunk: dict[str, Any], **changes: Any) -> None:
        """The whole of an attempt without trouble."""
        self.send(chunk, [row(seed, repeat, **changes) for seed, repeat in chunk["work"]])
        self.finish(chunk)
