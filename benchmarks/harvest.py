"""Make a database with any number of seed results within minutes.

A few jobs are stored as ingest stores them, and the others are copied by SQL.

A copy has other names, another test, build, day and seeds, and the same numbers; its sums are those
of its source, taken as often as its seeds are. For benchmarks, and for the tests of huge states.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import insert, literal, select
from sqlalchemy.orm import Session

from gonogo.spec.test_spec import TestSpec
from gonogo.spec.verdicts import JUDGE
from gonogo_service.jobs import closing, work
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import ChunkRow, EventRow, JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.ids import floor, new_id
from gonogo_service.kit.database.states import ChunkState, JobState
from gonogo_service.results import sums
from gonogo_service.results.batch import Batch
from gonogo_service.results.model import BLOCK, JobBlockRow, ResultRow, SourceRow
from gonogo_service.tests import test_specs

LINE, DEVICE = "main", "lab-1/wormhole:0"
DX = {
    "tolerance_ratio": (0.0265, 0.101),
    "rounding_ratio": (0.992, 157.0),
    "distance": (0.0, 400.0),
    "max_abs": (0.0133, 0.0507),
    "rms": (1.72e-3, 9.0e-3),
    "pcc_deficit": (4.4e-6, 1.2e-4),
}
"""Statistic -> (dx of a right kernel, dx of tt-train-2025) in the nightly test, as measured."""
VERDICTS = {
    (True, True): "pass_by_tolerance",
    (True, False): "fail",
    (False, True): "pass",
    (False, False): "fail_by_tolerance",
}
"""(is it wrong, is it within the tolerance) -> what that is called."""


@dataclass(frozen=True)
class Kind:
    """How a kernel behaves: its shares of seeds that are wrong, and outside the tolerance."""

    name: str
    wrong: bool
    red: float


RIGHT, HOLLOW, RED, FLICKERS = (
    Kind("right", False, 0.0),
    Kind("hollow", True, 0.0),
    Kind("red", True, 1.0),
    Kind("flickers", True, 0.02),
)
KINDS = (RIGHT, HOLLOW, RED, FLICKERS)


def spec(number: int) -> TestSpec:
    """The tests of the database: the nightly one with other widths and tolerances."""
    tolerance = {"rtol": 1e-3, "atol": round(0.1 + number / 100, 2)}
    inputs = {"regime": "uniform", "low": -1, "high": 1}
    return TestSpec.parse(
        {
            "kernel": "layernorm_bw",
            "shape": [3, 273, 1, 8462],
            "inputs": inputs,
            "tolerance": tolerance,
        }
    )


def rows(kind: Kind, count: int) -> Iterator[dict[str, Any]]:
    """Seeds 0, 1, ... of one output each, as a worker sends them."""
    noise = random.Random(kind.name)
    for seed in range(count):
        outside = noise.random() < kind.red
        verdict, explanation = (
            VERDICTS[kind.wrong, not outside],
            "unexplained" if kind.wrong else "explained",
        )
        numbers = {
            name: values[kind.wrong] * noise.lognormvariate(0, 0.05) for name, values in DX.items()
        }
        if outside:
            numbers["tolerance_ratio"] *= 40
        dx = {
            "verdict": verdict,
            "explanation": explanation,
            **numbers,
            "nonfinite": 0,
            "count": 6930378,
            "digest": f"{seed:016x}",
        }
        head = {
            "seed": seed,
            "repeat": 0,
            "verdict": verdict,
            "explanation": explanation,
            "device": DEVICE,
            "host_run": "a" * 8,
        }
        yield {
            **head,
            "position": 0,
            "duration_ms": 812.5,
            "arithmetic": "tt-train",
            "judge": JUDGE,
            "outputs": {"dx": dx},
        }


@dataclass(frozen=True)
class Place:
    """Where a job belongs: its test, its build, and when it ran."""

    test: TestSpec
    build: str
    sequence: int
    at: datetime


def submitted(session: Session, place: Place, count: int) -> str:
    """A queued job in one chunk; its id."""
    test = place.test
    new = NewJob(
        test_key=test.key,
        workload_key=test.workload_key,
        kernel=test.kernel,
        canonical=test.canonical(),
        elements=test.elements,
        build=place.build,
        branch=LINE,
        build_sequence=place.sequence,
        executor="emulator",
        arch="wormhole",
        board="n150",
        seeds=tuple(range(count)),
        chunk_seconds=1e9,
        request={
            "test": test.canonical(),
            "build": place.build,
            "seeds": {"start": 0, "count": count},
        },
    )
    return jobs.create(session, new).id


def stored(session: Session, kind: Kind, place: Place, count: int) -> str:
    """A job through the functions that ingest uses, all of its seeds in one batch; its id."""
    job = closing.lock(session, submitted(session, place, count))
    assert job is not None
    job.state, job.started_at = JobState.running, place.at
    closing.record(session, job, new_id(), Batch.of(list(rows(kind, count))), now=place.at)
    while (chunk := work.make_chunk(session, job.id)) is not None:
        closing.end_chunk(session, job, chunk, ChunkState.done, now=place.at)
    session.flush()
    return job.id


class Source:
    """A stored job, read once, of which any number of copies are made."""

    def __init__(self, session: Session, job_id: str) -> None:
        self.id = job_id
        self.job = _columns(session, JobRow, JobRow.id == job_id)[0]
        self.chunks = _columns(session, ChunkRow, ChunkRow.job_id == job_id)
        self.sources = _columns(session, SourceRow, SourceRow.job_id == job_id)
        self.events = _columns(session, EventRow, EventRow.job_id == job_id)
        self.blocks = _columns(session, JobBlockRow, JobBlockRow.job_id == job_id)

    def copy(self, session: Session, place: Place, *, times: int = 1, number: int = 0) -> str:
        """A job somewhere else with the seeds of this one, `times` times as many; its id.

        number: tells jobs of one moment apart.
        """
        test, at = place.test, place.at
        test_specs.add(session, test.key, test.workload_key, test.kernel, test.canonical(), now=at)
        copy_id = str(UUID(int=UUID(floor(at)).int | 0x7 << 76 | 0b10 << 62 | number))
        seeds = self.job["done"]
        count = seeds * times
        axes = {
            "test_key": test.key,
            "build": place.build,
            "branch": LINE,
            "build_sequence": place.sequence,
        }
        keys = {"workload_key": test.workload_key, **axes}
        counters = {"total": count, "done": count, "counts": _times(self.job["counts"], times)}
        request = {
            "test": test.canonical(),
            "build": place.build,
            "seeds": {"start": 0, "count": count},
        }
        moments = dict.fromkeys(("created_at", "started_at"), at) | {
            "finished_at": at + timedelta(seconds=count)
        }
        session.execute(
            insert(JobRow).values(
                {**self.job, **keys, **counters, **moments, "id": copy_id, "request": request}
            )
        )
        session.execute(
            insert(ChunkRow),
            [{**row, "id": new_id(), "job_id": copy_id, "work": []} for row in self.chunks],
        )
        for turn in range(times):
            _copy_seeds(session, self.id, copy_id, turn * seeds)
        session.execute(insert(SourceRow), [{**row, "job_id": copy_id} for row in self.sources])
        done = {"done": count, "total": count, "verdicts": counters["counts"]}
        events = [
            {
                **row,
                "job_id": copy_id,
                "at": at,
                **({"data": done} if row["type"] == "progress" else {}),
            }
            for row in self.events
        ]
        session.execute(insert(EventRow), events)
        job = session.get_one(JobRow, copy_id)
        for turn in range(times):
            sums.add(session, job, [self._block(row, job, turn * seeds) for row in self.blocks])
        return copy_id

    def _block(self, row: Mapping[str, Any], job: JobRow, shift: int) -> dict[str, Any]:
        """Return a block of the copy whose seeds are shifted; it begins where its first seed is."""
        day = job.created_at.astimezone(UTC).date()
        seed = row["seed"] + shift
        return {**row, "job_id": job.id, "day": day, "seed": seed, "block": seed // BLOCK}


def night(
    session: Session,
    sources: Sequence[Source],
    tests: Sequence[TestSpec],
    sequence: int,
    *,
    at: datetime,
    fixed: bool,
) -> None:
    """Run every test on one build of the branch, a second after each other.

    Most are right. Some are hollow, some are red until `fixed` and then hollow, and some flicker.
    """
    right, hollow, red, flickers = sources
    for number, test in enumerate(tests):
        kind = right
        if number % 7 == 3:
            kind = hollow if fixed else red
        elif number % 11 == 5:
            kind = flickers
        elif number % 13 == 8:
            kind = hollow
        kind.copy(
            session,
            Place(test, f"b{sequence:04d}", sequence, at + timedelta(seconds=number)),
            number=number,
        )


def _columns(session: Session, table: Any, condition: Any) -> list[dict[str, Any]]:
    return [
        dict(row)
        for row in session.execute(select(*table.__table__.columns).where(condition)).mappings()
    ]


def _copy_seeds(session: Session, source: str, copy_id: str, shift: int) -> None:
    table = ResultRow
    changed: dict[str, Any] = {
        "job_id": literal(copy_id, table.job_id.type),
        "seed": table.seed + shift,
        "arrival": table.arrival + shift,
    }
    columns = [column.name for column in table.__table__.columns]
    chosen = [changed.get(name, getattr(table, name)) for name in columns]
    session.execute(
        insert(table).from_select(columns, select(*chosen).where(table.job_id == source))
    )


def _times(counts: Mapping[str, int], times: int) -> dict[str, int]:
    return {name: number * times for name, number in counts.items()}
