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


class FlipsOut(BaseModel):
    """Outputs that differ between a build and its reference build, pooled over seeds."""

    output: str
    seeds: int
    elements: int = Field(description="Elements that are finite in both builds")
    differing: int = Field(description="Elements that differ")
    rows: int = Field(description="Rows; each value of mean, rstd, dgamma and dbeta is one")
    stepped_up: int = Field(description="Rows that moved as a whole by a step of rstd, outward")
    stepped_down: int = Field(description="Such rows that moved inward")
    pivot: str = Field(description="The value that the factor leaves in place: zero or beta")
    away: int = Field(description="Elements farther from the pivot than the reference build's")
    toward: int = Field(description="Elements nearer to the pivot")
    rows_away: int = Field(description="Rows most of whose moves point away from the pivot")
    rows_toward: int
    probability: float = Field(description="Sign test over rows, two-sided")
    factor: float | None = Field(description="d, if this build's values are 1 + d times")
    factor_low: float | None
    factor_high: float | None
    factor_limit: float | None = Field(description="The least factor that would have been seen")
    common_factor: bool = Field(description="Whether the two builds differ by that factor")
    rounded_otherwise: bool = Field(
        description="Whether all elements moved half a step one way, as by truncation"
    )
    words: str


class ProgramCount(BaseModel):
    """The number of seeds with an arithmetic model."""

    arithmetic: str | None = Field(description="null: no program reproduces the output")
    seeds: int


class MissedRowsOut(BaseModel):
    """The rows of an output that the nearest program which stores values does not reproduce."""

    arithmetic: str
    missed: int
    rows: int = Field(description="All rows of these seeds")
    seeds: int


class ArithmeticOut(BaseModel):
    """The arithmetic model of an output, over the seeds of a job."""

    output: str
    arithmetic: str | None = Field(
        description=(
            'The model of most seeds, such as "fp32-inside" or "bf16: mean, rstd stored", or the '
            'budget that rules them, such as "tt-train"; null if no program reproduces the output'
        )
    )
    nearest_arithmetic: str | None = Field(
        description="The program nearest to the seeds that none reproduces; null if all are"
    )
    programs: list[ProgramCount] = Field(description="All models, the most frequent first")
    seeds: int = Field(description="The seeds that were read: the first 4,000 rows of the job")
    detection_limits: list[str] = Field(
        description="The faults that none of the seeds could have seen"
    )
    reproduced_by: str | None = Field(
        description="The program that reproduces the seeds which no named one reproduces"
    )
    also_explained_by: list[str] = Field(
        description="Other models that explain every seed; sought where x is small"
    )
    missed_rows: MissedRowsOut | None = Field(
        description="null where no such program reproduces most of the rows"
    )
    words: str


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
    flips: list[FlipsOut] | None = Field(
        description=(
            "For a job with `reference`, if read by its id: each output's flips against the "
            "reference build, pooled over seeds; else null"
        )
    )
    arithmetic: list[ArithmeticOut] | None = Field(
        description=(
            "If read by its id: each output's arithmetic model and detection limits, where it "
            "was replayed or a budget explains it; else null"
        )
    )
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
