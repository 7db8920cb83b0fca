"""The schemas of jobs, and the answers to a submission."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from gonogo import urls
from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.urls import API
from gonogo_service.jobs.model import JobRow
from gonogo_service.jobs.values import ImportedFile, JobTarget
from gonogo_service.kit import rows
from gonogo_service.kit.database.states import ChunkCounts, JobState


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


_COMPUTED: dict[str, Any] = {
    "test": (dict[str, Any], "The test in its canonical form, without fields that have a default"),
    "target": JobTarget,
    "seeds": (
        dict[str, int | str | bool] | list[int],
        "As requested: a list, `start` and `count`, or those of a sequential decision",
    ),
    "repeats": int,
    "import": (ImportedFile | None, "For the kind `import`; else null"),
    "reference": ReferenceBuild | None,
    "chunks": ChunkCounts,
    "diagnosis_words": (str | None, "The diagnosis in a sentence"),
    "links": JobLinks,
}
LISTED: Any = rows.extended_answer(
    JobRow, "ListedJob", without=("suspects", "diagnosis", "diagnosis_words"), **_COMPUTED
)
SHOWN = rows.extended_answer(
    JobRow,
    "JobOut",
    without=("diagnosis_words",),
    **_COMPUTED,
    flips=(
        list[FlipsSummary] | None,
        "For a job with `reference`: each output's flips against the reference build, pooled over"
        " seeds; else null",
    ),
    arithmetic=(
        list[OutputArithmetic] | None,
        "Each output's arithmetic and detection limits; null where no output was judged",
    ),
)


def answer_of(shape: type[BaseModel], job: JobRow, **more: Any) -> dict[str, Any]:
    """Return a job as the API answers it, as LISTED or SHOWN."""
    reference = None if job.reference is None else ReferenceBuild(job.reference)
    computed = {"import": job.import_, "reference": reference, "links": links(job.id)}
    return rows.values(shape, job, **computed, **more)
