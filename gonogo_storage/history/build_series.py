"""A variant from build to build, or from day to day: the input of masking and change points.

Bounded, indexed reads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.masking import Coefficients, Record, Seed
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.spec.verdicts import Explanation
from gonogo_storage.db.each import among
from gonogo_storage.history.samples import outcomes_of
from gonogo_storage.rollups.variants import JobFacts, Variant, jobs_of
from gonogo_storage.seed_rows import slots, stored
from gonogo_storage.seed_rows.unpacking import DIRECTIONS
from gonogo_storage.tables import JobRow, SeedResultRow

MAX_BUILDS = 64
MAX_POINTS_JOBS = 1000
"""Newest jobs whose numbers make the points of a series."""
SEEDS_PER_BUILD = 64
"""Seeds of a build that are compared with another's, and the maximum for a point."""
K = TypeVar("K")
OF_COMPARATORS = {"pcc": "pcc_deficit", "frobenius": "rel_frobenius", "ulp": "ulp_max"}
"""The statistic that each comparator besides allclose reads."""
METRICS = (
    "rms",
    "budget_ratio",
    "tolerance_ratio",
    "max_abs",
    "chi",
    *OF_COMPARATORS.values(),
)
_EXPLAIN = ("budget_ratio", "chi", "row_z", "xhat_z", "scale_z")
_EXPLAINED = frozenset({"digest"})
_UNEXPLAINED = _EXPLAINED | {*_EXPLAIN, DIRECTIONS}


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


def points(
    session: Session,
    variant: Variant,
    *,
    by: Literal["build", "day"] = "build",
    metric: str = "rms",
    siblings: Sequence[Variant] = (),
) -> tuple[Point, ...]:
    """Return the newest MAX_BUILDS builds or days in order, at most SEEDS_PER_BUILD numbers each.

    Builds are ordered by sequence, then name. Days are those on which jobs finished.

    metric: one of METRICS. `numbers` are for changes.number_changes, `failures` and `runs` for
    changes.rate_changes. siblings: variants whose errors have the same history. Their numbers, jobs
    and newest places join; their failures and runs don't. Raises ValueError for another
    metric.
    """
    if metric not in METRICS:
        raise ValueError(f"no series of {metric!r}; allowed: {', '.join(METRICS)}")
    groups: dict[tuple[float, str], list[JobFacts]] = {}
    for member in (variant, *siblings):
        member_groups: dict[tuple[float, str], list[JobFacts]] = {}
        for job in jobs_of(session, member, limit=MAX_POINTS_JOBS):
            member_groups.setdefault(_place(job, by), []).append(job)
        for place in sorted(member_groups)[-MAX_BUILDS:]:
            groups.setdefault(place, []).extend(member_groups[place])
    seeds_per_job = {
        job.id: number for jobs in groups.values() for job, number in _shared(jobs, SEEDS_PER_BUILD)
    }
    values, odd = _numbers(session, seeds_per_job, metric)
    series = []
    for (at, name), jobs in sorted(groups.items()):
        judged = [job for job in jobs if job.variant == variant]
        outcomes = [outcomes_of(job) for job in judged]
        counts: Counter[str] = Counter()
        for job in judged:
            counts.update(job.counts)
        failed = sum(counts[Outcome.failed] for counts in outcomes)
        numbers: dict[str, list[_Number]] = {}
        nonfinite: Counter[str] = Counter()
        for job in jobs:
            nonfinite.update(odd.get(job.id, {}))
            for output, job_values in values.get(job.id, {}).items():
                numbers.setdefault(output, []).extend(
                    [number._replace(seed=None) for number in job_values]
                    if job.selection
                    else job_values
                )
        once = {
            output: tuple(_once(output_values)) for output, output_values in sorted(numbers.items())
        }
        runs = failed + sum(counts[Outcome.passed] for counts in outcomes)
        ids = tuple(job.id for job in jobs)
        series.append(Point(name, at, once, failed, runs, ids, dict(counts), dict(nonfinite)))
    return tuple(series)


def records(
    session: Session,
    jobs: Iterable[JobFacts],
    *,
    most: int = MAX_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
) -> tuple[Record, ...]:
    """Return records of the newest `most` builds among these jobs, in order of their sequence.

    They are the input of gonogo.flakiness.masking. Each build has the seeds (repeat 0) of its
    newest jobs, up to `seeds`, with the statistics of the unexplained ones. It also has the terms
    of its newest diagnosis that could tell any.
    """
    return records_of(session, {"": jobs}, most=most, seeds=seeds)[""]


def records_of(
    session: Session,
    groups: Mapping[K, Iterable[JobFacts]],
    *,
    most: int = MAX_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
) -> dict[K, tuple[Record, ...]]:
    """Return the `records` of several tests, read together. No job may be in two groups."""
    chosen = {key: _newest(jobs, most, seeds) for key, jobs in groups.items()}
    read = [pair for builds in chosen.values() for _, pairs in builds for pair in pairs]
    seeds_by_job = _seeds(session, {job.id: number for job, number in read})
    terms = _terms(session, [job.id for job, _ in read])
    records_by_group: dict[K, tuple[Record, ...]] = {}
    for key, builds in chosen.items():
        group_records = []
        for name, pairs in builds:
            ids = [job.id for job, _ in pairs]
            merged: dict[int, Seed] = {}
            # reversed: for a seed that ran in several jobs, the newest result counts
            for job_id in reversed(ids):
                merged |= seeds_by_job.get(job_id, {})
            group_records.append(
                Record(
                    name, merged, next((terms[job_id] for job_id in ids if terms.get(job_id)), {})
                )
            )
        records_by_group[key] = tuple(group_records)
    return records_by_group


def coefficients(diagnosis: Mapping[str, Any] | None) -> dict[str, Coefficients]:
    """Return the terms that a stored diagnosis could tell, named "output term"."""
    terms = {}
    for term in (diagnosis or {}).get("terms", ()):
        if term.get("can_tell", True) and term.get("coefficients"):
            terms[f"{term['output']} {term['name']}"] = Coefficients(
                tuple(term["coefficients"]),
                tuple(term.get("errors") or (None,) * len(term["coefficients"])),
                bool(term.get("wrong")),
                str(term.get("words") or ""),
            )
    return terms


def _newest(
    jobs: Iterable[JobFacts], most: int, seeds: int
) -> list[tuple[str, list[tuple[JobFacts, int]]]]:
    """Return the newest builds in order, with their jobs and each job's (seed, repeat) to read."""
    groups: dict[tuple[float, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault(_place(job, "build"), []).append(job)
    return [(place[1], _shared(groups[place], seeds)) for place in sorted(groups)[-most:]]


def _place(job: JobFacts, by: str) -> tuple[float, str]:
    if by == "build":
        return float(job.sequence), job.build
    day = (job.finished_at or job.created_at).date()
    return float(day.toordinal()), day.isoformat()


def _shared(jobs: Sequence[JobFacts], seeds: int) -> list[tuple[JobFacts, int]]:
    """Divide `seeds` (seed, repeat) among the jobs, the newest job first."""
    shares = []
    seeds_left = seeds
    for job in jobs:
        if seeds_left <= 0:
            break
        shares.append((job, min(seeds_left, job.done)))
        seeds_left -= job.done
    return shares


class _Number(NamedTuple):
    seed: int | None
    digest: str | None
    value: float


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


def _numbers(
    session: Session, seeds_per_job: Mapping[str, int], metric: str
) -> tuple[dict[str, dict[str, list[_Number]]], dict[str, Counter[str]]]:
    """Return job -> output -> the values of its first arrivals, and how many are not finite.

    The statistics of an output that holds NaN or Inf describe its finite elements only, so they
    are no values of it. One statement per number of seeds.
    """
    table = SeedResultRow
    values: dict[str, dict[str, list[_Number]]] = {}
    nonfinite: dict[str, Counter[str]] = {}
    known = slots.with_numbers(session, seeds_per_job)
    with_numbers = {job: number for job, number in seeds_per_job.items() if job in known}
    for number, ids in _by_number(with_numbers).items():
        query = stored.query(table.job_id.in_(ids), table.arrival <= number)
        by_arrival = query.order_by(table.job_id, table.arrival)
        for seed in stored.read(session, by_arrival, metric, "digest", "nonfinite"):
            for output, judged in seed.outputs.items():
                if judged.get("nonfinite"):
                    nonfinite.setdefault(seed.job, Counter())[output] += 1
                elif judged.get(metric) is not None:
                    entry = _Number(seed.seed, judged["digest"], float(judged[metric]))
                    values.setdefault(seed.job, {}).setdefault(output, []).append(entry)
    return values, nonfinite


def _by_number(seeds_per_job: Mapping[str, int]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = {}
    for job_id, number in seeds_per_job.items():
        groups.setdefault(number, []).append(job_id)
    return groups


def _seeds(session: Session, seeds_per_job: Mapping[str, int]) -> dict[str, dict[int, Seed]]:
    """Return job -> seed -> the seed's record.

    A comparison reads thousands, so as little as possible is read of each.
    """
    seeds_by_job: dict[str, dict[int, Seed]] = {}
    table = SeedResultRow.__table__.c
    for number, ids in _by_number(seeds_per_job).items():
        first = among(session, table.job_id, ids), table.arrival <= number, table.repeat == 0
        for seed in stored.read_judged(session, first, _of_record):
            green, explanation = _judgment(seed.verdict, seed.explanation)
            outputs = seed.outputs.items()
            digests = {name: row["digest"] for name, row in outputs if row["digest"] is not None}
            is_unexplained = explanation is Explanation.unexplained
            statistics = {name: _explaining(row) for name, row in outputs} if is_unexplained else {}
            of_job = seeds_by_job.setdefault(seed.job, {})
            of_job[seed.seed] = Seed(green, explanation, digests, statistics)
    return seeds_by_job


def _of_record(explanation: str | None) -> frozenset[str]:
    """Return the statistics of a record; masking ignores explained ones, which are noise."""
    return _UNEXPLAINED if explanation == Explanation.unexplained else _EXPLAINED


def _explaining(output: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the statistics that explain an output, those of all directions included."""
    directions = {
        name: value
        for name, value in output.items()
        if name.endswith("_z") and isinstance(value, int | float)
    }
    return {name: output[name] for name in _EXPLAIN} | directions


@cache
def _judgment(verdict: str, explanation: str | None) -> tuple[bool | None, Explanation]:
    """Return whether a verdict is green, and its explanation."""
    green = {Outcome.passed: True, Outcome.failed: False}.get(outcome_of(verdict))
    return green, Explanation(explanation or Explanation.not_judged)


def _terms(session: Session, job_ids: Sequence[str]) -> dict[str, dict[str, Coefficients]]:
    if not job_ids:
        return {}
    query = select(JobRow.id, JobRow.diagnosis).where(
        among(session, JobRow.id, job_ids), JobRow.diagnosis.is_not(None)
    )
    return {job_id: coefficients(diagnosis) for job_id, diagnosis in session.execute(query)}
