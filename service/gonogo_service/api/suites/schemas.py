"""Bodies and answers of suites and runs."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Discriminator, Field, Tag

from gonogo.spec.suites import MAX_NAME, MAX_TESTS
from gonogo.spec.verdicts import Verdict
from gonogo_service.kit.strict import Strict
from gonogo_service.submission.bodies import (
    MAX_DEADLINE_S,
    MAX_LABELS,
    MAX_REPEATS,
    NAME,
    Commit,
    ContextOf,
    Label,
    Reference,
    Seeds,
    Word,
)
from gonogo_storage.db.states import JobState, RunState

MAX_BUILDS = 100
SuiteName = Annotated[str, Field(pattern=NAME, max_length=MAX_NAME)]
Builds = Annotated[
    list[Annotated[str, Field(pattern=NAME, max_length=200)]], Field(max_length=MAX_BUILDS)
]
Labels = Annotated[dict[Label, Annotated[str, Field(max_length=200)]], Field(max_length=MAX_LABELS)]


class PartOfTarget(Strict):
    """What the jobs run on; what is left out is the defaults', else emulator, wormhole, n150."""

    executor: Word = "emulator"
    arch: Word = "wormhole"
    board: Word = "n150"


class Defaults(Strict):
    """What all entries have in common: a job's fields without build, labels and commit, which the
    run supplies.
    """

    test: dict[str, Any] = Field(
        {}, description="merged below each entry's own test, member by member"
    )
    target: PartOfTarget = PartOfTarget()
    reference: Reference | None = None
    seeds: Seeds | None = None
    repeats: int = Field(1, ge=1, le=MAX_REPEATS)
    context: ContextOf = "isolated"
    priority: int = Field(5, ge=0, le=9)
    queue_deadline_s: float = Field(86400, ge=1, le=MAX_DEADLINE_S)


class Matrix(Strict):
    """Each combination is a test: its shape in the place of the entry's, its numerics merged into
    the entry's.
    """

    shape: list[list[int]] | None = Field(None, min_length=1, max_length=MAX_TESTS)
    numerics: list[dict[str, Any]] | None = Field(None, min_length=1, max_length=MAX_TESTS)


class Entry(Defaults):
    """A test of a suite."""

    name: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, description="default: kernel and shape"
    )
    matrix: Matrix | None = None


class SuiteIn(Strict):
    """A suite: a named list of tests. (The `suite` of a selection is another thing: tests inside a
    gtest program or a pytest tree.)
    """

    name: SuiteName
    description: str = Field("", max_length=2000)
    builds: Builds = Field([], description="builds that a run takes when it names none")
    defaults: Defaults = Defaults()
    entries: list[Entry] = Field(min_length=1, max_length=MAX_TESTS)

    def content(self) -> dict[str, Any]:
        """What is stored: as it was given, without what was left out."""
        return self.model_dump(mode="json", exclude_unset=True)


class TestOfSuite(BaseModel):
    """A test of a suite, matrices expanded."""

    __test__ = False  # pytest: not a test case

    name: str
    test_key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    seeds: int


class SuiteOut(BaseModel):
    """A suite in its newest version."""

    name: str
    version: int
    key: str
    content: dict[str, Any]
    owner: str
    created_at: str
    updated_at: str
    archived_at: str | None


class SuiteWhole(SuiteOut):
    """With its tests."""

    tests: list[TestOfSuite]


class SuitePage(BaseModel):
    """A page of suites, by name."""

    items: list[SuiteOut]
    next: str | None


def _kind_of_suite(value: object) -> str:
    return "stored" if isinstance(value, str) else "inline"


class RunIn(Strict):
    """A run: a suite by name, or the suite itself; and what its jobs are run for."""

    suite: Annotated[
        Annotated[SuiteName, Tag("stored")] | Annotated[SuiteIn, Tag("inline")],
        Discriminator(_kind_of_suite),
    ]
    builds: Builds = Field([], description="every test runs on each of them; none: the suite's own")
    labels: Labels = Field({})
    commit: Commit | None = None


class RunLinks(BaseModel):
    """Where a run is."""

    self: str
    page: str


class RunAccepted(BaseModel):
    """The answer to a submission."""

    id: str
    state: RunState
    jobs: int
    links: RunLinks


class SuiteOfRun(BaseModel):
    """Which suite; version null: it came with the run."""

    name: str
    version: int | None


class JobsOfRun(BaseModel):
    """How many jobs, how many of them have ended, and with which verdicts."""

    total: int
    ended: int
    verdicts: dict[Verdict, int]


class SeedsOfRun(BaseModel):
    """How many (seed, repeat), how many of them have a result, and which verdicts."""

    total: int
    done: int
    verdicts: dict[Verdict, int]


class RunOut(BaseModel):
    """A run; `verdict` is the worst of its jobs', null until it ends, and where a job was cancelled
    and all else passed.
    """

    id: str
    suite: SuiteOfRun
    schedule: str | None
    due_at: str | None
    state: RunState
    verdict: Verdict | None
    version: int
    owner: str
    builds: list[str]
    labels: dict[str, str]
    commit: dict[str, Any] | None
    jobs: JobsOfRun
    seeds: SeedsOfRun
    created_at: str
    finished_at: str | None
    links: RunLinks


class JobOfRun(BaseModel):
    """A job of a run, in short."""

    name: str
    id: str
    state: JobState
    verdict: Verdict | None
    error: str | None
    waiting_reason: str | None
    test_key: str
    kernel: str
    test: dict[str, Any]
    build: str
    queue: str
    done: int
    total: int
    counts: dict[Verdict, int]
    outcomes: dict[str, int] | None
    diagnosis: str | None
    finished_at: str | None
    links: dict[str, str]


class RunWhole(RunOut):
    """With its jobs, in the order of the suite."""

    tests: list[JobOfRun]


class RunPage(BaseModel):
    """A page of runs, newest first."""

    items: list[RunOut]
    next: str | None
