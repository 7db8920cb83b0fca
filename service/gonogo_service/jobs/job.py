"""A job as it is stored, and a new one as it is submitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from gonogo.spec.diagnoses import JobDiagnosis
from gonogo.spec.verdicts import Verdict
from gonogo_service.flags.evidence_kinds import PooledOutput, SuspectsOfJob
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.sequential import SeedDecision, SeedProgress
from gonogo_service.kit.database.records import from_json, from_object, if_readable
from gonogo_service.kit.database.states import ChunkCounts, JobKind, JobState

USUAL_PRIORITY = 5
BACKGROUND_PRIORITY = 2
"""The priority of gauges and bisections, and the largest one that yields to other owners' jobs."""


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


@dataclass(frozen=True)
class JobTarget:
    """The target that a job runs on."""

    executor: str
    arch: str
    board: str


@dataclass(frozen=True)
class ReferenceBuild:
    """The build that a job's build is compared with."""

    build: str


@dataclass(frozen=True)
class JobCommit:
    """The commit that a job or a run is for."""

    repository: str
    sha: str
    pull_request: int | None = None


@dataclass(frozen=True)
class ImportedFile:
    """The report that an imported job was read from."""

    format: str
    tool: str | None
    """The program that wrote it"""
    tests: int
    numbers: bool
    """Whether it has numbers to judge; else the tests only pass or fail"""
    bytes: int
    sha256: str
    started_at: str | None
    """As the report writes it"""


@dataclass(frozen=True, kw_only=True)
class SuspectSeeds(SuspectsOfJob):
    """A job's suspect seeds, the seeds that they added, and the result of all seeds together."""

    count: int
    """The number of all suspect seeds"""
    pooled: dict[str, PooledOutput] | None
    """By output; null where one seed decides, and while the added seeds run"""
    words: str
    policy: str
    more: int | None = None
    """How many more seeds would decide: 0 where more don't help; null where it is decided"""


@dataclass(frozen=True)
class JobSummary:
    """A job in a list: its request, its state and its counts."""

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


@dataclass(frozen=True)
class Job(JobSummary):
    """A job with its diagnosis."""

    suspects: SuspectSeeds | None
    """null without suspect seeds"""
    diagnosis: JobDiagnosis | None
    """The diagnosis of the most telling seed"""

    @property
    def added_seeds(self) -> Sequence[int]:
        """Return the seeds that suspect ones added, in their order."""
        return () if self.suspects is None else self.suspects.added


def removed_words(job: JobSummary) -> tuple[str, ...]:
    """Return what retention removed of a job, and what stays, in sentences."""
    sentences = []
    if job.artifacts_removed_at is not None:
        sentences.append(
            f"Its artifacts and logs were removed on {job.artifacts_removed_at:%Y-%m-%d}, as the "
            "server's retention says."
        )
    if job.seeds_removed_at is not None:
        sentences.append(
            f"Its results per seed were removed on {job.seeds_removed_at:%Y-%m-%d}, as the "
            "server's retention says; its verdict, its counts and its statistics stay."
        )
    return tuple(sentences)


AnyJob = TypeVar("AnyJob", bound=JobSummary)


def job_of(
    shape: type[AnyJob], row: JobRow, canonical: dict[str, Any], words: str | None
) -> AnyJob:
    """Return a stored job; `canonical` is its test, and `words` are those of its diagnosis."""
    request = row.request
    return from_object(
        shape,
        row,
        kind=JobKind(row.kind),
        state=JobState(row.state),
        verdict=None if row.verdict is None else Verdict(row.verdict),
        test=canonical,
        target=from_object(JobTarget, row),
        seeds=request["seeds"],
        repeats=request.get("repeats", 1),
        import_=request.get("import") and from_json(ImportedFile, request["import"]),
        reference=None if row.reference is None else ReferenceBuild(row.reference),
        sequential=row.sequential and from_json(SeedProgress, row.sequential),
        stop=row.stop and from_json(SeedDecision, row.stop),
        chunks=ChunkCounts(row.chunk_count, row.open_chunks),
        commit=row.commit and from_json(JobCommit, row.commit),
        diagnosis_words=words,
        **(
            {
                "suspects": row.suspects and from_json(SuspectSeeds, row.suspects),
                "diagnosis": if_readable(JobDiagnosis, row.diagnosis),
            }
            if issubclass(shape, Job)
            else {}
        ),
    )
