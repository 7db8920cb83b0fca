"""A variant from build to build, or from day to day: the input of change points.

Bounded, indexed reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from sqlalchemy.orm import Session

from gonogo.flakiness.rates import Outcome
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import ResultRow
from gonogo_service.results.tallies import with_numbers
from gonogo_service.tests.build_series import MAX_BUILDS, SEEDS_PER_BUILD, by_number, place, shares
from gonogo_service.tests.samples import outcomes_of
from gonogo_service.tests.variants import JobFacts, Variant, jobs_of, judged_alike, probes

MAX_JOBS = 1000
"""Newest jobs whose numbers make the points of a series."""
OF_COMPARATORS = {"pcc": "pcc_deficit", "frobenius": "rel_frobenius", "ulp": "ulp_max"}
"""The statistic that each comparator besides allclose reads."""
METRICS = (
    "rms",
    "rounding_ratio",
    "tolerance_ratio",
    "max_abs",
    *OF_COMPARATORS.values(),
)


@dataclass(frozen=True)
class Point:
    """A build, or a day (UTC), of a variant."""

    name: str
    at: float
    """The build's sequence, or the day's ordinal.

    It orders the points, as `at` of gonogo.flakiness.changes.
    """
    numbers: Mapping[str, tuple[float, ...]]
    """By output: the metric of each seed that was read, without non-finite numbers.

    A seed that gives the same bits again counts once.
    """
    failures: int
    runs: int
    """Counted over whole jobs, like `failures`; hangs, crashes and errors are in neither."""
    jobs: tuple[str, ...]
    counts: Mapping[str, int]
    """Seeds by verdict, counted over whole jobs."""
    nonfinite: Mapping[str, int]
    """By output: the seeds that were read and hold NaN or Inf, which are not in `numbers`."""


class PointsReader:
    """Reads the points of series; what several of them share is read once.

    The tests of a workload share their numbers, and each has a series of builds and one of days.
    """

    def __init__(self, session: Session, metric: str = METRICS[0]) -> None:
        """Read one of METRICS. Raises ValueError for another metric."""
        if metric not in METRICS:
            raise ValueError(f"no series of {metric!r}; allowed: {', '.join(METRICS)}")
        self.session, self.metric = session, metric
        self._jobs: dict[Variant, tuple[JobFacts, ...]] = {}
        self._numbers: dict[tuple[str, int], _Numbers] = {}

    def points(
        self,
        variant: Variant,
        *,
        by: Literal["build", "day"] = "build",
        siblings: Sequence[Variant] = (),
    ) -> tuple[Point, ...]:
        """Return the newest MAX_BUILDS builds or days in order, with up to SEEDS_PER_BUILD numbers.

        Builds are ordered by sequence, then name. Days are those on which jobs finished; the runs
        of a bisection are left out, because it runs old builds again. `numbers` are for
        changes.number_changes, `failures` and `runs` for changes.rate_changes.

        siblings: variants whose errors have the same history. Their numbers, jobs and newest places
        join; their failures and runs don't.
        """
        groups: dict[tuple[float, str], list[JobFacts]] = {}
        for member in (variant, *siblings):
            member_groups: dict[tuple[float, str], list[JobFacts]] = {}
            jobs = self._jobs_of(member)
            left_out = probes(self.session, jobs) if by == "day" else set()
            for job in jobs:
                if job.id in left_out:
                    continue
                member_groups.setdefault(place(job, by), []).append(job)
            for newest in sorted(member_groups)[-MAX_BUILDS:]:
                groups.setdefault(newest, []).extend(member_groups[newest])
        seeds_per_job = {
            job.id: number
            for jobs in groups.values()
            for job, number in shares(jobs, SEEDS_PER_BUILD)
        }
        numbers = self._numbers_of(seeds_per_job)
        return tuple(
            _point(name, at, variant, jobs, numbers) for (at, name), jobs in sorted(groups.items())
        )

    def _jobs_of(self, variant: Variant) -> tuple[JobFacts, ...]:
        if variant not in self._jobs:
            self._jobs[variant] = judged_alike(jobs_of(self.session, variant, limit=MAX_JOBS))
        return self._jobs[variant]

    def _numbers_of(self, seeds_per_job: Mapping[str, int]) -> dict[str, _Numbers]:
        """Return the numbers of each job's first arrivals, by job.

        One statement for each number of seeds.
        """
        unread = {
            job: number
            for job, number in seeds_per_job.items()
            if (job, number) not in self._numbers
        }
        self._numbers |= {pair: _Numbers() for pair in unread.items()}
        numbered = with_numbers(self.session, unread) if unread else set()
        table = ResultRow
        for number, ids in by_number({job: unread[job] for job in numbered}).items():
            first = table.job_id.in_(ids), table.arrival <= number
            names = self.metric, "digest", "nonfinite"
            for seed in stored.read(self.session, *first, statistics=names, by="arrival"):
                self._numbers[seed.job, number].add(seed, self.metric)
        return {pair[0]: self._numbers[pair] for pair in seeds_per_job.items()}


def _point(
    name: str,
    at: float,
    variant: Variant,
    jobs: Sequence[JobFacts],
    numbers_by_job: Mapping[str, _Numbers],
) -> Point:
    """Return the point of these jobs; those of other variants give it numbers only."""
    judged = [job for job in jobs if job.variant == variant]
    outcomes = [outcomes_of(job) for job in judged]
    counts: Counter[str] = Counter()
    for job in judged:
        counts.update(job.counts)
    failed = sum(counts[Outcome.failed] for counts in outcomes)
    runs = failed + sum(counts[Outcome.passed] for counts in outcomes)
    values: dict[str, list[_Number]] = {}
    nonfinite: Counter[str] = Counter()
    for job in jobs:
        numbers = numbers_by_job.get(job.id)
        if numbers is None:
            continue
        nonfinite.update(numbers.nonfinite)
        for output, of_job in numbers.values.items():
            values.setdefault(output, []).extend(
                [number._replace(seed=None) for number in of_job] if job.selection else of_job
            )
    once = {output: tuple(_once(of_output)) for output, of_output in sorted(values.items())}
    ids = tuple(job.id for job in jobs)
    return Point(name, at, once, failed, runs, ids, dict(counts), dict(nonfinite))


class _Number(NamedTuple):
    seed: int | None
    digest: str | None
    value: float


@dataclass
class _Numbers:
    """The numbers of a job's seeds by output, and how many are not finite.

    The statistics of an output that holds NaN or Inf describe its finite elements only, so they
    are no values of it.
    """

    values: dict[str, list[_Number]] = field(default_factory=dict)
    nonfinite: Counter[str] = field(default_factory=Counter)

    def add(self, seed: stored.StoredSeed, metric: str) -> None:
        """Add a seed."""
        for output, judged in seed.outputs.items():
            if judged.get("nonfinite"):
                self.nonfinite[output] += 1
            elif judged.get(metric) is not None:
                number = _Number(seed.seed, judged["digest"], float(judged[metric]))
                self.values.setdefault(output, []).append(number)


def _once(numbers: Sequence[_Number]) -> list[float]:
    """Return the values; those of a seed that gave the same bits each time count once.

    Run again every night, they are no new samples.
    """
    bits: dict[int | None, set[str | None]] = {}
    for number in numbers:
        bits.setdefault(number.seed, set()).add(number.digest)
    steady = {
        seed
        for seed, digests in bits.items()
        if seed is not None and len(digests) == 1 and None not in digests
    }
    seen: set[int | None] = set()
    values = []
    for number in numbers:
        if number.seed not in seen:
            values.append(number.value)
        if number.seed in steady:
            seen.add(number.seed)
    return values
