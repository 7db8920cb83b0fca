"""The body of a job as the API takes it, and a job as the API shows it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Discriminator, Field, Tag

from service.api.answers import Links, Strict
from storage.states import JobKind, JobState

MAX_SEED = 2**53 - 1
MAX_REPEATS = 1000
MAX_LABELS = 32
MAX_BEFORE = 16
MAX_DEADLINE_S = 30 * 86400
NAME = r"^[A-Za-z0-9][A-Za-z0-9._+/@-]*$"
WORD = r"^[a-z0-9][a-z0-9_-]*$"

Seed = Annotated[int, Field(ge=0, le=MAX_SEED)]
Label = Annotated[str, Field(pattern=NAME, max_length=64)]
Word = Annotated[str, Field(pattern=WORD, max_length=64)]


class SeedRange(Strict):
    """Consecutive seeds."""

    start: Seed = 0
    count: int = Field(ge=1)


class SequentialSeeds(Strict):
    """Consecutive seeds until they decide: Wald's test of a stable failure rate against a flaky one, and a wrong kernel at once."""

    policy: Literal["sequential"]
    max: int = Field(ge=1, description="the largest number of seeds; without a decision until there the job ends undecided")
    start: Seed = 0
    stop_on_finding: bool = Field(
        True, description="one seed whose error rounding doesn't explain ends the job; false: only the failure rate does"
    )


class Target(Strict):
    """What the job runs on."""

    executor: Word = "emulator"
    arch: Word = "wormhole"
    board: Word = "n150"


class Prepared(Strict):
    """A context: tests that run first in the same child process."""

    name: str = Field(pattern=NAME, max_length=64)
    before: list[dict[str, Any]] = Field(min_length=1, max_length=MAX_BEFORE)


class Commit(Strict):
    """The commit that the job is run for."""

    repository: str = Field(pattern=r"^[A-Za-z0-9._/-]+$", max_length=200)
    sha: str = Field(pattern=r"^[0-9a-fA-F]{7,64}$")
    pull_request: int | None = Field(None, ge=1, le=2**31 - 1)


class Reference(Strict):
    """Another build of the same executor, to compare with."""

    build: str = Field(pattern=NAME, max_length=200)


def _kind_of_seeds(value: object) -> str:
    if isinstance(value, list):
        return "list"
    named = isinstance(value, SequentialSeeds) or (isinstance(value, dict) and "policy" in value)
    return "sequential" if named else "range"


def _kind_of_context(value: object) -> str | None:
    if isinstance(value, dict | Prepared):
        return "prepared"
    return "isolated" if value == "isolated" else None


Seeds = Annotated[
    Annotated[SeedRange, Tag("range")]
    | Annotated[SequentialSeeds, Tag("sequential")]
    | Annotated[list[Seed], Tag("list"), Field(min_length=1)],
    Discriminator(_kind_of_seeds),
]
ContextOf = Annotated[
    Annotated[Literal["isolated"], Tag("isolated")] | Annotated[Prepared, Tag("prepared")],
    Discriminator(
        _kind_of_context,
        custom_error_type="context",
        custom_error_message="unknown context",
        custom_error_context={"expected": "'isolated', or an object with name and before (the tests that run first)"},
    ),
]


class JobIn(Strict):
    """A job: a test, a build, a target and seeds. The test's own fields are checked by the domain (`gonogo.tests`, `gonogo.selections`)."""

    test: dict[str, Any] = Field(
        description="kernel, shape, numerics, epsilon, inputs, tolerance, memory, program; for gtest and pytest instead "
        '{"selection": {"suite", "filter", "shuffle", "stages"}}'
    )
    build: str = Field(pattern=NAME, max_length=200)
    target: Target = Target()
    reference: Reference | None = Field(
        None, description="a build to compare with, beside the float64 reference of the test's kernel; null: that alone"
    )
    seeds: Seeds
    repeats: int = Field(1, ge=1, le=MAX_REPEATS)
    context: ContextOf = "isolated"
    priority: int = Field(5, ge=0, le=9, description="9 goes first")
    queue_deadline_s: float = Field(86400, ge=1, le=MAX_DEADLINE_S, description="a job that no worker has started by then fails")
    labels: dict[Label, Annotated[str, Field(max_length=200)]] = Field({}, max_length=MAX_LABELS)
    commit: Commit | None = None


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
    """By what the test is like: as stable as the policy's stable rate, as flaky as its flaky one, unexplained on every seed."""

    stable: Expected
    flaky: Expected
    wrong: Expected | None = Field(description="null where a finding doesn't end the job")


class Estimate(BaseModel):
    """What a job would cost, and how long it would wait."""

    test_key: str
    subject_key: str
    queue: str
    results: int = Field(description="(seed, repeat) pairs; of sequential seeds at most")
    chunks: int
    seed_s: float = Field(description="expected time of one seed")
    device_s: float = Field(description="expected device time of the job; of sequential seeds at most")
    expected: ExpectedOf | None = Field(description="of sequential seeds: what they cost in the mean; else null")
    queue_chunks: int = Field(description="chunks of other jobs that are not done")
    workers: int = Field(description="live workers of the queue")
    wait_s: float | None = Field(description="expected wait; null while no live worker serves the queue")


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
    subject_key: str
    kernel: str
    build: str
    build_line: str
    target: dict[str, str]
    queue: str
    seeds: dict[str, int | str | bool] | list[int]
    repeats: int
    import_: dict[str, Any] | None = Field(
        alias="import", description="of kind `import`: format, tool, tests, numbers (false: red and green only), bytes, sha256, started_at"
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
    suspects: dict[str, Any] | None = Field(description="of suspect seeds: which, what was added, and what all seeds say together")
    total: int
    done: int
    counts: dict[str, int]
    outcomes: dict[str, int] | None = Field(description="of a selection: the tests of all iterations by what they say of themselves")
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
