"""A test from build to build, or from day to day.

A trend has points, the change points of its numbers and its failure rate, and what the builds
changed. The background stores the trend of each variant when one of its jobs is over. A stored
trend has a stamp of the jobs that it was made from. `read` returns it while the stamp matches the
present jobs; otherwise it computes the trend by the same function.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, astuple, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal

from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness.history import Change, Changes
from gonogo.flakiness.masking import BuildChange, Record, compare_builds, series
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Rate, rate
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database import dialect
from gonogo_service.kit.database.each import Given, of_each
from gonogo_service.kit.database.encoding import encode
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests import build_series, test_specs
from gonogo_service.tests.model import TrendRow
from gonogo_service.tests.points import MAX_JOBS, METRICS, Point, PointsReader
from gonogo_service.tests.variants import COLUMNS, COUNTED, NAMES, JobFacts, Variant, jobs_of

DEFAULT_METRIC = METRICS[0]
OF_TOLERANCE = "tolerance_ratio"
"""The one statistic that depends on the tolerance.

Its history is the test's; that of the others is the workload's.
"""
MAX_TESTS = 8
"""Maximum number of a workload's tests whose numbers make one history.

A tolerance is advised a few times in a test's life.
"""
FORM = f"3/{POLICY.version}"
"""The format of a stored trend and the policy's version.

With another one, all trends are computed again (assessments.catch_up).
"""
Over = Literal["builds", "days"]
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
class TrendChange(Change):
    """A change with the names of its points: at `at`, which is within `between` at `level`."""

    at: str
    between: tuple[str, str]


@dataclass(frozen=True)
class TrendChanges(Changes):
    """The change points of one series with the names of its points."""

    changes: list[TrendChange]


@dataclass(frozen=True)
class Trend:
    """Points in order, and the changes between them."""

    over: Over
    metric: str
    points: list[TrendPoint]
    numbers: dict[str, TrendChanges]
    """By output: change points of the logarithm of `metric`"""
    rates: TrendChanges
    """Change points of the failure rate"""
    steps: list[BuildChange]
    """Each build compared with the nearest earlier judged one; empty over days"""


@dataclass(frozen=True)
class StoredTrend:
    """A trend of the default metric as it is stored."""

    variant: Variant
    over: Over
    stamp: str
    trend: Trend


def read(
    session: Session, variant: Variant, *, over: Over = "builds", metric: str = DEFAULT_METRIC
) -> Trend:
    """Return the trend of a variant.

    It is the stored one where nothing has run since, else computed. Raises ValueError for a metric
    that isn't in METRICS.
    """
    table, default_metric = TrendRow, metric == DEFAULT_METRIC
    siblings = _siblings(session, variant)
    query = select(table.steps, *((table.content,) if default_metric else ())).where(
        table.test_key == variant.test_key,
        table.branch == variant.branch,
        table.arch == variant.arch,
        table.board == variant.board,
        table.over == over,
        table.form == FORM,
        table.stamp == _stamp(session, (variant, *siblings)),
    )
    stored = session.execute(query).one_or_none()
    if stored is None:
        return _computed(PointsReader(session, metric), variant, siblings, over)
    if default_metric:
        return from_json(Trend, {**stored.content, "steps": stored.steps})
    reader = PointsReader(session, metric)
    computed = _computed(reader, variant, siblings, over, with_steps=False)
    return replace(computed, steps=[from_json(BuildChange, step) for step in stored.steps])


def trends_to_store(reader: PointsReader, variant: Variant) -> tuple[StoredTrend, ...]:
    """Return the trends to store now that a job of this variant is over.

    They are its own, and those of its workload's other tests, whose past it is. The reader reads
    DEFAULT_METRIC.
    """
    session = reader.session
    trends = []
    for member in (variant, *_siblings(session, variant)):
        if member == variant or jobs_of(session, member, limit=1):
            others = _siblings(session, member)
            stamp = _stamp(session, (member, *others))
            for over in OVERS:
                trend = _computed(reader, member, others, over)
                trends.append(StoredTrend(member, over, stamp, trend))
    return tuple(trends)


def store(session: Session, trends: Iterable[StoredTrend], *, now: datetime) -> None:
    """Store trends.

    Where an older one overwrites a newer one, its stamp doesn't match, and `read` computes.
    """
    rows = [
        {
            **asdict(stored.variant),
            "over": stored.over,
            "form": FORM,
            "stamp": stored.stamp,
            "content": {name: value for name, value in trend.items() if name != "steps"},
            "steps": trend["steps"],
            "made_at": now,
        }
        for stored in trends
        for trend in (asdict(stored.trend),)
    ]
    dialect.upsert(session, TrendRow, rows)


def _stamp(session: Session, family: Iterable[Variant]) -> str:
    """Return a digest that changes when one of the variants' jobs ends, or changes after that.

    It covers the number, sums and times of the jobs that a trend reads.
    """
    members = sorted(family)
    rows = of_each(session, _summary, COLUMNS, [astuple(member) for member in members])
    summaries = [[str(value) for value in values] for _, *values in rows]
    return hashlib.sha256(encode(sorted(summaries)).encode()).hexdigest()[:32]


def _summary(given: Given) -> Select[*tuple[Any, ...]]:
    """Return the query of a variant's part of a stamp."""
    table = JobRow
    jobs = select(table.done, table.version, table.created_at, table.finished_at).where(
        *(getattr(table, name) == given(name) for name in NAMES),
        COUNTED,
        table.state.in_((JobState.finished, JobState.cancelled)),
        table.done > 0,
    )
    newest = jobs.order_by(table.id.desc()).limit(MAX_JOBS).subquery().c
    times = (
        func.min(newest.created_at).label("first"),
        func.max(newest.created_at).label("last"),
        func.max(newest.finished_at).label("finished"),
    )
    number, done = func.count().label("number"), func.sum(newest.done).label("done")
    return select(number, done, func.sum(newest.version).label("version"), *times)


def _computed(
    reader: PointsReader,
    variant: Variant,
    siblings: Sequence[Variant],
    over: Over,
    *,
    with_steps: bool = True,
) -> Trend:
    """Compute a trend from the stored seeds.

    Rates are the test's. Numbers are its workload's on the same branch and board, so that a test
    that takes another tolerance keeps its past. The exception is tolerance_ratio.
    """
    # it loads numpy, which the API starts without
    from gonogo.flakiness.changes import number_changes, rate_changes

    by: Literal["build", "day"] = "build" if over == "builds" else "day"
    shared = () if reader.metric == OF_TOLERANCE else siblings
    points = reader.points(variant, by=by, siblings=shared)
    names = [point.name for point in points]
    outputs = sorted({output for point in points for output in point.numbers})
    numbers = {
        output: _changes(number_changes([point.numbers.get(output) for point in points]), names)
        for output in outputs
    }
    rates = _changes(rate_changes([(point.failures, point.runs) for point in points]), names)
    steps = (
        series(build_series.records(reader.session, jobs_of(reader.session, variant)))
        if over == "builds" and with_steps
        else ()
    )
    return Trend(
        over, reader.metric, [_point(point) for point in points], numbers, rates, list(steps)
    )


def compare(session: Session, variant: Variant, base: str | None, head: str | None) -> BuildChange:
    """Compare the kernel of two builds of a variant: masked, fixed, unchanged, ... with evidence.

    Defaults: head is the newest build, base the nearest one before it. A build that never ran has
    no seeds, which the result says.
    """
    jobs = jobs_of(session, variant)
    build_names = _in_order(jobs)
    if head is None:
        head = next((name for name in reversed(build_names) if name != base), "")
    if base is None:
        before = build_names[: build_names.index(head)] if head in build_names else build_names
        base = before[-1] if before else ""
    records = {
        record.build: record
        for record in build_series.records(
            session, [job for job in jobs if job.build in (base, head)]
        )
    }
    return compare_builds(records.get(base, Record(base, {})), records.get(head, Record(head, {})))


def _in_order(jobs: Sequence[JobFacts]) -> list[str]:
    return list(
        dict.fromkeys(job.build for job in sorted(jobs, key=lambda job: (job.sequence, job.build)))
    )


def _siblings(session: Session, variant: Variant) -> list[Variant]:
    """Return the same variant of the workload's other tests, which differ in tolerance only."""
    keys = test_specs.siblings(session, variant.test_key)[-MAX_TESTS:]
    return [Variant(key, variant.branch, variant.arch, variant.board) for key in keys]


def _point(point: Point) -> TrendPoint:
    numbers = {
        output: Spread(len(values), min(values), sum(values) / len(values), max(values))
        for output, values in point.numbers.items()
        if values
    }
    failures = rate(point.failures, point.runs)
    counts, nonfinite = dict(point.counts), dict(point.nonfinite)
    return TrendPoint(point.name, failures, len(point.jobs), numbers, counts, nonfinite)


def _changes(changes: Changes, names: Sequence[str]) -> TrendChanges:
    """Return the changes with builds' or days' names in place of points, in words too."""
    named = [_named(change, names) for change in changes.changes]
    words = "; ".join(change.words for change in named) or changes.words
    return from_object(TrendChanges, changes, changes=named, words=words)


def _named(change: Change, names: Sequence[str]) -> TrendChange:
    place, low, high = (
        names[min(point, len(names) - 1)] for point in (change.place, change.low, change.high)
    )
    words = change.words.replace(f"from point {change.place} on", f"from {place} on")
    between = f"between {change.low} and {change.high}"
    if change.low == change.high:  # the place is exact: no interval to mention
        words = words.replace(f"({between}, ", "(").replace(f" ({between})", "")
    words = words.replace(between, f"between {low} and {high}")
    odds = change.odds if change.odds is not None and math.isfinite(change.odds) else None
    return from_object(TrendChange, change, at=place, between=(low, high), odds=odds, words=words)
