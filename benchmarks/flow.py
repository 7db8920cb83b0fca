"""Measure the job flow without kernels: dispatch latency and ingest throughput.

`gonogo background` runs over a real Redis.

`python -m benchmarks.flow [DATABASE_URL ...]`: each database must be empty; without one, an SQLite
file in a temporary folder. A simulated worker answers at once, so what is measured is what the
service adds to the kernels' time.
"""

from __future__ import annotations

import logging
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog
from pydantic import SecretStr
from redis import ConnectionError as Refused
from sqlalchemy import Engine

from benchmarks.simulated import KEY, SimulatedWorker, enroll, new_job, row
from gonogo_cli.operate import redis_server
from gonogo_service.background.process import create_background
from gonogo_settings import Settings
from gonogo_storage.db.engine import make_engine, reading, session
from gonogo_storage.jobs import jobs
from gonogo_storage.ops import schema
from gonogo_workers import queue

LATENCIES = 40
SEEDS = 1000
BATCH = 100


@contextmanager
def running(settings: Settings) -> Iterator[None]:
    """Run `gonogo background` in a thread.

    A process of its own would need a Python start; a thread does the same work.
    """
    stop = threading.Event()
    thread = threading.Thread(target=create_background(settings, stop).run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def latencies(engine: Engine, settings: Settings, worker: SimulatedWorker) -> list[float]:
    """Return milliseconds from the start of the storing transaction until a worker has the chunk.

    One job runs at a time.
    """
    assert settings.broker_url is not None
    redis = queue.redis_client(settings.broker_url)
    milliseconds = []
    for _ in range(LATENCIES):
        began = time.perf_counter()
        with session(engine) as current:
            job = jobs.create(current, new_job(1))
        redis.lpush(queue.DISPATCH_NOTIFICATION_KEY, "1")
        text = worker.take_text()
        milliseconds.append(1000 * (time.perf_counter() - began))
        worker.run(worker.opened(text))
        wait(engine, job.id)
    redis.close()
    return sorted(milliseconds)


def throughput(engine: Engine, worker: SimulatedWorker) -> float:
    """Return milliseconds per seed (three outputs) from the first batch to the finished job."""
    with session(engine) as current:
        job = jobs.create(current, new_job(SEEDS))
    chunk = worker.take()
    rows = [row(seed, repeat) for seed, repeat in chunk["work"]]
    began = time.perf_counter()
    worker.start(chunk)
    for number, low in enumerate(range(0, SEEDS, BATCH)):
        worker.send(chunk, rows[low : low + BATCH], batch=number)
    worker.finish(chunk, batches=SEEDS // BATCH)
    wait(engine, job.id)
    return 1000 * (time.perf_counter() - began) / SEEDS


def wait(engine: Engine, job_id: str) -> None:
    """Until the job is over."""
    while True:
        with reading(engine) as current:
            job = jobs.get(current, job_id)
        if job is not None and job.state.final:
            return
        time.sleep(0.005)


def measure(database_url: str, broker_url: str) -> None:
    """Print one line of figures per quantity."""
    engine = make_engine(database_url)
    schema.upgrade(engine)
    settings = Settings(database_url=database_url, broker_url=broker_url, secret_key=SecretStr(KEY))
    enroll(engine)
    worker = SimulatedWorker(broker_url)
    with running(settings), worker.alive():
        time.sleep(2)
        dispatch = latencies(engine, settings, worker)
        per_seed = min(throughput(engine, worker) for _ in range(3))
    worker.close()
    kind = engine.dialect.name
    p50, p95 = statistics.median(dispatch), dispatch[int(0.95 * len(dispatch))]
    print(f"{kind:10}  stored to in hand  p50 {p50:6.1f} ms, p95 {p95:6.1f} ms   (goal: p50 < 150)")
    print(
        f"{kind:10}  ingest             {per_seed:6.2f} ms per seed of 3 outputs, "
        f"{1000 / per_seed:.0f} seeds/s   (goal: < .6 ms)"
    )
    engine.dispose()


@contextmanager
def private_redis(folder: Path) -> Iterator[str]:
    """The embedded service's Redis; its URL."""
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


def main(urls: list[str]) -> None:
    """Measure each database."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        private_redis(Path(folder)) as broker_url,
    ):
        for url in urls or [f"sqlite:///{folder}/flow.sqlite"]:
            measure(url, broker_url)


if __name__ == "__main__":
    main(sys.argv[1:])
