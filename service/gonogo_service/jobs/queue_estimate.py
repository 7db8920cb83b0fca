"""The work that waits in each queue, and the workers that serve it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo_service.builds.model import BuildRow
from gonogo_service.devices import workers
from gonogo_service.devices.model import DeviceRow, WorkerRow
from gonogo_service.jobs import work
from gonogo_service.jobs.model import ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import CLOSED_CHUNK, ChunkState, JobState

OPEN_CHUNK = tuple(state for state in ChunkState if state not in CLOSED_CHUNK)


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


def read_work(session: Session, queue: str, *, timeout_s: float) -> QueueWork:
    """Read the open work of a queue; of sequential seeds only what the next decision needs."""
    stored = select(func.count(), func.coalesce(func.sum(ChunkRow.estimate_s), 0.0)).where(
        ChunkRow.queue == queue, ChunkRow.state.in_(OPEN_CHUNK)
    )
    unmade = select(
        func.coalesce(func.sum(work.READY), 0), func.coalesce(func.sum(work.READY_S), 0.0)
    ).where(ChunkRangeRow.queue == queue, work.OPEN)
    (chunks, work_s), (others, other_s) = (
        session.execute(query).one() for query in (stored, unmade)
    )
    served = workers.live(session, now=utcnow(), timeout_s=timeout_s)[queue]
    return QueueWork(int(chunks + others), float(work_s + other_s), served)


def start_command(queue: str) -> str:
    """Return the command that starts a worker of a queue, on a host with such a device."""
    executor, arch, board = queue.split(".", 2)
    return f"GONOGO_ARCH={arch} GONOGO_BOARD={board} gonogo worker --executor {executor}"


def unserved(session: Session, job: JobRow, *, timeout_s: float, now: datetime) -> bool:
    """Return whether a job waits and no live worker serves its queue.

    It is so before the background has stored it as the reason, too, and while none runs.
    """
    waits = job.state is JobState.queued or (not job.state.final and job.waiting_reason is not None)
    return waits and not workers.live(session, now=now, timeout_s=timeout_s)[job.queue]


def unserved_words(queue: str) -> str:
    """Return that no live worker serves a queue, and what to do."""
    remedy = f"start one on a host with such a device: {start_command(queue)}"
    return f"no live worker serves the queue {queue}; {remedy}"


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
    running = (ChunkState.running, ChunkState.stopping)
    served = workers.live(session, now=now, timeout_s=timeout_s)
    counts: dict[str, list[int]] = {queue: [0, 0] for queue in served}
    waits = set()
    for (queue, state), number in open_chunks(session).items():
        counts.setdefault(queue, [0, 0])[state in running] += number
        if state == ChunkState.waiting:
            waits.add(queue)
    return [
        QueueStatus(
            queue,
            waiting,
            runs,
            served[queue],
            oldest(session, queue) if queue in waits else None,
        )
        for queue, (waiting, runs) in sorted(counts.items())
    ]


def open_chunks(session: Session) -> dict[tuple[str, ChunkState], int]:
    """Count the open chunks by queue and state; those that aren't rows yet wait."""
    stored = select(ChunkRow.queue, ChunkRow.state, func.count()).where(
        ChunkRow.state.in_(OPEN_CHUNK)
    )
    counts = {
        (queue, ChunkState(state)): count
        for queue, state, count in session.execute(stored.group_by(ChunkRow.queue, ChunkRow.state))
    }
    unmade = select(ChunkRangeRow.queue, func.sum(work.UNMADE)).where(work.OPEN)
    for queue, count in session.execute(unmade.group_by(ChunkRangeRow.queue)):
        key = (queue, ChunkState.waiting)
        counts[key] = counts.get(key, 0) + int(count)
    return counts


def oldest(session: Session, queue: str) -> datetime | None:
    """Return the creation time of the oldest job with a waiting chunk in the queue.

    Ids are in the order of time, so the indexes have it first.
    """
    stored = select(ChunkRow.job_id).where(
        ChunkRow.state == ChunkState.waiting, ChunkRow.queue == queue
    )
    unmade = select(ChunkRangeRow.job_id).where(work.OPEN, ChunkRangeRow.queue == queue)
    first = (
        session.scalar(stored.order_by(ChunkRow.job_id).limit(1)),
        session.scalar(unmade.order_by(ChunkRangeRow.job_id).limit(1)),
    )
    job_id = min((job_id for job_id in first if job_id is not None), default=None)
    return session.scalar(select(JobRow.created_at).where(JobRow.id == job_id))


def executors(session: Session) -> tuple[set[str], set[str]]:
    """Return (the executors that registered builds name, those that known workers serve)."""
    registered = set(session.scalars(select(BuildRow.executor).distinct()))
    return registered, {parts[0] for parts in _known_queues(session)}


def kinds(session: Session) -> set[tuple[str, str]]:
    """Return the (architecture, board) of every known device, and of every known worker's queues.

    A device that is silent for long is known, too: its host may come back.
    """
    devices = {
        (arch, board)
        for arch, board in session.execute(select(DeviceRow.arch, DeviceRow.board).distinct())
    }
    return devices | {(parts[1], parts[2]) for parts in _known_queues(session) if len(parts) == 3}


def _known_queues(session: Session) -> list[list[str]]:
    """Return the parts of the names of all queues that known workers serve."""
    served = session.scalars(select(WorkerRow.queues))
    return [str(queue).split(".") for queues in served for queue in queues]
