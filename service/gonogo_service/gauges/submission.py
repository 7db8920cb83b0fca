"""Checks of a gauge's body, and its start: a gauge's work is a hidden job with the same id."""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.gauge import gates
from gonogo.gauge.kernels import RIGHT, Planned, planned
from gonogo.settings import Settings
from gonogo.spec.builds import EMULATOR
from gonogo_service.gauges import gauge_work
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.gauges.model import GaugePart, GaugeRow
from gonogo_service.jobs import chunks, events, submission
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.events import StateChange
from gonogo_service.jobs.new_job import NewJob
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import JobKind, JobState

CHUNK_SECONDS = 5.0
"""Estimated seconds of a gauge's chunk, at most: a job that comes waits for those that run."""


def order(session: Session, body: GaugeIn, settings: Settings) -> list[Planned]:
    """Return the parts of a gauge whose builds are known. Raises FieldError."""
    submission.check_size(body.test, settings, "test")
    gates.named(body.gates)
    parts = planned(body.test, body.target.executor, body.builds, body.wrong_builds)
    count = body.seeds.count
    # before the range is expanded: a count of 10**15 must not use memory
    if count * len(parts) > settings.max_gauge_runs:
        limit = f"{settings.max_gauge_runs} runs (GONOGO_MAX_GAUGE_RUNS)"
        reason = f"{count} seeds x {len(parts)} parts are too many"
        raise FieldError("seeds.count", count, reason, limit=limit)
    submission.check_kind(session, body.target, settings)
    for field, names in (("builds", body.builds), ("wrong_builds", body.wrong_builds)):
        for place, name in enumerate(names):
            where = f"{field}.{place}"
            submission.build_of(session, name, body.test, body.target.executor, settings, where)
    return parts


def submit(
    session: Session,
    body: GaugeIn,
    settings: Settings,
    owner: str,
    *,
    now: datetime | None = None,
) -> GaugeRow:
    """Store a gauge with its hidden job and chunks in the caller's transaction.

    Notify the dispatcher after the commit. Raises FieldError.
    """
    planned_parts, now = order(session, body, settings), now or utcnow()
    test, target = body.test, body.target
    new = NewJob(
        test.key,
        test.workload_key,
        test.kernel,
        test.canonical(),
        test.elements,
        RIGHT,
        body.branch,
        0,
        EMULATOR,
        target.arch,
        target.board,
        seeds=(),
        priority=body.priority,
        owner=owner,
    )
    run_s = gauge_work.RUN_FACTOR * chunks.estimate_seed_s(
        session, test.workload_key, EMULATOR, test.elements
    )
    job = jobs.add_row(
        session,
        new,
        now=now,
        kind=JobKind.gauge,
        state=JobState.queued,
        request={
            **body.model_dump(mode="json", exclude={"test"}),
            "run_s": run_s,
            "chunk_seconds": min(settings.chunk_seconds, CHUNK_SECONDS),
            "elements": test.elements,
        },
        deadline_at=now + timedelta(seconds=body.queue_deadline_s),
    )
    seeds = list(range(body.seeds.start, body.seeds.start + body.seeds.count))
    parts = [GaugePart(**vars(part)) for part in planned_parts]
    gauge = GaugeRow(
        id=job.id,
        test_key=test.key,
        branch=body.branch,
        arch=target.arch,
        board=target.board,
        seeds=seeds,
        search=body.search,
        elsewhere=[],
        parts=parts,
        done=0,
    )
    session.add(gauge)
    session.flush()
    gauge_work.add(session, job, parts, 0, seeds)
    events.add(session, job, StateChange(JobState.queued.value), now=now)
    session.flush()
    return gauge
