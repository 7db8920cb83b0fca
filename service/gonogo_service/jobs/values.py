"""The values of a job that are objects: its target, its commit, what its seeds decided."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from gonogo.flakiness.sequential import Progress
from gonogo.spec.compared_outputs import CommonFactor
from gonogo.spec.verdicts import Explanation


@dataclass(frozen=True)
class JobTarget:
    """The target that a job runs on."""

    executor: str
    arch: str
    board: str


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
class SeedProgress(Progress):
    """The request for sequential seeds, and how far the decision has read."""

    start: int
    max: int
    stop_on_finding: bool
    needed: int | None = None
    """The minimum number of seeds that the decision still needs"""
    beyond: Annotated[int | None, Field(exclude=True)] = None
    """The last seed that the job can still need; null: all"""
    finder: Annotated[str | None, Field(exclude=True)] = None
    """The attempt whose row decided that the kernel is wrong: it may end its chunk"""


@dataclass(frozen=True)
class SeedDecision:
    """The decision on sequential seeds."""

    decision: str
    """stable, flaky, hollow, wrong or undecided"""
    seed: int | None
    verdict: str | None
    """The verdict of the seed that shows a wrong kernel"""
    failures: int
    evidence: float | None
    bounds: list[float]
    max: int
    policy: str
    words: str
    seeds_seen: int
    seeds_run: int | None
    seeds_saved: int
    device_ms_saved: float | None


@dataclass(frozen=True)
class SuspectsOfJob:
    """The suspect seeds of a job, and the seeds that were added for them."""

    seeds: list[int]
    """The first suspect ones"""
    added: list[int]
    rounds: int
    """How often seeds were added"""
    explanation: Explanation | None
    """The answer of all seeds together; null while the added seeds run"""


@dataclass(frozen=True)
class PooledOutput:
    """The judgment of an output over several seeds together."""

    explanation: Explanation
    seeds: int
    reason: str
    """Why the seeds together are worse than each alone; empty if they aren't"""
    factors: list[CommonFactor]
    """Factors that all values of a source share, with the mean of the seeds' estimates"""
    fault: str | None
    """The fault that explains what rounding doesn't"""


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
