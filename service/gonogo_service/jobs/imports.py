"""Imported runs, as jobs of kind `import`: stored in one transaction, finished from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo_service.jobs import closing, store
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import IMPORT_EXECUTOR, JobKind, JobState
from gonogo_service.results.batch import Batch

MAX_SEEDS_SHOWN = 1000


@dataclass(frozen=True)
class NewImport:
    """A report that was read and checked, with its test, build and board."""

    test_key: str
    workload_key: str
    kernel: str
    canonical: Mapping[str, Any]
    build: str
    branch: str
    build_sequence: int
    arch: str
    board: str
    rows: Sequence[Mapping[str, Any]]
    """As a worker sends them, one for each (iteration, repeat), at least one."""
    source: Mapping[str, Any]
    """{"format", "tool", "tests", "numbers", "bytes", "sha256", "started_at"}, for the pages."""
    labels: Mapping[str, str] = field(default_factory=dict)
    commit: Mapping[str, Any] | None = None
    owner: str = "local"


def create(session: Session, new: NewImport, *, now: datetime | None = None) -> JobRow:
    """Store the job with its rows, and conclude it like any job.

    It gets its verdict, roll-ups, flags and webhook messages from the rows.
    """
    now = now or utcnow()
    seeds = sorted({int(row["seed"]) for row in new.rows})
    job = store.add_row(
        session,
        new,
        now=now,
        kind=JobKind.import_,
        state=JobState.running,
        executor=IMPORT_EXECUTOR,
        queue=f"{IMPORT_EXECUTOR}.{new.arch}.{new.board}",
        context="isolated",
        priority=0,
        request={
            "seeds": seeds
            if len(seeds) <= MAX_SEEDS_SHOWN
            else {"start": seeds[0], "count": len(seeds)},
            "repeats": 1 + max(int(row["repeat"]) for row in new.rows),
            "elements": 0,
            "import": dict(new.source),
        },
        started_at=now,
        deadline_at=now,
    )
    job.total = len(new.rows)
    closing.record(session, job, job.id, Batch.of(new.rows), now=now)
    closing.close(session, job, now=now)
    return job
