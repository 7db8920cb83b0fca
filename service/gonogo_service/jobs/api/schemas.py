"""The schemas of jobs, and the answers to a submission."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from gonogo import urls
from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.verdicts import Verdict
from gonogo.urls import API
from gonogo_service.jobs.model import (
    ImportedFile,
    JobCommit,
    JobRow,
    JobTarget,
    SeedDecision,
    SeedProgress,
    SuspectSeeds,
)
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import ChunkCounts, JobKind, JobState


@dataclass(frozen=True)
class JobLinks:
    """Paths of a job's resources."""

    self: str
    results: str
    artifacts: str
    events: str
    diagnosis: str
    page: str


def links(job_id: str) -> JobLinks:
    """Return the addresses of a job's resources."""
    address = f"{API}/jobs/{job_id}"
    parts = {name: f"{address}/{name}" for name in ("results", "artifacts", "events", "diagnosis")}
    return JobLinks(self=address, **parts, page=urls.job(job_id))


@dataclass(frozen=True)
class JobAccepted:
    """The answer to a submission."""

    id: str
    state: JobState
    chunks: int
    links: JobLinks
    waiting_reason: str | None = None
    """Why it can't start now: no live worker serves its queue, so that it waits for one until its
    queue deadline; null otherwise"""


@dataclass(frozen=True)
class Expected:
    """The mean cost of sequential seeds."""

    seeds: float
    device_s: float


@dataclass(frozen=True)
class ExpectedOf:
    """The mean cost for three kinds of tests.

    `stable` and `flaky` fail at the policy's rates; `wrong` is unexplained on every seed.
    """

    stable: Expected
    flaky: Expected
    wrong: Expected | None
    """null if a finding doesn't end the job"""


@dataclass(frozen=True)
class Estimate:
    """The cost and the expected wait of a job."""

    test_key: str
    workload_key: str
    queue: str
    results: int
    """(seed, repeat) pairs; the maximum for sequential seeds"""
    chunks: int
    seed_s: float
    """Expected time of one seed"""
    device_s: float
    """Expected device time of the job; the maximum for sequential seeds"""
    expected: ExpectedOf | None
    """Mean cost of sequential seeds; null for other seeds"""
    queue_chunks: int
    """Unfinished chunks of other jobs"""
    workers: int
    """Live workers of the queue"""
    wait_s: float | None
    """Expected wait; null while no live worker serves the queue"""


@dataclass(frozen=True)
class ReferenceBuild:
    """The build that a job's build is compared with."""

    build: str


@dataclass(frozen=True)
class ListedJob:
    """A job in a list. `GET /jobs/{id}` also has its diagnosis and its suspect seeds."""

    id: str
    kind: JobKind
    state: JobState
    verdict: Verdict | None
    """null until the job ends, and for a canceled job whose seeds all passed"""
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test: dict[str, Any]
    """The test in its canonical form, without fields that have their default"""
    test_key: str
    workload_key: str
    kernel: str
    build: str
    branch: str
    target: JobTarget
    queue: str
    seeds: dict[str, int | str | bool] | list[int]
    """As requested: a list, `start` and `count`, or those of a sequential decision"""
    repeats: int
    import_: ImportedFile | None
    """For the kind `import`; else null"""
    context: str | dict[str, Any]
    priority: int
    labels: dict[str, str]
    commit: JobCommit | None
    resubmit_of: str | None
    reference: ReferenceBuild | None
    sequential: SeedProgress | None
    """For sequential seeds: the request, and how far the decision has read"""
    stop: SeedDecision | None
    """For sequential seeds, once decided"""
    total: int
    done: int
    counts: dict[str, int]
    """The (seed, repeat) pairs with a result, by verdict"""
    outcomes: dict[str, int] | None
    """For a selection: the tests of all iterations by their own outcome (passed, failed, ...)"""
    red: int
    """The seeds, or the tests of a selection over all iterations, that are red"""
    hollow: int
    """The seeds or tests that are hollow passes; the verdict shows only the worse of the two"""
    chunks: ChunkCounts
    diagnosis_words: str | None
    """The diagnosis in a sentence"""
    last_event: int
    created_at: datetime
    deadline_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    artifacts_removed_at: datetime | None
    """When retention removed its artifacts and logs"""
    seeds_removed_at: datetime | None
    """When retention removed its results per seed; the counts stay"""
    links: JobLinks


@dataclass(frozen=True)
class JobOut(ListedJob):
    """A job with its state, its counts, its diagnosis, and what its outputs show."""

    suspects: SuspectSeeds | None
    """null without suspect seeds"""
    diagnosis: JobDiagnosis | None
    """The diagnosis of the most telling seed"""
    flips: list[FlipsSummary] | None
    """For a job with `reference`: each output's flips against the reference build, pooled over
    seeds; else null"""
    arithmetic: list[OutputArithmetic] | None
    """Each output's arithmetic and detection limits; null where no output was judged"""


AnyJob = TypeVar("AnyJob", bound=ListedJob)


def answer_of(shape: type[AnyJob], job: JobRow, **others: Any) -> AnyJob:
    """Return a job as the API answers it."""
    reference = None if job.reference is None else ReferenceBuild(job.reference)
    return from_object(shape, job, links=links(job.id), reference=reference, **others)
