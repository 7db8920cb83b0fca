"""How long a job would wait: the work that stands in its queue, and who serves it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage import chunks, workers
from storage.encoding import utcnow
from storage.states import ChunkState
from storage.tables import BuildRow, ChunkRow, JobRow, WorkerRow


@dataclass(frozen=True)
class Queue:
    """What waits in a queue, in seconds of one device's time, and how many live workers serve it."""

    chunks: int
    work_s: float
    workers: int

    @property
    def wait_s(self) -> float | None:
        """When a job submitted now would start at the latest if nobody had priority; None while nobody serves the queue."""
        return self.work_s / self.workers if self.workers else None


def look(session: Session, queue: str, *, timeout_s: float, now: datetime | None = None) -> Queue:
    """The queue of that name as it stands; of sequential seeds as many as the next decision needs."""
    opened = (ChunkState.waiting, ChunkState.sent, ChunkState.running, ChunkState.stopping)
    query = select(func.count(), func.coalesce(func.sum(ChunkRow.estimate_s), 0.0)).join(JobRow, ChunkRow.job_id == JobRow.id)
    number, work = session.execute(query.where(ChunkRow.queue == queue, ChunkRow.state.in_(opened), chunks.free())).one()
    return Queue(number, float(work), workers.live(session, now=now or utcnow(), timeout_s=timeout_s)[queue])


def executors(session: Session) -> tuple[set[str], set[str]]:
    """The executors that registered builds name, and those that known workers serve."""
    built = set(session.scalars(select(BuildRow.executor).distinct()))
    served = {str(queue).split(".")[0] for queues in session.scalars(select(WorkerRow.queues)) for queue in queues}
    return built, served
