"""How busy a worker keeps its device: `python -m benchmarks.busy`.

A plug-in stands for a device that takes a fixed time a seed and computes right outputs, which an
earlier chunk has left in files: a device needs no processor of ours. It notes when each kernel
began and ended; the device is idle in between: requests, tensors on their way, inputs that are not
ready, judgements that are behind. A real worker process, woken by a real Redis, runs one chunk; the
clock starts with the first kernel, as between two chunks of a job. To be met: the device is idle at
most 5 % of the time with 100 ms a seed on 32x1024 inputs. Judging larger ones takes longer than
that: 64x8462 keep two cores busy for 0.3 s.
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

from benchmarks.report import Figure, report
from checkout import PYTHONPATH
from gonogo_workers import queue
from gonogo_workers.server.host_file import Host
from host_service import FINISH, RESULTS, TOKEN, HostService
from servers import RedisServer

ROOT = Path(__file__).resolve().parent.parent
QUEUE = queue.chunk_queue("sleeper", "wormhole", "n150")
DEVICE_MS, SHAPE, MOST_IDLE = 100.0, [1, 1, 32, 1024], 0.05
PLUGIN = '''
import os
import time
import zlib

import ml_dtypes
import numpy as np


class Sleeper:
    """A device whose kernel takes as many milliseconds as the build's name says."""

    def __init__(self, build):
        self.seconds = float(build) / 1e3

    def run(self, test, inputs):
        began = time.monotonic()
        file = f"{os.environ['SLEEPER_FILES']}/{zlib.crc32(inputs['x'][0, 0, :1])}.npy"
        if os.path.exists(file):
            stored = np.load(file)
        else:
            stored = np.concatenate(backward(inputs))
            np.save(file, stored)
        dx, dgamma, dbeta = stored[:-2], stored[-2], stored[-1]
        time.sleep(max(0.0, began + self.seconds - time.monotonic()))
        with open(os.environ["SLEEPER_FILES"] + "/times", "a") as times:
            times.write(f"{began} {time.monotonic()}\\n")
        return {"dx": dx.reshape(inputs["x"].shape), "dgamma": dgamma, "dbeta": dbeta}


def backward(inputs):
    """Return dx, dgamma and dbeta as rows of bf16."""
    x, dy = (inputs[name][0, 0].astype(np.float64) for name in ("x", "dy"))
    mean, rstd = (inputs[name][0, 0][:, None].astype(np.float64) for name in ("mean", "rstd"))
    xhat, p = (x - mean) * rstd, dy * inputs["gamma"]
    dx = rstd * (p - p.mean(1, keepdims=True) - xhat * (p * xhat).mean(1, keepdims=True))
    rows = (dx, (dy * xhat).sum(0, keepdims=True), dy.sum(0, keepdims=True))
    return [row.astype(ml_dtypes.bfloat16).astype(np.float32) for row in rows]
'''


class Bench:
    """A worker process that serves the sleeper; `measure` runs one chunk."""

    def __init__(self, redis_url: str, folder: Path) -> None:
        self._client = queue.redis_client(redis_url)
        self._service = HostService()
        Host(self._service.url, "bench", TOKEN).save(folder)
        (folder / "files").mkdir()
        self._times = folder / "files/times"
        (folder / "sleeper.py").write_text(PLUGIN)
        inherited = {
            name: value for name, value in os.environ.items() if not name.startswith("GONOGO_")
        }
        self._environment = inherited | {
            "GONOGO_BROKER_URL": redis_url,
            "GONOGO_VAR_DIR": str(folder),
            "GONOGO_CHILD_VARIABLES": "SLEEPER_FILES",
            "GONOGO_EXECUTORS": "sleeper=sleeper:Sleeper",
            "PYTHONPATH": os.pathsep.join((PYTHONPATH, str(folder))),
            "SLEEPER_FILES": str(self._times.parent),
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
            "test": {"kernel": "layernorm_bw", "shape": SHAPE},
            "work": [[seed, 0] for seed in range(seeds)],
            "build": str(device_ms),
            "target": {"executor": "sleeper", "arch": "wormhole", "board": "n150"},
            "artifacts": {"first": False, "worst": 0},
        }
        self._client.lpush(QUEUE, attempt)
        deadline = time.monotonic() + 300 + seeds * (device_ms / 1e3 + 5)
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
def bench() -> Iterator[Bench]:
    """A private Redis and a worker."""
    server = RedisServer()
    server.start()
    try:
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            device_bench = Bench(server.url, Path(name))
            try:
                yield device_bench
            finally:
                device_bench.close()
    finally:
        server.close()


def main(words: list[str] | None = None) -> int:
    """Print the figure; 1 when the device is idle for too long."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.busy", description=__doc__, formatter_class=form
    )
    parser.add_argument("--seeds", type=int, default=40, help="seeds of a chunk (default 40)")
    seeds: int = parser.parse_args(words).seeds
    with bench() as device_bench:
        device_bench.measure(1.0, seeds)  # it leaves the outputs
        idle = 1.0 - device_bench.measure(DEVICE_MS, seeds)
    name = f"device idle, {DEVICE_MS:.0f} ms a seed of 32x1024"
    return report("busy", [Figure(name, idle, "of the time", most=MOST_IDLE)])


if __name__ == "__main__":
    sys.exit(main())
