"""A variant from build to build, or from day to day: what masking and change points are computed
from. Bounded, indexed reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from sqlalchemy import Select, Text, bindparam, case, cast, null, select
from sqlalchemy.orm import Session

from gonogo.flakiness.masking import Coefficients, Record, Seed
from gonogo.flakiness.rates import Outcome, outcome_of
from gonogo.spec.verdicts import Explanation
from gonogo_storage.db.encoding import decode
from gonogo_storage.history.samples import outcomes_of
from gonogo_storage.rollups.variants import JobFacts, Variant, jobs_of
from gonogo_storage.tables import JobRow, SeedResultRow

MOST_BUILDS = 64
MOST_POINTS_JOBS = 1000
"""Newest jobs whose numbers make the points of a series."""
SEEDS_PER_BUILD = 64
"""Seeds of a build that are compared with another's, and the most that a point of a series
holds."""
_NONE: Mapping[str, Mapping[str, float | None]] = MappingProxyType({})
_DIRECTION = '_z"'
"""In the text of statistics that have one of a direction."""
K = TypeVar("K")
METRICS = ("rms", "budget_ratio", "tolerance_ratio", "max_abs", "chi")
_EXPLAIN = ("budget_ratio", "chi", "row_z", "xhat_z", "scale_z")


@dataclass(frozen=True)
class Point:
    """A build, or a day (UTC), of a variant."""

    name: str
    at: float
    """The build's sequence, or the day's ordinal: what orders the points, for `at` of
    gonogo.flakiness.changes."""
    numbers: Mapping[str, tuple[float, ...]]
    """By output: the metric of each seed looked at, once where it gives the same bits again,
    without those that are no finite number."""
    failures: int
    runs: int
    """Counted over whole jobs; hangs, crashes and errors are in neither."""
    jobs: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types, numbers as their mean and count."""
        numbers = {
            name: {"mean": sum(each) / len(each), "seeds": len(each)}
            for name, each in self.numbers.items()
            if each
        }
        return {
            "name": self.name,
            "at": self.at,
            "numbers": numbers,
            "failures": self.failures,
            "runs": self.runs,
            "jobs": list(self.jobs),
        }


def points(
    session: Session,
    variant: Variant,
    *,
    by: Literal["build", "day"] = "build",
    metric: str = "rms",
    most: int = MOST_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
    siblings: Sequence[Variant] = (),
) -> tuple[Point, ...]:
    """The newest `most` builds (by sequence, then name), or days on which jobs finished, in order,
    with at most `seeds` numbers each.

    metric: one of METRICS. `numbers` go to changes.number_changes, `failures` and `runs` to
    changes.rate_changes. siblings: variants whose errors have the same history; their numbers, jobs
    and newest `most` places join, their failures and runs don't. Raises ValueError for another
    metric.
    """
    if metric not in METRICS:
        raise ValueError(f"no series of {metric!r}; there are {', '.join(METRICS)}")
    groups: dict[tuple[float, str], list[JobFacts]] = {}
    for each in (variant, *siblings):
        own: dict[tuple[float, str], list[JobFacts]] = {}
        for job in jobs_of(session, each, limit=MOST_POINTS_JOBS):
            own.setdefault(_place(job, by), []).append(job)
        for place in sorted(own)[-most:]:
            groups.setdefault(place, []).extend(own[place])
    budget = {job.id: number for jobs in groups.values() for job, number in _shared(jobs, seeds)}
    values = _numbers(session, budget, metric)
    found = []
    for (at, name), jobs in sorted(groups.items()):
        outcomes = [outcomes_of(job) for job in jobs if job.variant == variant]
        failed = sum(each[Outcome.failed] for each in outcomes)
        numbers: dict[str, list[_Number]] = {}
        for job in jobs:
            for output, told in values.get(job.id, {}).items():
                numbers.setdefault(output, []).extend(
                    [one._replace(seed=None) for one in told] if job.selection else told
                )
        once = {output: tuple(_once(told)) for output, told in sorted(numbers.items())}
        runs = failed + sum(each[Outcome.passed] for each in outcomes)
        found.append(Point(name, at, once, failed, runs, tuple(job.id for job in jobs)))
    return tuple(found)


def records(
    session: Session,
    jobs: Iterable[JobFacts],
    *,
    most: int = MOST_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
) -> tuple[Record, ...]:
    """The newest `most` builds among these jobs as gonogo.flakiness.masking takes them, in order of
    their sequence.

    Of each build the newest jobs' seeds (repeat 0) up to `seeds`, with the statistics of those that
    are unexplained, and the terms of its newest diagnosis that could tell any.
    """
    return records_of(session, {"": jobs}, most=most, seeds=seeds)[""]


def records_of(
    session: Session,
    groups: Mapping[K, Iterable[JobFacts]],
    *,
    most: int = MOST_BUILDS,
    seeds: int = SEEDS_PER_BUILD,
) -> dict[K, tuple[Record, ...]]:
    """The `records` of several tests, read together. No job may be in two groups."""
    chosen = {key: _newest(jobs, most, seeds) for key, jobs in groups.items()}
    read = [pair for builds in chosen.values() for _, pairs in builds for pair in pairs]
    found = _seeds(session, {job.id: number for job, number in read})
    terms = _terms(session, [job.id for job, _ in read])
    made: dict[K, tuple[Record, ...]] = {}
    for key, builds in chosen.items():
        own = []
        for name, pairs in builds:
            ids = [job.id for job, _ in pairs]
            merged: dict[int, Seed] = {}
            for job_id in reversed(
                ids
            ):  # of a seed that was run in several jobs the newest result counts
                merged |= found.get(job_id, {})
            own.append(
                Record(
                    name, merged, next((terms[job_id] for job_id in ids if terms.get(job_id)), {})
                )
            )
        made[key] = tuple(own)
    return made


def coefficients(diagnosis: Mapping[str, Any] | None) -> dict[str, Coefficients]:
    """The terms of a stored diagnosis that the data could tell, named "output term"."""
    found = {}
    for term in (diagnosis or {}).get("terms", ()):
        if term.get("can_tell", True) and term.get("coefficients"):
            found[f"{term['output']} {term['name']}"] = Coefficients(
                tuple(term["coefficients"]), tuple(term.get("errors") or (None,) * len(term["coefficients"])),
                bool(term.get("wrong")), str(term.get("words") or ""),
            )  # fmt: skip
    return found


def _newest(
    jobs: Iterable[JobFacts], most: int, seeds: int
) -> list[tuple[str, list[tuple[JobFacts, int]]]]:
    """The newest builds in order, each with its jobs and how many (seed, repeat) of each to look
    at.
    """
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
    """How many (seed, repeat) of each job to look at, the newest job first, until there are
    enough.
    """
    found = []
    left = seeds
    for job in jobs:
        if left <= 0:
            break
        found.append((job, min(left, job.done)))
        left -= job.done
    return found


class _Number(NamedTuple):
    seed: int | None
    digest: str | None
    value: float


def _once(numbers: Sequence[_Number]) -> list[float]:
    """The values, those of a seed that gave the same bits each time once: run again every night
    they are no new samples.
    """
    bits: dict[int | None, set[str | None]] = {}
    for each in numbers:
        bits.setdefault(each.seed, set()).add(each.digest)
    steady = {
        seed
        for seed, digests in bits.items()
        if seed is not None and len(digests) == 1 and None not in digests
    }
    seen: set[int | None] = set()
    found = []
    for each in numbers:
        if each.seed not in seen:
            found.append(each.value)
        if each.seed in steady:
            seen.add(each.seed)
    return found


def _numbers(
    session: Session, budget: Mapping[str, int], metric: str
) -> dict[str, dict[str, list[_Number]]]:
    """Job -> output -> the finite values of its first arrivals; one statement per number of
    seeds.
    """
    table = SeedResultRow
    found: dict[str, dict[str, list[_Number]]] = {}
    for number, ids in _by_number(budget).items():
        query = select(table.job_id, table.output, table.seed, table.digest, getattr(table, metric))
        query = query.where(table.job_id.in_(ids), table.arrival <= number)
        query = query.where(getattr(table, metric).is_not(None)).order_by(
            table.job_id, table.arrival
        )
        for job_id, output, seed, digest, value in session.execute(query):
            found.setdefault(job_id, {}).setdefault(output, []).append(
                _Number(seed, digest, float(value))
            )
    return found


def _by_number(budget: Mapping[str, int]) -> dict[int, list[str]]:
    groups: dict[int, list[str]] = {}
    for job_id, number in budget.items():
        groups.setdefault(number, []).append(job_id)
    return groups


def _seeds(session: Session, budget: Mapping[str, int]) -> dict[str, dict[int, Seed]]:
    """Job -> seed -> what it says; a comparison reads thousands, so each row is looked at once, and
    as little as may be.
    """
    found: dict[str, dict[int, Seed]] = {}
    for number, ids in _by_number(budget).items():
        rows = session.execute(_seeds_query(), {"job_ids": ids, "most": number}).all()
        for job_id, seed, output, verdict, explained, digest, *numbers, more in rows:
            green, explanation = _said(verdict, explained)
            digests = {} if digest is None else {output: digest}
            statistics: Mapping[str, Mapping[str, float | None]] = _NONE
            if output and explanation is Explanation.unexplained:
                own = dict(zip(_EXPLAIN, numbers, strict=True))
                if more and _DIRECTION in more:
                    others = decode(more).items()
                    own |= {
                        name: value
                        for name, value in others
                        if name.endswith("_z") and isinstance(value, int | float)
                    }
                statistics = {output: own}
            of_job = found.setdefault(job_id, {})
            before = of_job.get(seed)
            if before is not None:  # another of its outputs
                digests, statistics = (
                    {**before.digests, **digests},
                    {**before.statistics, **statistics},
                )
            of_job[seed] = Seed(green, explanation, digests, statistics)
    return found


@cache  # to put the statement together takes as long as to run it
def _seeds_query() -> Select[Any]:
    table = SeedResultRow.__table__.c
    columns = [
        table[name]
        for name in (
            "job_id",
            "seed",
            "output",
            "seed_verdict",
            "seed_explanation",
            "digest",
            *_EXPLAIN,
        )
    ]
    # explained statistics are noise, which masking does not look at: to parse them would take the
    # longest. So come the others as text.
    told = cast(
        case((table.seed_explanation == Explanation.unexplained, table.statistics), else_=null()),
        Text,
    )
    asked = table.job_id.in_(bindparam("job_ids", expanding=True))
    return select(*columns, told).where(
        asked, table.arrival <= bindparam("most"), table.repeat == 0
    )


@cache
def _said(verdict: str, explanation: str | None) -> tuple[bool | None, Explanation]:
    """Green or red, and how it is explained."""
    green = {Outcome.passed: True, Outcome.failed: False}.get(outcome_of(verdict))
    return green, Explanation(explanation or Explanation.not_judged)


def _terms(session: Session, job_ids: Sequence[str]) -> dict[str, dict[str, Coefficients]]:
    if not job_ids:
        return {}
    query = select(JobRow.id, JobRow.diagnosis).where(
        JobRow.id.in_(job_ids), JobRow.diagnosis.is_not(None)
    )
    return {job_id: coefficients(found) for job_id, found in session.execute(query)}
