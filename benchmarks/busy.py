"""How busy a worker keeps its device: `python -m benchmarks.busy`.

A plug-in stands for a device that takes a fixed time a seed.

To be met: a busy fraction of at least .9 with 500 ms a seed on 819x8462 inputs. The plug-in notes
when each kernel began and ended; the device is idle in between: requests, tensors on their way,
inputs that are not ready, judgements that are behind. A real worker process, woken by a real
Redis, runs one chunk; the clock starts with the first kernel, as between two chunks of a job. Then
the smallest device time at which .9 still holds is found by bisection: below it the host's work on
a seed sets the pace, not the device.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redis import ConnectionError as Refused
from rich.console import Console

from gonogo_service.cli.operate import redis_server
from gonogo_workers import queue
from gonogo_workers.server.host_file import Host
from host_service import FINISH, RESULTS, TOKEN, HostService

ROOT = Path(__file__).resolve().parent.parent
TEST = {"kernel": "layernorm_bw", "shape": [1, 1, 819, 8462]}
QUEUE = queue.chunk_queue("sleeper", "wormhole", "n150")
TARGET, TARGET_MS = 0.9, 500.0
CLOSE_ENOUGH = 1.1
"""The bisection ends when the two ends are this factor apart."""
PLUGIN = '''
import os
import time

import numpy as np


class Sleeper:
    """A device whose kernel takes as many milliseconds as the build's name says.

    It only sleeps: a device needs no processor of ours.
    """

    def __init__(self, build):
        self.seconds = float(build) / 1e3
        self.outputs = None

    def run(self, test, inputs):
        began = time.monotonic()
        if self.outputs is None:
            column = np.zeros(inputs["x"].shape[-1], np.float32)
            dx = np.zeros_like(inputs["x"])
            self.outputs = {"dx": dx, "dgamma": column, "dbeta": column.copy()}
        time.sleep(max(0.0, began + self.seconds - time.monotonic()))
        with open(os.environ["SLEEPER_TIMES"], "a") as file:
            file.write(f"{began} {time.monotonic()}\\n")
        return self.outputs
'''


class Bench:
    """A worker process that serves the sleeper; `measure` runs one chunk."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self._client = queue.redis_client(redis_url)
        self._service = HostService()
        Host(self._service.url, "bench", TOKEN).save(folder)
        self._times = folder / "times"
        (folder / "sleeper.py").write_text(PLUGIN)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
        }
        self._environment = inherited | {
            "GONOGO_BROKER_URL": redis_url,
            "GONOGO_VAR_DIR": str(folder),
            "GONOGO_CHILD_VARIABLES": "SLEEPER_TIMES",
            "GONOGO_EXECUTORS": "sleeper=sleeper:Sleeper",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}",
            "SLEEPER_TIMES": str(self._times),
        }
        self._log = (folder / "worker.log").open("wb")
        program = "import sys; from gonogo_workers.worker import main; sys.exit(main('sleeper'))"
        self._worker = subprocess.Popen(
            [sys.executable, "-c", program],
            env=self._environment,
            cwd=ROOT,
            stdout=self._log,
            stderr=self._log,
        )

    def measure(self, device_ms: float, seeds: int) -> float:
        """Return the fraction of time with a kernel running, from first start to last end."""
        self._times.unlink(missing_ok=True)
        attempt = str(uuid.uuid4())
        self._service.chunks[attempt] = {
            "attempt": attempt,
            "chunk": "chunk",
            "job": "job",
            "test": TEST,
            "work": [[seed, 0] for seed in range(seeds)],
            "build": str(device_ms),
            "target": {"executor": "sleeper", "arch": "wormhole", "board": "n150"},
            "artifacts": {"first": False, "worst": 0},
        }
        self._client.lpush(QUEUE, attempt)
        deadline = time.monotonic() + 120 + seeds * (device_ms / 1e3 + 5)
        while not self._finished(attempt):
            if time.monotonic() > deadline or self._worker.poll() is not None:
                raise RuntimeError("the worker did not finish its chunk")
        spans = [tuple(map(float, line.split())) for line in self._times.read_text().splitlines()]
        assert len(spans) == seeds
        return sum(end - began for began, end in spans) / (spans[-1][1] - spans[0][0])

    def _finished(self, attempt: str) -> bool:
        message = self._service.next(RESULTS, 5)
        return message is not None and message[0] == FINISH and message[1]["attempt"] == attempt

    def close(self) -> None:
        """Stop the worker."""
        self._worker.terminate()
        self._worker.wait(20)
        self._log.close()
        self._client.close()
        self._service.stop()


@contextmanager
def private_redis(folder: Path) -> Iterator[str]:
    """Run the embedded service's Redis; yield its URL."""
    process = subprocess.Popen(redis_server.command(folder), stdout=subprocess.DEVNULL)
    url = redis_server.url(folder)
    try:
        client = queue.redis_client(url)
        while True:
            try:
                client.ping()
                break
            except Refused:
                time.sleep(0.02)
        client.close()
        yield url
    finally:
        process.terminate()
        process.wait()


@contextmanager
def bench() -> Iterator[Bench]:
    """A private Redis and a worker, warm: the first chunk loads compiled code."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name, private_redis(Path(name)) as redis_url:
        device_bench = Bench(redis_url, Path(name))
        try:
            device_bench.measure(1.0, 3)
            yield device_bench
        finally:
            device_bench.close()


def smallest(device_bench: Bench, seeds: int) -> float:
    """Return the smallest device time (ms) that keeps the device busy for TARGET of the time.

    It is exact to a factor of CLOSE_ENOUGH.
    """
    low, high = 1.0, TARGET_MS
    while high / low > CLOSE_ENOUGH:
        middle = (low * high) ** 0.5
        if device_bench.measure(middle, seeds) >= TARGET:
            high = middle
        else:
            low = middle
    return high


def main(words: list[str] | None = None) -> int:
    """Print both figures; 1 when the busy fraction is too small."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.busy", description=__doc__, formatter_class=form
    )
    parser.add_argument("--seeds", type=int, default=20, help="seeds of a chunk (default 20)")
    seeds: int = parser.parse_args(words).seeds
    console = Console(highlight=False)
    with bench() as device_bench:
        fraction = device_bench.measure(TARGET_MS, seeds)
        console.print(
            f"device busy  {fraction:.3f} of the time with {TARGET_MS:.0f} ms a seed on "
            f"819x8462 inputs   (goal: >= {TARGET})"
        )
        console.print(
            f"device busy  {TARGET} of the time holds down to "
            f"{smallest(device_bench, seeds):.0f} ms a seed"
        )
    return int(fraction < TARGET)


if __name__ == "__main__":
    sys.exit(main())
