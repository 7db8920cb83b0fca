"""A test from build to build, or from day to day.

A trend has points, the change points of its numbers and its failure rate, and what the builds
changed. The assessment of a variant keeps the trends of the default metric, with a stamp of the
jobs that they were made from. `read` returns them while the stamp matches the present jobs;
otherwise it computes the trend by the same function.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.changes import number_changes, rate_changes
from gonogo.flakiness.history import Changes
from gonogo.flakiness.masking import BuildChange, Record, compare_builds, series
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Rate
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.records import from_json
from gonogo_service.results.model import WHOLE, ResultRow
from gonogo_service.tests import build_series, test_specs
from gonogo_service.tests.build_series import MAX_BUILDS, SEEDS_PER_BUILD, Over, by_place, shares
from gonogo_service.tests.model import AssessmentRow
from gonogo_service.tests.samples import failures_of
from gonogo_service.tests.variants import (
    ENDED,
    PLACE,
    JobFacts,
    Variant,
    jobs_of,
    judged_alike,
)

MAX_JOBS = 1000
"""Newest jobs of a variant whose numbers make the points."""
OF_COMPARATORS = {"pcc": "pcc_deficit", "frobenius": "rel_frobenius", "ulp": "ulp_max"}
"""The statistic that each comparator besides allclose reads."""
OF_TOLERANCE = "tolerance_ratio"
"""The one statistic that depends on the tolerance.

Its history is the test's; that of the others is the workload's.
"""
METRICS = ("rms", "rounding_ratio", OF_TOLERANCE, "max_abs", *OF_COMPARATORS.values())
DEFAULT_METRIC = METRICS[0]
MAX_TESTS = 8
"""Maximum number of a workload's tests whose numbers make one history.

A tolerance is advised a few times in a test's life.
"""
OVERS: tuple[Over, ...] = ("builds", "days")


@dataclass(frozen=True)
class Spread:
    """The seeds of a point."""

    seeds: int
    low: float
    mean: float
    high: float


@dataclass(frozen=True)
class TrendPoint:
    """A build, or a day."""

    name: str
    failures: Rate
    jobs: int
    numbers: dict[str, Spread]
    """By output"""
    counts: dict[str, int] = field(default_factory=dict)
    """Seeds of the test by verdict"""
    nonfinite: dict[str, int] = field(default_factory=dict)
    """By output: seeds with NaN or Inf, which are not in `numbers`"""


@dataclass(frozen=True)
class Trend:
    """Points in order, and the changes between them."""

    over: Over
    metric: str
    points: list[TrendPoint]
    numbers: dict[str, Changes]
    """By output: change points of the logarithm of `metric`"""
    rates: Changes
    """Change points of the failure rate"""
    steps: list[BuildChange]
    """Each build compared with the nearest earlier judged one; empty over days"""


class _Number(NamedTuple):
    """The metric of an output of a seed; None where it holds NaN or Inf."""

    seed: int | None
    digest: str | None
    value: float | None


Numbers = dict[tuple[str, int], dict[str, list[_Number]]]
"""(Job, number of seeds read) -> output -> the numbers in order of arrival."""


def read(
    session: Session, variant: Variant, *, over: Over = "builds", metric: str = DEFAULT_METRIC
) -> Trend:
    """Return the trend of a variant: the stored one where nothing has run since, else computed.

    `metric` is one of METRICS.
    """
    siblings = _siblings(session, variant)
    stored = _stored(session, variant, siblings, over)
    if stored is not None and metric == DEFAULT_METRIC:
        return stored
    steps = None if stored is None else stored.steps
    return _computed(session, variant, siblings, over, metric, {}, steps)


def to_store(session: Session, variant: Variant) -> dict[str, Any]:
    """Return a variant's trends with the stamp of their jobs, as its assessment keeps them."""
    siblings, numbers = _siblings(session, variant), Numbers()
    stamp = _stamp(session, variant, siblings)
    return {"stamp": stamp} | {
        over: asdict(_computed(session, variant, siblings, over, DEFAULT_METRIC, numbers))
        for over in OVERS
    }


def _stored(
    session: Session, variant: Variant, siblings: Sequence[Variant], over: Over
) -> Trend | None:
    query = select(AssessmentRow.content["trends"]).where(*variant.at(AssessmentRow))
    stored = session.scalar(query) or {}
    with suppress(ValueError, KeyError):  # another version stored it
        if stored and stored["stamp"] == _stamp(session, variant, siblings):
            return from_json(Trend, stored[over])
    return None


def _stamp(session: Session, variant: Variant, siblings: Sequence[Variant]) -> str:
    """Return what changes when one of the variants' jobs ends, or changes after that."""
    table, keys = JobRow, [variant.test_key, *(other.test_key for other in siblings)]
    times = func.min(table.created_at), func.max(table.created_at), func.max(table.finished_at)
    place = (getattr(table, name) == getattr(variant, name) for name in PLACE)
    query = select(func.count(), func.sum(table.done), func.sum(table.version), *times)
    facts = session.execute(query.where(table.test_key.in_(keys), *place, ENDED)).one()
    return " ".join(map(str, (POLICY.version, *facts)))


def _siblings(session: Session, variant: Variant) -> list[Variant]:
    """Return the same variant of the workload's other tests, which differ in tolerance only."""
    keys = test_specs.siblings(session, variant.test_key)[-MAX_TESTS:]
    return [Variant(key, **variant.place) for key in keys]


def _computed(
    session: Session,
    variant: Variant,
    siblings: Sequence[Variant],
    over: Over,
    metric: str,
    known: Numbers,
    steps: list[BuildChange] | None = None,
) -> Trend:
    """Compute a trend from the stored seeds; `known` are numbers that were read before.

    Rates are the test's. Numbers are its workload's on the same branch and board, so that a test
    that takes another tolerance keeps its past. The exception is tolerance_ratio.
    """
    groups: dict[tuple[float, str], list[JobFacts]] = {}
    for member in (variant, *(() if metric == OF_TOLERANCE else siblings)):
        jobs = judged_alike(jobs_of(session, member, limit=MAX_JOBS))
        of_member = by_place(jobs, over)
        for place in sorted(of_member)[-MAX_BUILDS:]:
            groups.setdefault(place, []).extend(of_member[place])
    read_of = {place: shares(jobs, SEEDS_PER_BUILD) for place, jobs in groups.items()}
    pairs = [(job.id, number) for read in read_of.values() for job, number in read]
    _read_numbers(session, [pair for pair in pairs if pair not in known], metric, known)
    points, values = [], []
    for place in sorted(groups):
        numbers = _merged(read_of[place], known)
        points.append(_point(place[1], variant, groups[place], numbers))
        values.append({output: _once(of_output) for output, of_output in numbers.items()})
    names = [point.name for point in points]
    outputs = sorted({output for point in points for output in point.numbers})
    failures = [(point.failures.failures, point.failures.runs) for point in points]
    if steps is None:
        jobs = jobs_of(session, variant) if over == "builds" else ()
        steps = list(series(build_series.records(session, jobs)))
    return Trend(
        over,
        metric,
        points,
        {
            output: number_changes([of.get(output) or None for of in values], names=names)
            for output in outputs
        },
        rate_changes(failures, names=names),
        steps,
    )


def _read_numbers(
    session: Session, pairs: Iterable[tuple[str, int]], metric: str, numbers: Numbers
) -> None:
    """Read the metric of the first seeds of each job, one statement for each number of seeds."""
    table = ResultRow
    jobs_by_number: dict[int, list[str]] = {}
    for job, number in pairs:
        numbers[job, number] = {}
        jobs_by_number.setdefault(number, []).append(job)
    columns = table.job_id, table.output, table.seed, table.digest, getattr(table, metric)
    for number, ids in jobs_by_number.items():
        first = among(session, table.job_id, ids), table.arrival <= number, table.output != WHOLE
        query = select(*columns, table.nonfinite).where(*first)
        for job, output, seed, digest, value, odd in session.execute(
            query.order_by(table.job_id, table.arrival)
        ):
            if odd or value is not None:
                # the statistics of an output with NaN or Inf describe its finite elements only
                entry = _Number(seed, digest, None if odd else value)
                numbers[job, number].setdefault(output, []).append(entry)


def _merged(read: Iterable[tuple[JobFacts, int]], known: Numbers) -> dict[str, list[_Number]]:
    """Return the numbers of some jobs by output; nobody controls the seed of an iteration."""
    merged: dict[str, list[_Number]] = {}
    for job, number in read:
        for output, of_job in known[job.id, number].items():
            merged.setdefault(output, []).extend(
                [one._replace(seed=None) for one in of_job] if job.selection else of_job
            )
    return merged


def _once(numbers: Sequence[_Number]) -> list[float]:
    """Return the values; those of a seed that gave the same bits each time count once.

    Run again every night, they are no new samples.
    """
    bits: dict[int | None, set[str | None]] = {None: {None}}
    for number in numbers:
        bits.setdefault(number.seed, set()).add(number.digest)
    seen: set[int | None] = set()
    values = []
    for number in numbers:
        if number.value is not None and number.seed not in seen:
            values.append(number.value)
            if len(bits[number.seed]) == 1 and None not in bits[number.seed]:
                seen.add(number.seed)
    return values


def _point(
    name: str, variant: Variant, jobs: Sequence[JobFacts], numbers: Mapping[str, list[_Number]]
) -> TrendPoint:
    """Return the point of these jobs; those of other variants give it numbers only."""
    judged = [job for job in jobs if job.variant == variant]
    counts: Counter[str] = Counter()
    for job in judged:
        counts.update(job.counts)
    spreads = {
        output: Spread(len(values), min(values), sum(values) / len(values), max(values))
        for output, of_output in sorted(numbers.items())
        if (values := _once(of_output))
    }
    odd = {output: sum(one.value is None for one in numbers[output]) for output in sorted(numbers)}
    nonfinite = {output: number for output, number in odd.items() if number}
    return TrendPoint(name, failures_of(judged), len(jobs), spreads, dict(counts), nonfinite)


def compare(session: Session, variant: Variant, base: str | None, head: str | None) -> BuildChange:
    """Compare the kernel of two builds of a variant: masked, fixed, unchanged, ... with evidence.

    Defaults: head is the newest build, base the nearest one before it. A build that never ran has
    no seeds, which the result says.
    """
    jobs = jobs_of(session, variant)
    builds = [build for _, build in sorted({(job.sequence, job.build) for job in jobs})]
    if head is None:
        head = next((name for name in reversed(builds) if name != base), "")
    if base is None:
        before = builds[: builds.index(head)] if head in builds else builds
        base = before[-1] if before else ""
    records = build_series.records(session, [job for job in jobs if job.build in (base, head)])
    by_build = {record.build: record for record in records}
    return compare_builds(*(by_build.get(name, Record(name, {})) for name in (base, head)))
