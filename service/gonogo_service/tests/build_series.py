"""A variant from build to build: the input of masking. Bounded, indexed reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Literal, TypeVar

from sqlalchemy import Integer, Select, case, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.masking import Fault, Record, Seed
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.spec.verdicts import Explanation
from gonogo_service.kit.database.columns import IdType
from gonogo_service.kit.database.each import Columns, Given, among, of_each
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import ResultRow
from gonogo_service.results.seeds import SEED
from gonogo_service.tests.variants import JobFacts, judged_alike

MAX_BUILDS = 64
SEEDS_PER_BUILD = 64
"""Seeds of a build that are compared with another's, and the maximum for a point."""
K = TypeVar("K")
Over = Literal["builds", "days"]
_NUMBER: Columns = (("job", IdType), ("number", Integer()))
_AT_ONCE = 500


def records(
    session: Session,
    jobs: Iterable[JobFacts],
    *,
    most: int = MAX_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
) -> tuple[Record, ...]:
    """Return records of the newest `most` builds among these jobs, in order of their sequence.

    They are the input of gonogo.flakiness.masking. Builds that another judge judged are left out.
    Each build has the first seeds (repeat 0) of its newest jobs, up to `seeds`, with the faults and
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
    chosen: dict[K, list[tuple[str, list[tuple[JobFacts, int]]]]] = {}
    for key, jobs in groups.items():
        builds = by_place(judged_alike(jobs), "builds")
        newest = sorted(builds)[-most:]
        chosen[key] = [(place[1], shares(builds[place], seeds)) for place in newest]
    read = [pair for builds in chosen.values() for _, pairs in builds for pair in pairs]
    by_job = _seeds(session, {job.id: number for job, number in read})

    def record(build: str, pairs: Sequence[tuple[JobFacts, int]]) -> Record:
        merged: dict[int, Seed] = {}
        # reversed: for a seed that ran in several jobs, the newest result counts
        for job, _ in reversed(pairs):
            merged |= by_job.get(job.id, {})
        return Record(build, merged)

    return {
        key: tuple(record(build, pairs) for build, pairs in builds)
        for key, builds in chosen.items()
    }


def by_place(jobs: Iterable[JobFacts], over: Over) -> dict[tuple[float, str], list[JobFacts]]:
    """Return the jobs by their build or day; a place sorts in the order of the axis."""
    groups: dict[tuple[float, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault(place_of(job, over), []).append(job)
    return groups


def place_of(job: JobFacts, over: str) -> tuple[float, str]:
    """Return the place of a job's build, or of its day (UTC), and its name."""
    if over == "builds":
        return float(job.sequence), job.build
    day = (job.finished_at or job.created_at).date()
    return float(day.toordinal()), day.isoformat()


def shares(jobs: Sequence[JobFacts], seeds: int) -> list[tuple[JobFacts, int]]:
    """Divide `seeds` (seed, repeat) among the jobs, the newest job first."""
    shared = []
    for job in jobs:
        if seeds <= 0:
            break
        shared.append((job, min(seeds, job.done)))
        seeds -= job.done
    return shared


def _seeds(session: Session, seeds_per_job: Mapping[str, int]) -> dict[str, dict[int, Seed]]:
    """Return job -> seed -> the seed's record, for the smallest numbers of each job.

    So two builds have the same seeds, whatever order theirs arrived in. A comparison reads
    thousands, so as little as possible is read of each.
    """
    jobs_by_last: dict[int, list[str]] = {}
    for pairs in batched(list(seeds_per_job.items()), _AT_ONCE):
        for place, last in of_each(session, _last_seed, _NUMBER, pairs):
            jobs_by_last.setdefault(last, []).append(pairs[place][0])
    seeds: dict[str, dict[int, Seed]] = {}
    table = ResultRow
    # masking looks at the faults of unexplained seeds only
    unexplained = table.seed_explanation == Explanation.unexplained.value
    judged = table.seed_verdict, table.seed_explanation
    of_output = table.output, table.digest, case((unexplained, table.notes)).label("notes")
    query = select(table.job_id, table.seed, *judged, *of_output).where(table.repeat == 0)
    query = query.order_by(table.job_id, table.seed, table.repeat, table.place)
    for last, ids in jobs_by_last.items():
        rows = query.where(among(session, table.job_id, ids), table.seed <= last)
        for job, number, verdict, explanation, output, digest, notes in session.execute(rows):
            of_job = seeds.setdefault(job, {})
            if number not in of_job:
                digests, faults, places = dict[str, str](), dict[str, Fault](), dict[str, str]()
                of_job[number] = Seed(*_judgment(verdict, explanation), digests, faults, places)
            if digest is not None:
                digests[output] = digest
            if notes and (fault := _fault(notes)):
                faults[output] = fault
            if notes and notes.get("places"):
                places[output] = notes["places"]
    return seeds


def _last_seed(given: Given) -> Select[int]:
    """Return the query of the largest among the first `number` seeds of a job."""
    table = ResultRow
    of_job = select(table.seed).where(table.job_id == given("job"), SEED, table.repeat == 0)
    first = of_job.order_by(table.seed).limit(given("number")).subquery()
    return select(func.max(first.c.seed)).having(func.count() > 0)


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
