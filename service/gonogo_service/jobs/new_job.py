"""A new job: a checked request, with nothing left to decide."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

USUAL_PRIORITY = 5
BACKGROUND_PRIORITY = 2
"""The priority of gauges and bisections, and the largest one that yields to other owners' jobs."""


@dataclass(frozen=True)
class NewJob:
    """Everything that `create` needs (gonogo_service/jobs/store.py)."""

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
    seeds: Sequence[int]
    """A range where they follow each other: a million seeds then cost nothing."""
    repeats: int = 1
    context: str | Mapping[str, Any] = "isolated"
    priority: int = USUAL_PRIORITY
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
