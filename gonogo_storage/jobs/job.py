"""A job as it is stored, and a new one as it is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import JobKind, JobState
from gonogo_storage.jobs import sequential
from gonogo_storage.tables import JobRow


@dataclass(frozen=True)
class NewJob:
    """A checked request: everything that `create` needs, nothing left to decide."""

    test_key: str
    workload_key: str
    kernel: str
    canonical: Mapping[str, Any]
    elements: int
    build: str
    branch: str
    build_sequence: int
    executor: str
    arch: str
    board: str
    seeds: tuple[int, ...]
    repeats: int = 1
    context: str | Mapping[str, Any] = "isolated"
    priority: int = 5
    queue_deadline_s: float = 86400.0
    labels: Mapping[str, str] = field(default_factory=dict)
    commit: Mapping[str, Any] | None = None
    owner: str = "local"
    request: Mapping[str, Any] = field(default_factory=dict)
    """The body as it was posted, for display and for resubmission."""
    chunk_seconds: float = 20.0
    resubmit_of: str | None = None
    reference: str | None = None
    """The build that this one is compared with."""
    stop_on_finding: bool | None = None
    """True if one unexplained seed decides; None: the seeds aren't sequential.

    Sequential seeds follow each other without a gap, and the job ends when they decide.
    """

    @property
    def queue(self) -> str:
        """Return the queue that serves the target."""
        return f"{self.executor}.{self.arch}.{self.board}"


@dataclass(frozen=True)
class Job:
    """A job as stored."""

    id: str
    kind: JobKind
    state: JobState
    verdict: str | None
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test_key: str
    workload_key: str
    kernel: str
    canonical: dict[str, Any]
    build: str
    branch: str
    executor: str
    arch: str
    board: str
    queue: str
    context: Any
    priority: int
    request: dict[str, Any]
    labels: dict[str, Any]
    commit: dict[str, Any] | None
    resubmit_of: str | None
    reference: str | None
    sequential: dict[str, Any] | None
    """For sequential seeds: the request, and how far the decision has read.

    `stop` is the decision (gonogo_storage/jobs/sequential.py).
    """
    stop: dict[str, Any] | None
    suspects: dict[str, Any] | None
    """For suspect seeds: which they are, the seeds added, and what all say together.

    See gonogo_storage/flags/suspects.py.
    """
    total: int
    done: int
    chunks: int
    open_chunks: int
    counts: dict[str, int]
    outcomes: dict[str, int] | None
    """For a selection: the tests of all iterations by outcome (passed, failed, skipped, ...)."""
    last_event: int
    diagnosis: dict[str, Any] | None
    created_at: datetime
    deadline_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    def to_json(self) -> dict[str, Any]:
        """Return the job as the API shows it (links are the API's)."""
        return {
            "id": self.id,
            "kind": self.kind.value,
            "state": self.state.value,
            "verdict": self.verdict,
            "error": self.error,
            "waiting_reason": self.waiting_reason,
            "version": self.version,
            "owner": self.owner,
            "test": self.canonical,
            "test_key": self.test_key,
            "workload_key": self.workload_key,
            "kernel": self.kernel,
            "build": self.build,
            "branch": self.branch,
            "target": {"executor": self.executor, "arch": self.arch, "board": self.board},
            "queue": self.queue,
            "seeds": self.request.get("seeds"),
            "repeats": self.request.get("repeats", 1),
            "import": self.request.get("import"),
            "context": self.context,
            "priority": self.priority,
            "labels": self.labels,
            "commit": self.commit,
            "resubmit_of": self.resubmit_of,
            "reference": None if self.reference is None else {"build": self.reference},
            "sequential": self.sequential,
            "stop": self.stop,
            "suspects": self.suspects,
            "total": self.total,
            "done": self.done,
            "counts": self.counts,
            "outcomes": self.outcomes,
            "chunks": {"total": self.chunks, "open": self.open_chunks},
            "diagnosis": self.diagnosis,
            "last_event": self.last_event,
            "created_at": timestamp(self.created_at),
            "deadline_at": timestamp(self.deadline_at),
            "started_at": timestamp(self.started_at),
            "finished_at": timestamp(self.finished_at),
        }


_CONVERTED = {"kind", "state", "canonical", "chunks", "sequential", "stop"}


def _job(row: JobRow, canonical: dict[str, Any]) -> Job:
    copied = {
        name: getattr(row, name) for name in Job.__dataclass_fields__ if name not in _CONVERTED
    }
    progress, decision = sequential.progress_json(row), sequential.decision_json(row)
    converted: dict[str, Any] = {
        "kind": JobKind(row.kind),
        "state": JobState(row.state),
        "canonical": canonical,
        "chunks": row.chunk_count,
    }
    return Job(sequential=progress, stop=decision, **converted, **copied)
