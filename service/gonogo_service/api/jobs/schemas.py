"""The schemas of jobs, and the answers to a submission."""

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
    """The mean cost of sequential seeds."""

    seeds: float
    device_s: float


class ExpectedOf(BaseModel):
    """The mean cost for three kinds of tests.

    `stable` and `flaky` fail at the policy's rates; `wrong` is unexplained on every seed.
    """

    stable: Expected
    flaky: Expected
    wrong: Expected | None = Field(description="null if a finding doesn't end the job")


class Estimate(BaseModel):
    """The cost and the expected wait of a job."""

    test_key: str
    workload_key: str
    queue: str
    results: int = Field(description="(seed, repeat) pairs; the maximum for sequential seeds")
    chunks: int
    seed_s: float = Field(description="Expected time of one seed")
    device_s: float = Field(
        description="Expected device time of the job; the maximum for sequential seeds"
    )
    expected: ExpectedOf | None = Field(
        description="Mean cost of sequential seeds; null for other seeds"
    )
    queue_chunks: int = Field(description="Unfinished chunks of other jobs")
    workers: int = Field(description="Live workers of the queue")
    wait_s: float | None = Field(
        description="Expected wait; null while no live worker serves the queue"
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
        description=(
            "For the kind `import`: format, tool, tests, numbers (false: pass and fail only), "
            "bytes, sha256, started_at"
        ),
    )
    context: Any
    priority: int
    labels: dict[str, str]
    commit: dict[str, Any] | None
    resubmit_of: str | None
    reference: dict[str, str] | None
    sequential: dict[str, int | bool | None] | None = Field(
        description=(
            "For sequential seeds: the seeds that the decision has read, and the minimum that it "
            "still needs"
        )
    )
    stop: dict[str, Any] | None = Field(
        description=(
            "For sequential seeds, once decided: decision (stable, flaky, hollow, wrong, "
            "undecided), words, seeds_seen, seeds_saved, device_ms_saved, ..."
        )
    )
    suspects: dict[str, Any] | None = Field(
        description="Suspect seeds, the added seeds, and the result of all seeds together"
    )
    total: int
    done: int
    counts: dict[str, int]
    outcomes: dict[str, int] | None = Field(
        description="For a selection: the tests of all iterations by their own outcome"
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
