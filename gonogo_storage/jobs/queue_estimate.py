"""How long a job would wait: the work that stands in its queue, and who serves it."""

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
class Queue:
    """What waits in a queue, in seconds of one device's time, and how many live workers serve
    it.
    """

    chunks: int
    work_s: float
    workers: int

    @property
    def wait_s(self) -> float | None:
        """When a job submitted now would start at the latest if nobody had priority; None while
        nobody serves the queue.
        """
        return self.work_s / self.workers if self.workers else None


def look(session: Session, queue: str, *, timeout_s: float, now: datetime | None = None) -> Queue:
    """The queue of that name as it stands; of sequential seeds as many as the next decision
    needs.
    """
    opened = (ChunkState.waiting, ChunkState.sent, ChunkState.running, ChunkState.stopping)
    query = select(func.count(), func.coalesce(func.sum(ChunkRow.estimate_s), 0.0)).join(
        JobRow, ChunkRow.job_id == JobRow.id
    )
    number, work = session.execute(
        query.where(ChunkRow.queue == queue, ChunkRow.state.in_(opened), chunks.free())
    ).one()
    return Queue(
        number, float(work), workers.live(session, now=now or utcnow(), timeout_s=timeout_s)[queue]
    )


@dataclass(frozen=True)
class Standing:
    """A queue at a moment: chunks that wait and chunks that run, how many live workers serve it,
    and since when the oldest waits.
    """

    queue: str
    waiting: int
    running: int
    workers: int
    oldest_at: datetime | None

    @property
    def stuck(self) -> bool:
        """Whether something waits for workers that aren't there."""
        return bool(self.waiting) and not self.workers


def standing(session: Session, *, timeout_s: float, now: datetime) -> list[Standing]:
    """Every queue that holds open chunks or is served, by name."""
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
        Standing(
            queue,
            waiting,
            running,
            served[queue],
            oldest(session, queue) if queue in waits else None,
        )
        for queue, (waiting, running) in sorted(counts.items())
    ]


def oldest(session: Session, queue: str) -> datetime | None:
    """When the oldest job with a waiting chunk in the queue was made: ids are in the order of time,
    so the index has it first.
    """
    waiting = (ChunkRow.state == ChunkState.waiting, ChunkRow.queue == queue)
    first = (
        select(ChunkRow.job_id).where(*waiting).order_by(ChunkRow.job_id).limit(1).scalar_subquery()
    )
    return session.scalar(select(JobRow.created_at).where(JobRow.id == first))


def executors(session: Session) -> tuple[set[str], set[str]]:
    """The executors that registered builds name, and those that known workers serve."""
    built = set(session.scalars(select(BuildRow.executor).distinct()))
    served = {
        str(queue).split(".")[0]
        for queues in session.scalars(select(WorkerRow.queues))
        for queue in queues
    }
    return built, served
