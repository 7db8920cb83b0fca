"""Measure how fast results are stored, and how many bytes a seed takes.

`python -m benchmarks.ingest [DATABASE_URL ...]`: each database must be empty; without one, an
SQLite file in a temporary folder. A seed has three outputs with all the statistics of a real one.
Batches are in columns, as workers send them. They go through the function that ingest calls, each
in a transaction of its own: rows, sums, counters and events. Asked: 5,000 seeds a second, at most
2,600 bytes a seed without indexes.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from typing import Any

from sqlalchemy import Engine, text

from benchmarks.report import Figure, report
from benchmarks.simulated import new_job
from gonogo.judging.columns import in_columns
from gonogo.judging.inputs import generate, quantise
from gonogo.judging.judging import judge
from gonogo.spec.test_spec import TestSpec
from gonogo_service.jobs import batches, work
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database.encoding import decode, encode, utcnow
from gonogo_service.kit.database.engine import is_postgres, make_engine, reading, session
from gonogo_service.kit.database.ids import new_id
from gonogo_service.operate import schema
from gonogo_service.results.model import ResultRow
from gonogo_workers.executors.emulator_executor import EmulatorExecutor

SEEDS, BATCH, ROUNDS = 20_000, 1_000, 3
TEST = {
    "kernel": "layernorm_bw",
    "shape": [2, 32, 1, 512],
    "tolerance": {"rtol": 1e-3, "atol": 0.5},
}


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Yield result rows: one judged seed whose numbers differ a little from seed to seed."""
    test = TestSpec.parse(TEST)
    raw = generate(test, 0)
    given = quantise(test, raw)
    outputs = EmulatorExecutor("correct").run(test.canonical(), given)
    judged = judge(test, raw, given, outputs, arithmetic="tt-train").to_json()
    noise = random.Random(0)
    for seed in range(count):
        yield {
            **judged,
            "seed": seed,
            "repeat": 0,
            "device": "lab-1/wormhole:0",
            "host_run": "c80b6a386bf64196975580da0eff6e86",
            "position": seed,
            "duration_ms": round(812.5 * noise.uniform(0.9, 1.1), 3),
            "outputs": {name: _varied(output, noise) for name, output in judged["outputs"].items()},
        }


def _varied(output: Mapping[str, Any], noise: random.Random) -> dict[str, Any]:
    factor = noise.uniform(0.9, 1.1)
    varied = {
        name: value * factor if isinstance(value, float) else value
        for name, value in output.items()
    }
    atols = {name: value * factor for name, value in output["needed_atol"].items()}
    return varied | {"needed_atol": atols, "digest": f"{noise.getrandbits(64):016x}"}


def ingest(engine: Engine, bodies: list[str]) -> tuple[float, float]:
    """Store a job's batches; return the seeds a second, and CPU seconds per 1,000 seeds."""
    with session(engine) as current:
        job = jobs.create(current, new_job(SEEDS, chunk_seconds=1e9))
        attempt_ids = []
        while (chunk := work.make_chunk(current, job.id)) is not None:
            attempt = AttemptRow(
                id=new_id(),
                chunk_id=chunk.id,
                job_id=job.id,
                number=1,
                state="sent",
                queue=job.queue,
                work=chunk.work,
                batches={},
                created_at=utcnow(),
            )
            current.add(attempt)
            chunk.state, chunk.attempt_id, chunk.attempts = "sent", attempt.id, 1
            low, high = chunk.work[0][0], chunk.work[-1][0]
            attempt_ids.append((attempt.id, low, high))
    began, cpu_began = time.perf_counter(), time.process_time()
    for number, body in enumerate(bodies):
        message = decode(body)
        seed = message["rows"][0]["seed"]
        attempt_id = next(name for name, low, high in attempt_ids if low <= seed <= high)
        with session(engine) as current:
            batch = {**message, "batch": number}
            batches.store(current, attempt_id, batch, now=utcnow(), sender=None)
    cpu_s = time.process_time() - cpu_began
    return SEEDS / (time.perf_counter() - began), 1000 * cpu_s / SEEDS


def bytes_of(engine: Engine, table: str) -> int:
    """Return the bytes of a table without its indexes."""
    sizes = {
        True: "SELECT pg_table_size(CAST(:name AS regclass))",
        False: "SELECT sum(pgsize) FROM dbstat WHERE name = :name",
    }
    with reading(engine) as current:
        return int(current.scalar(text(sizes[is_postgres(engine)]), {"name": table}) or 0)


def measure(url: str) -> list[Figure]:
    """Return the figures of a database."""
    engine = make_engine(url)
    schema.upgrade(engine)
    kind = engine.dialect.name
    results = list(rows(SEEDS))
    bodies = [encode(in_columns(results[low : low + BATCH])) for low in range(0, SEEDS, BATCH)]
    rounds = [ingest(engine, bodies)]
    size = bytes_of(engine, ResultRow.__tablename__) / SEEDS
    rounds += [ingest(engine, bodies) for _ in range(ROUNDS - 1)]
    engine.dispose()
    stored, cpu_s = max(rate for rate, _ in rounds), min(cpu_s for _, cpu_s in rounds)
    return [
        Figure(f"{kind}: ingest", stored, "seeds/s", least=5_000),
        Figure(f"{kind}: processor time of 1,000 seeds", cpu_s, "s"),
        Figure(f"{kind}: a seed of three outputs", size, "bytes", most=2_600),
    ]


def main(urls: list[str]) -> int:
    """Measure each database; return 1 if a figure is worse than asked."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        databases = urls or [f"sqlite:///{folder}/ingest.sqlite"]
        return report("ingest", [figure for url in databases for figure in measure(url)])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
