"""Start and cancel gauges: the work of a gauge is that of a hidden job with the same id."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from gonogo.gauge.plan import RIGHT, Planned
from gonogo.spec.builds import EMULATOR
from gonogo_service.gauges import gauge_work
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.gauges.store import Gauge, get
from gonogo_service.jobs import chunks, events
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.job import BACKGROUND_PRIORITY
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.records import as_columns
from gonogo_service.kit.database.states import JobKind, JobState
from gonogo_service.tests import test_specs

CHUNK_SECONDS = 5.0
"""Estimated seconds of a gauge's chunk, at most: a job that comes waits for those that run."""


@dataclass(frozen=True)
class NewGauge:
    """A checked request: everything that `create` needs, nothing left to decide."""

    test_key: str
    workload_key: str
    kernel: str
    canonical: Mapping[str, Any]
    elements: int
    branch: str
    arch: str
    board: str
    parts: tuple[Planned, ...]
    seeds: tuple[int, ...]
    search: bool = True
    priority: int = BACKGROUND_PRIORITY
    queue_deadline_s: float = 86400.0
    owner: str = "local"
    chunk_seconds: float = CHUNK_SECONDS
    request: Mapping[str, Any] = field(default_factory=dict)
    """The body as it was posted."""


def create(session: Session, new: NewGauge, *, now: datetime | None = None) -> Gauge:
    """Store the gauge with its hidden job and chunks in the caller's transaction.

    Notify the dispatcher after the commit. Raises ValueError without seeds or parts, or when the
    seeds don't follow each other without a gap.
    """
    if (
        not new.seeds
        or not new.parts
        or list(new.seeds) != list(range(new.seeds[0], new.seeds[0] + len(new.seeds)))
    ):
        raise ValueError(
            "a gauge needs at least one part and one seed, and its seeds must be consecutive"
        )
    now = now or utcnow()
    test_specs.ensure(session, new, now=now)
    seconds = gauge_work.RUN_FACTOR * chunks.estimate_seed_s(
        session, new.workload_key, EMULATOR, new.elements
    )
    estimate = {"run_s": seconds, "chunk_seconds": new.chunk_seconds, "elements": new.elements}
    gauge_id = new_id()
    columns = {**as_columns(JobRow, new), "request": {**new.request, **estimate}}
    job = JobRow(
        **columns,
        id=gauge_id,
        kind=JobKind.gauge,
        state=JobState.queued,
        build=RIGHT,
        build_sequence=0,
        executor=EMULATOR,
        queue=f"{EMULATOR}.{new.arch}.{new.board}",
        context="isolated",
        labels={},
        total=0,
        chunk_count=0,
        open_chunks=0,
        counts={},
        last_event=0,
        created_at=now,
        deadline_at=now + timedelta(seconds=new.queue_deadline_s),
    )
    session.add(job)
    session.flush()
    parts = [{**asdict(part), "where": None} for part in new.parts]
    session.add(
        GaugeRow(
            id=gauge_id,
            test_key=new.test_key,
            branch=new.branch,
            arch=new.arch,
            board=new.board,
            seeds=list(new.seeds),
            search=new.search,
            elsewhere=[],
            parts=parts,
            done=0,
        )
    )
    session.flush()
    gauge_work.add(session, job, parts, 0, new.seeds)
    events.add(session, job, StateChange(JobState.queued.value), now=now)
    session.flush()
    gauge = get(session, gauge_id)
    assert gauge is not None
    return gauge


def cancel(session: Session, gauge_id: str, *, now: datetime | None = None) -> Gauge | None:
    """Cancel a gauge as a job is canceled; None when there is no such gauge.

    Notify the dispatcher after the commit.
    """
    if get(session, gauge_id) is None:
        return None
    jobs.cancel(session, gauge_id, now=now)
    return get(session, gauge_id)
