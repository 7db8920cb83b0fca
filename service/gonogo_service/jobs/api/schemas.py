"""The schemas of jobs, and the answers to a submission."""

from __future__ import annotations

from dataclasses import dataclass

from gonogo import urls
from gonogo.judging.flip_summary import FlipsSummary
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.urls import API
from gonogo_service.jobs.job import Job, JobSummary
from gonogo_service.kit.database.states import JobState


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
class ListedJob(JobSummary):
    """A job in a list. `GET /jobs/{id}` also has its diagnosis and its suspect seeds."""

    links: JobLinks


@dataclass(frozen=True)
class JobOut(Job):
    """A job with its state, its counts, its diagnosis, and what its outputs show."""

    flips: list[FlipsSummary] | None
    """For a job with `reference`: each output's flips against the reference build, pooled over
    seeds; else null"""
    arithmetic: list[OutputArithmetic] | None
    """Each output's arithmetic and detection limits; null where no output was judged"""
    links: JobLinks
