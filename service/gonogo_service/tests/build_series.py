"""A variant from build to build: the input of masking.

Bounded, indexed reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from sqlalchemy.orm import Session

from gonogo.flakiness.masking import Fault, Record, Seed
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.spec.verdicts import Explanation
from gonogo_service.kit.database.each import among
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import ResultRow
from gonogo_service.tests.variants import JobFacts, judged_alike

MAX_BUILDS = 64
SEEDS_PER_BUILD = 64
"""Seeds of a build that are compared with another's, and the maximum for a point."""
K = TypeVar("K")
_READ = ("digest", "fault", "faults", "places")


def records(
    session: Session,
    jobs: Iterable[JobFacts],
    *,
    most: int = MAX_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
) -> tuple[Record, ...]:
    """Return records of the newest `most` builds among these jobs, in order of their sequence.

    They are the input of gonogo.flakiness.masking. Builds that another judge judged are left out.
    Each build has the seeds (repeat 0) of its newest jobs, up to `seeds`, with the faults and
    places of the unexplained ones.
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
    chosen = {key: _newest(judged_alike(jobs), most, seeds) for key, jobs in groups.items()}
    read = [pair for builds in chosen.values() for _, pairs in builds for pair in pairs]
    seeds_by_job = _seeds(session, {job.id: number for job, number in read})
    records_by_group: dict[K, tuple[Record, ...]] = {}
    for key, builds in chosen.items():
        group_records = []
        for name, pairs in builds:
            merged: dict[int, Seed] = {}
            # reversed: for a seed that ran in several jobs, the newest result counts
            for job, _ in reversed(pairs):
                merged |= seeds_by_job.get(job.id, {})
            group_records.append(Record(name, merged))
        records_by_group[key] = tuple(group_records)
    return records_by_group


def _newest(
    jobs: Iterable[JobFacts], most: int, seeds: int
) -> list[tuple[str, list[tuple[JobFacts, int]]]]:
    """Return the newest builds in order, with their jobs and each job's (seed, repeat) to read."""
    groups: dict[tuple[float, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault(place(job, "build"), []).append(job)
    return [(place[1], shares(groups[place], seeds)) for place in sorted(groups)[-most:]]


def place(job: JobFacts, by: str) -> tuple[float, str]:
    """Return the place of a job's build, or of its day, and its name."""
    if by == "build":
        return float(job.sequence), job.build
    day = (job.finished_at or job.created_at).date()
    return float(day.toordinal()), day.isoformat()


def shares(jobs: Sequence[JobFacts], seeds: int) -> list[tuple[JobFacts, int]]:
    """Divide `seeds` (seed, repeat) among the jobs, the newest job first."""
    shares = []
    seeds_left = seeds
    for job in jobs:
        if seeds_left <= 0:
            break
        shares.append((job, min(seeds_left, job.done)))
        seeds_left -= job.done
    return shares


def by_number(seeds_per_job: Mapping[str, int]) -> dict[int, list[str]]:
    """Return the jobs by the number of seeds to read of each."""
    groups: dict[int, list[str]] = {}
    for job_id, number in seeds_per_job.items():
        groups.setdefault(number, []).append(job_id)
    return groups


def _seeds(session: Session, seeds_per_job: Mapping[str, int]) -> dict[str, dict[int, Seed]]:
    """Return job -> seed -> the seed's record.

    A comparison reads thousands, so as little as possible is read of each.
    """
    seeds_by_job: dict[str, dict[int, Seed]] = {}
    table = ResultRow
    for number, ids in by_number(seeds_per_job).items():
        first = among(session, table.job_id, ids), table.arrival <= number, table.repeat == 0
        # masking looks at the faults of unexplained seeds only
        unexplained = table.seed_explanation == Explanation.unexplained.value
        for seed in stored.read(session, *first, statistics=_READ, notes_of=unexplained):
            green, explanation = _judgment(seed.verdict, seed.explanation)
            outputs = seed.outputs.items()
            digests = {name: row["digest"] for name, row in outputs if row["digest"] is not None}
            faults = {name: fault for name, row in outputs if (fault := _fault(row)) is not None}
            places = {name: row["places"] for name, row in outputs if row.get("places")}
            of_job = seeds_by_job.setdefault(seed.job, {})
            of_job[seed.seed] = Seed(green, explanation, digests, faults, places)
    return seeds_by_job


def _fault(output: Mapping[str, Any]) -> Fault | None:
    """Return the best fault of an output whose entry names one."""
    if output.get("fault") is None or not output.get("faults"):
        return None
    best = output["faults"][0]
    return Fault(best["id"], best["size"], best["label"])


@cache
def _judgment(verdict: str, explanation: str | None) -> tuple[bool | None, Explanation]:
    """Return whether a verdict is green, and its explanation."""
    green = {Outcome.passed: True, Outcome.failed: False}.get(outcome_of(verdict))
    return green, Explanation(explanation or Explanation.not_judged)
