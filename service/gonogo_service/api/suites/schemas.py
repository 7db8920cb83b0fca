"""The schemas of suites and runs."""

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
    """The jobs' target; omitted fields come from the defaults, else emulator, wormhole, n150."""

    executor: Word = "emulator"
    arch: Word = "wormhole"
    board: Word = "n150"


class Defaults(Strict):
    """The common fields of all entries.

    They are a job's fields without build, labels and commit, which the run supplies.
    """

    test: dict[str, Any] = Field(
        {}, description="Merged with each entry's test, whose fields take precedence"
    )
    target: PartOfTarget = PartOfTarget()
    reference: Reference | None = None
    seeds: Seeds | None = None
    repeats: int = Field(1, ge=1, le=MAX_REPEATS)
    context: ContextOf = "isolated"
    priority: int = Field(5, ge=0, le=9)
    queue_deadline_s: float = Field(86400, ge=1, le=MAX_DEADLINE_S)


class Matrix(Strict):
    """Combinations of shapes and numerics; each combination is a test.

    Its shape replaces the entry's shape. Its numerics are merged into the entry's.
    """

    shape: list[list[int]] | None = Field(None, min_length=1, max_length=MAX_TESTS)
    numerics: list[dict[str, Any]] | None = Field(None, min_length=1, max_length=MAX_TESTS)


class Entry(Defaults):
    """A test of a suite."""

    name: str | None = Field(
        None, min_length=1, max_length=MAX_NAME, description="Default: kernel and shape"
    )
    matrix: Matrix | None = None


class SuiteIn(Strict):
    """A suite: a named list of tests.

    The `suite` of a selection is different: tests in a gtest program or a pytest tree.
    """

    name: SuiteName
    description: str = Field("", max_length=2000)
    builds: Builds = Field([], description="Builds of a run that names none")
    defaults: Defaults = Defaults()
    entries: list[Entry] = Field(min_length=1, max_length=MAX_TESTS)

    def content(self) -> dict[str, Any]:
        """Return the stored content: the given fields, without defaults."""
        return self.model_dump(mode="json", exclude_unset=True)


class TestOfSuite(BaseModel):
    """A test of a suite, with expanded matrices."""

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


class SuiteDetails(SuiteOut):
    """A suite with its tests."""

    tests: list[TestOfSuite]


class SuitePage(BaseModel):
    """A page of suites, by name."""

    items: list[SuiteOut]
    next: str | None


def _kind_of_suite(value: object) -> str:
    return "<stored>" if isinstance(value, str) else "<SuiteIn>"


class RunIn(Strict):
    """A run of a stored suite (by name) or of a given suite, with its builds and commit."""

    suite: Annotated[
        Annotated[SuiteName, Tag("<stored>")] | Annotated[SuiteIn, Tag("<SuiteIn>")],
        Discriminator(_kind_of_suite),
    ]
    builds: Builds = Field(
        [], description="Every test runs on each of them; empty: the suite's builds"
    )
    labels: Labels = Field({})
    commit: Commit | None = None


class RunLinks(BaseModel):
    """Addresses of a run."""

    self: str
    page: str


class RunAccepted(BaseModel):
    """The answer to a submission."""

    id: str
    state: RunState
    jobs: int
    links: RunLinks


class SuiteOfRun(BaseModel):
    """The suite; version null means that it came with the run."""

    name: str
    version: int | None


class JobsOfRun(BaseModel):
    """Counts of a run's jobs: all, ended, and by verdict."""

    total: int
    ended: int
    verdicts: dict[Verdict, int]


class SeedsOfRun(BaseModel):
    """Counts of a run's (seed, repeat) pairs: all, with a result, and by verdict."""

    total: int
    done: int
    verdicts: dict[Verdict, int]


class RunOut(BaseModel):
    """A run; `verdict` is the worst verdict of its jobs.

    It is null until the run ends, and when a job was canceled and all others passed.
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
    """The summary of a run's job."""

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


class RunDetails(RunOut):
    """A run with its jobs, in the order of the suite."""

    tests: list[JobOfRun]


class RunPage(BaseModel):
    """A page of runs, newest first."""

    items: list[RunOut]
    next: str | None
