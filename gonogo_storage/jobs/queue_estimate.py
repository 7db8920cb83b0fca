"""The work that waits in each queue, and the workers that serve it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.states import ChunkState
from gonogo_storage.devices import workers
from gonogo_storage.jobs import chunks
from gonogo_storage.tables import BuildRow, ChunkRow, JobRow, WorkerRow


@dataclass(frozen=True)
class QueueWork:
    """The work of a queue in seconds of one device's time, and its number of live workers."""

    chunks: int
    work_s: float
    workers: int

    @property
    def wait_s(self) -> float | None:
        """Return when a job submitted now starts at the latest, in seconds, if no job has priority.

        None while no worker serves the queue.
        """
        return self.work_s / self.workers if self.workers else None


def read_work(
    session: Session, queue: str, *, timeout_s: float, now: datetime | None = None
) -> QueueWork:
    """Read the open work of a queue; of sequential seeds only what the next decision needs."""
    opened = (ChunkState.waiting, ChunkState.sent, ChunkState.running, ChunkState.stopping)
    query = select(func.count(), func.coalesce(func.sum(ChunkRow.estimate_s), 0.0)).join(
        JobRow, ChunkRow.job_id == JobRow.id
    )
    number, work = session.execute(
        query.where(ChunkRow.queue == queue, ChunkRow.state.in_(opened), chunks.free())
    ).one()
    return QueueWork(
        number, float(work), workers.live(session, now=now or utcnow(), timeout_s=timeout_s)[queue]
    )


@dataclass(frozen=True)
class QueueStatus:
    """A queue at a moment: waiting and running chunks, live workers, and its oldest job's time."""

    queue: str
    waiting: int
    running: int
    workers: int
    oldest_at: datetime | None

    @property
    def stuck(self) -> bool:
        """Return whether chunks wait and no worker serves the queue."""
        return bool(self.waiting) and not self.workers


def statuses(session: Session, *, timeout_s: float, now: datetime) -> list[QueueStatus]:
    """Return every queue that has open chunks or live workers, by name."""
    states = {
        ChunkState.waiting: 0,
        ChunkState.sent: 0,
        ChunkState.running: 1,
        ChunkState.stopping: 1,
    }
    counted = select(ChunkRow.queue, ChunkRow.state, func.count()).where(
        ChunkRow.state.in_(list(states))
    )
    served = workers.live(session, now=now, timeout_s=timeout_s)
    counts: dict[str, list[int]] = {queue: [0, 0] for queue in served}
    waits = set()
    for queue, state, number in session.execute(counted.group_by(ChunkRow.queue, ChunkRow.state)):
        counts.setdefault(queue, [0, 0])[states[ChunkState(state)]] += number
        if state == ChunkState.waiting:
            waits.add(queue)
    return [
        QueueStatus(
            queue,
            waiting,
            running,
            served[queue],
            oldest(session, queue) if queue in waits else None,
        )
        for queue, (waiting, running) in sorted(counts.items())
    ]


def oldest(session: Session, queue: str) -> datetime | None:
    """Return the creation time of the oldest job with a waiting chunk in the queue.

    Ids are in the order of time, so the index has it first.
    """
    waiting = (ChunkRow.state == ChunkState.waiting, ChunkRow.queue == queue)
    first = (
        select(ChunkRow.job_id).where(*waiting).order_by(ChunkRow.job_id).limit(1).scalar_subquery()
    )
    return session.scalar(select(JobRow.created_at).where(JobRow.id == first))


def executors(session: Session) -> tuple[set[str], set[str]]:
    """Return (the executors that registered builds name, those that known workers serve)."""
    registered = set(session.scalars(select(BuildRow.executor).distinct()))
    served = {
        str(queue).split(".")[0]
        for queues in session.scalars(select(WorkerRow.queues))
        for queue in queues
    }
    return registered, served
