"""The work that waits in each queue, and the workers that serve it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import cast, func, literal, null, select
from sqlalchemy.orm import Session

from gonogo_service.builds.model import BuildRow
from gonogo_service.devices import workers
from gonogo_service.devices.model import DeviceRow, WorkerRow
from gonogo_service.jobs import work
from gonogo_service.jobs.model import ChunkRangeRow, ChunkRow, JobRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import CLOSED_CHUNK, ChunkState

STARTED = (ChunkState.running, ChunkState.stopping)
"""The states of chunks that a worker has started."""
OPEN = (
    select(
        ChunkRow.job_id,
        ChunkRow.queue,
        ChunkRow.state,
        ChunkRow.number,
        ChunkRow.attempt_id,
        literal(1).label("chunks"),
        literal(1).label("ready"),
        ChunkRow.estimate_s.label("ready_s"),
    )
    .where(ChunkRow.state.not_in(CLOSED_CHUNK))
    .union_all(
        select(
            ChunkRangeRow.job_id,
            ChunkRangeRow.queue,
            literal(ChunkState.waiting.value),
            ChunkRangeRow.first + ChunkRangeRow.chunks_cut,
            cast(null(), ChunkRow.attempt_id.type),
            work.UNMADE,
            work.READY,
            work.READY_S,
        ).where(work.OPEN)
    )
    .subquery("open_chunks")
    .c
)
"""The open chunks: those that are rows, and in ranges those that are still to be made, which wait.

`ready` are those that may be sent: of sequential seeds only what the next decision needs.
"""


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
    """Read the open work of a queue."""
    sums = select(func.sum(OPEN.ready), func.sum(OPEN.ready_s)).where(OPEN.queue == queue)
    chunks, work_s = session.execute(sums).one()
    served = workers.live(session, now=utcnow(), timeout_s=timeout_s)[queue]
    return QueueWork(int(chunks or 0), float(work_s or 0.0), served)


def start_command(queue: str) -> str:
    """Return the command that starts a worker of a queue, on a host with such a device."""
    executor, arch, board = queue.split(".", 2)
    return f"GONOGO_ARCH={arch} GONOGO_BOARD={board} gonogo worker --executor {executor}"


def unserved_words(queue: str) -> str:
    """Return the sentence that no live worker serves a queue, as lists have it."""
    return f"no live worker serves the queue {queue}"


def unserved(session: Session, queue: str, *, timeout_s: float, now: datetime) -> str | None:
    """Return in words that no live worker serves a queue now, and what to do; None if one does."""
    served = workers.live(session, now=now, timeout_s=timeout_s)
    if served[queue]:
        return None
    others = f"those with workers: {', '.join(sorted(served))}" if served else "no worker is live"
    return f"{unserved_words(queue)} now ({others}); start one: {start_command(queue)}"


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
    served = workers.live(session, now=now, timeout_s=timeout_s)
    counts: dict[str, list[int]] = {queue: [0, 0] for queue in served}
    for (queue, state), number in open_chunks(session).items():
        counts.setdefault(queue, [0, 0])[state in STARTED] += number
    return [
        QueueStatus(queue, waiting, runs, served[queue], oldest(session, queue))
        for queue, (waiting, runs) in sorted(counts.items())
    ]


def open_chunks(session: Session) -> dict[tuple[str, ChunkState], int]:
    """Count the open chunks by queue and state."""
    query = select(OPEN.queue, OPEN.state, func.sum(OPEN.chunks))
    counts = session.execute(query.group_by(OPEN.queue, OPEN.state))
    return {(queue, ChunkState(state)): int(count) for queue, state, count in counts}


def oldest(session: Session, queue: str) -> datetime | None:
    """Return the creation time of the oldest job with a waiting chunk in the queue."""
    waits = select(OPEN.job_id).where(OPEN.queue == queue, OPEN.state == ChunkState.waiting)
    # ids are in the order of time
    first = waits.order_by(OPEN.job_id).limit(1).scalar_subquery()
    return session.scalar(select(JobRow.created_at).where(JobRow.id == first))


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
