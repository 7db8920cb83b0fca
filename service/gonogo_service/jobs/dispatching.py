"""Dispatching: chosen chunks get attempts, which wait for the workers that claim them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select, update
from sqlalchemy.orm import Session, aliased

from gonogo.spec.hang_limits import is_guessed_well
from gonogo_service.builds.model import BuildRow
from gonogo_service.jobs import closing, work
from gonogo_service.jobs.chunks import Place, measured_seed_s
from gonogo_service.jobs.kinds import kind_of
from gonogo_service.jobs.model import AttemptRow, ChunkRow, JobRow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import AttemptState, ChunkState
from gonogo_service.results import store as results
from gonogo_service.tests.model import TestSpecRow

MAX_UNCLAIMED = 1000
"""Attempts that the dispatcher looks at in one pass: two for each worker."""
WORST_ARTIFACTS = 3
"""The seeds of a chunk, besides its first ones, whose artifacts a worker sends."""


def dispatch(session: Session, places: Sequence[Place], *, now: datetime) -> list[str]:
    """Give each chosen chunk an attempt for its missing results; return the attempts' ids.

    `unclaimed` then returns these attempts. A chunk that is no longer waiting, or whose job was
    canceled meanwhile, is skipped. A chunk whose results have all arrived by now is closed.
    """
    attempt_ids: list[str] = []
    for job_id, number in sorted(places):
        job = closing.lock(session, job_id)
        if job is None or job.state not in closing.LIVE:
            continue
        chunk = _chunk(session, job_id, number)
        if chunk is None or chunk.state != ChunkState.waiting:
            continue
        missing = chunk.work
        if chunk.attempts or chunk.returns:
            missing = results.missing(session, job_id, chunk.work)
        if not missing:
            closing.end_chunk(session, job, chunk, ChunkState.done, now=now)
            continue
        chunk.attempts += 1
        attempt = AttemptRow(
            id=new_id(),
            chunk_id=chunk.id,
            job_id=job_id,
            number=chunk.attempts + chunk.returns,
            state=AttemptState.sent,
            queue=chunk.queue,
            work=missing,
            batches={},
            created_at=now,
        )
        session.add(attempt)
        chunk.state, chunk.attempt_id = ChunkState.sent, attempt.id
        session.flush()
        attempt_ids.append(attempt.id)
    return attempt_ids


def _chunk(session: Session, job_id: str, number: int) -> ChunkRow | None:
    """Return a chunk of a job, made now if it is the next one; None if it can't be sent."""
    query = select(ChunkRow).where(ChunkRow.job_id == job_id, ChunkRow.number == number)
    stored = session.scalar(query.execution_options(populate_existing=True))
    return stored or work.make_chunk(session, job_id, number)


@dataclass(frozen=True)
class Sendable:
    """An attempt, and what its worker has to run (`message`), without its time limits."""

    attempt: str
    job: str
    queue: str
    message: dict[str, Any]
    seed_s: float | None
    """The seconds that a seed is expected to take; None if nobody knows."""

    @property
    def work(self) -> list[Any]:
        """Return its pairs [seed, repeat]."""
        work: list[Any] = self.message["work"]
        return work


def described(session: Session, attempt_id: str) -> Sendable:
    """Return what an attempt has to run, with the build's name, never how to run it."""
    build, other = aliased(BuildRow), aliased(BuildRow)
    query = (
        select(AttemptRow, ChunkRow, JobRow, TestSpecRow.test, build, other)
        .join(ChunkRow, AttemptRow.chunk_id == ChunkRow.id)
        .join(JobRow, AttemptRow.job_id == JobRow.id)
        .join(TestSpecRow, JobRow.test_key == TestSpecRow.key)
        .outerjoin(build, (build.name == JobRow.build) & (build.executor == JobRow.executor))
        .outerjoin(other, (other.name == JobRow.reference) & (other.executor == JobRow.executor))
        .where(AttemptRow.id == attempt_id)
    )
    attempt, chunk, job, canonical, registered, reference = session.execute(query).one()
    message: dict[str, Any] = {
        "attempt": attempt.id,
        "chunk": chunk.id,
        "job": job.id,
        "test": canonical,
        "work": attempt.work,
        "build": job.build,
        "target": {"executor": job.executor, "arch": job.arch, "board": job.board},
        "context": job.context,
        # the registered build's; null: the worker's host knows, or it is found
        **_declared(registered),
        "reference": job.reference and {"build": job.reference, **_declared(reference)},
        "artifacts": {"first": chunk.number == 0, "worst": WORST_ARTIFACTS},
        "gauge": None,
    }
    seed_s = measured_seed_s(session, job.workload_key, job.executor)
    if seed_s is None and is_guessed_well(job.executor):
        seed_s = chunk.estimate_s / len(chunk.work)
    seed_s = kind_of(job).complete(session, job, message, seed_s)
    return Sendable(attempt.id, job.id, attempt.queue, message, seed_s)


def _declared(build: BuildRow | None) -> dict[str, Any]:
    return {name: build and getattr(build, name) for name in ("arithmetic", "outputs")}


class Unclaimed(NamedTuple):
    """An attempt that waits for a worker."""

    attempt: str
    job: str
    queue: str
    published_at: datetime | None
    """None: no worker has been woken for it."""


def unclaimed(session: Session) -> list[Unclaimed]:
    """Return the attempts that no worker has claimed, oldest first."""
    columns = AttemptRow.id, AttemptRow.job_id, AttemptRow.queue, AttemptRow.heard_at
    query = select(*columns).where(AttemptRow.state == AttemptState.sent).order_by(AttemptRow.id)
    return [Unclaimed._make(row) for row in session.execute(query.limit(MAX_UNCLAIMED))]


def published(session: Session, attempt_ids: Sequence[str], *, now: datetime) -> None:
    """Record that workers were woken for these attempts."""
    session.execute(
        update(AttemptRow)
        .where(AttemptRow.id.in_(attempt_ids), AttemptRow.state == AttemptState.sent)
        .values(heard_at=now)
    )
