"""A job as the API shows it, and the answers to a submission."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from gonogo_service.kit.answers import Links
from gonogo_storage.db.states import JobKind, JobState


class JobAccepted(BaseModel):
    """The answer to a submission."""

    id: str
    state: JobState
    chunks: int
    links: Links


class Expected(BaseModel):
    """What sequential seeds would cost in the mean."""

    seeds: float
    device_s: float


class ExpectedOf(BaseModel):
    """By what the test is like: as stable as the policy's stable rate, as flaky as its flaky one,
    unexplained on every seed.
    """

    stable: Expected
    flaky: Expected
    wrong: Expected | None = Field(description="null where a finding doesn't end the job")


class Estimate(BaseModel):
    """What a job would cost, and how long it would wait."""

    test_key: str
    workload_key: str
    queue: str
    results: int = Field(description="(seed, repeat) pairs; of sequential seeds at most")
    chunks: int
    seed_s: float = Field(description="expected time of one seed")
    device_s: float = Field(
        description="expected device time of the job; of sequential seeds at most"
    )
    expected: ExpectedOf | None = Field(
        description="of sequential seeds: what they cost in the mean; else null"
    )
    queue_chunks: int = Field(description="chunks of other jobs that are not done")
    workers: int = Field(description="live workers of the queue")
    wait_s: float | None = Field(
        description="expected wait; null while no live worker serves the queue"
    )


class JobOut(BaseModel):
    """A job with its state and counts."""

    id: str
    kind: JobKind
    state: JobState
    verdict: str | None
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test: dict[str, Any]
    test_key: str
    workload_key: str
    kernel: str
    build: str
    branch: str
    target: dict[str, str]
    queue: str
    seeds: dict[str, int | str | bool] | list[int]
    repeats: int
    import_: dict[str, Any] | None = Field(
        alias="import",
        description="of kind `import`: format, tool, tests, numbers (false: red and green only), bytes, sha256, started_at",
    )
    context: Any
    priority: int
    labels: dict[str, str]
    commit: dict[str, Any] | None
    resubmit_of: str | None
    reference: dict[str, str] | None
    sequential: dict[str, int | bool | None] | None = Field(
        description="of sequential seeds: how far the decision has read, and how many more it needs at the least"
    )
    stop: dict[str, Any] | None = Field(
        description="of sequential seeds, once decided: decision (stable, flaky, hollow, wrong, undecided), words, seeds_seen, "
        "seeds_saved, device_ms_saved, ..."
    )
    suspects: dict[str, Any] | None = Field(
        description="of suspect seeds: which, what was added, and what all seeds say together"
    )
    total: int
    done: int
    counts: dict[str, int]
    outcomes: dict[str, int] | None = Field(
        description="of a selection: the tests of all iterations by what they say of themselves"
    )
    chunks: dict[str, int]
    diagnosis: dict[str, Any] | None
    last_event: int
    created_at: str
    deadline_at: str
    started_at: str | None
    finished_at: str | None
    links: Links


class JobPage(BaseModel):
    """A page of jobs, newest first."""

    items: list[JobOut]
    next: str | None
