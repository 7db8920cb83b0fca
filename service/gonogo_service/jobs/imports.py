"""Imported runs, as jobs of kind `import`: stored in one transaction, finished from the start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo.spec.builds import Build
from gonogo.spec.selections import Selection
from gonogo_service.jobs import closing, store, work
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import IMPORT_EXECUTOR, JobKind, JobState
from gonogo_service.results.batch import Batch

MAX_SEEDS_SHOWN = 1000


def create(
    session: Session,
    suite: Selection,
    build: Build,
    rows: Sequence[Mapping[str, Any]],
    source: Mapping[str, Any],
    *,
    now: datetime | None = None,
    **fields: Any,
) -> JobRow:
    """Store the job with its rows, and conclude it like any job.

    It gets its verdict, sums, flags and webhook messages from the rows, which are as a worker
    sends them: one for each (iteration, repeat), at least one. source: the fields of ImportedFile.
    fields: those of NewJob that say where and for whom it ran.
    """
    now = now or utcnow()
    seeds = sorted({int(row["seed"]) for row in rows})
    shown = range(seeds[0], seeds[0] + len(seeds)) if len(seeds) > MAX_SEEDS_SHOWN else seeds
    new = NewJob(
        test_key=suite.key,
        workload_key=suite.workload_key,
        kernel=suite.kernel,
        canonical=suite.canonical(),
        elements=0,
        build=build.name,
        branch=build.branch,
        build_sequence=build.sequence,
        executor=IMPORT_EXECUTOR,
        seeds=seeds,
        priority=0,
        **fields,
    )
    request = {
        "seeds": work.compact(shown),
        "repeats": 1 + max(int(row["repeat"]) for row in rows),
        "elements": 0,
        "import": dict(source),
    }
    job = store.add_row(
        session,
        new,
        now=now,
        kind=JobKind.import_,
        state=JobState.running,
        request=request,
        started_at=now,
        deadline_at=now,
    )
    job.total = len(rows)
    closing.record(session, job, job.id, Batch.of(rows), now=now)
    closing.close(session, job, now=now)
    return job
