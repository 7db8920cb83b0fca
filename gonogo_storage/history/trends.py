"""A test from build to build, or from day to day.

A trend has points, the change points of its numbers and its failure rate, and what the builds
changed. The background stores the trend of each variant when one of its jobs is over. A stored
trend has a stamp of the jobs that it was made from. `read` returns it while the stamp matches the
present jobs; otherwise it computes the trend by the same function.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy import CompoundSelect, bindparam, func, select, union_all
from sqlalchemy.orm import Session

from gonogo.flakiness.masking import BuildChange, Record, compare_builds, series
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import rate
from gonogo_storage.catalogue import test_specs
from gonogo_storage.db import dialect
from gonogo_storage.db.encoding import encode
from gonogo_storage.db.states import JobState
from gonogo_storage.history import build_series
from gonogo_storage.history.build_series import MAX_POINTS_JOBS, METRICS, Point
from gonogo_storage.rollups.variants import COUNTED, JobFacts, Variant, jobs_of
from gonogo_storage.tables import JobRow, TrendRow

if TYPE_CHECKING:
    from gonogo.flakiness.changes import Changes

DEFAULT_METRIC = METRICS[0]
OF_TOLERANCE = "tolerance_ratio"
"""The one statistic that depends on the tolerance.

Its history is the test's; that of the others is the workload's.
"""
MAX_TESTS = 8
"""Maximum number of a workload's tests whose numbers make one history.

A tolerance is advised a few times in a test's life.
"""
FORM = f"2/{POLICY.version}"
"""The format of a stored trend and the policy's version.

With another one, all trends are computed again (assessments.catch_up).
"""
Over = Literal["builds", "days"]
OVERS: tuple[Over, ...] = ("builds", "days")


@dataclass(frozen=True)
class Trend:
    """Points in order, the changes of each output's numbers and of the failure rate.

    Between builds also the steps: how the kernel changed.
    """

    variant: Variant
    over: Over
    metric: str
    points: tuple[Point, ...]
    numbers: Mapping[str, Changes]
    rates: Changes
    steps: tuple[BuildChange, ...]
    """Each build against the nearest earlier one with judged seeds; empty over days."""

    def to_json(self) -> dict[str, Any]:
        """Return the trend in plain JSON types; each change names its place. `steps` come last."""
        names = [point.name for point in self.points]
        return {
            "over": self.over,
            "metric": self.metric,
            "points": [_point(point) for point in self.points],
            "numbers": {
                output: _changes(changes, names) for output, changes in self.numbers.items()
            },
            "rates": _changes(self.rates, names),
            "steps": [step.to_json() for step in self.steps],
        }


@dataclass(frozen=True)
class StoredTrend:
    """A trend of the default metric as it is stored."""

    variant: Variant
    over: Over
    stamp: str
    content: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]


def read(
    session: Session, variant: Variant, *, over: Over = "builds", metric: str = DEFAULT_METRIC
) -> dict[str, Any]:
    """Return the trend of a variant in plain JSON (`Trend.to_json`).

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
        return _computed(session, variant, siblings, over, metric).to_json()
    if default_metric:
        return {**stored.content, "steps": stored.steps}
    return {
        **_computed(session, variant, siblings, over, metric, with_steps=False).to_json(),
        "steps": stored.steps,
    }


def trends_to_store(session: Session, variant: Variant) -> tuple[StoredTrend, ...]:
    """Return the trends to store now that a job of this variant is over.

    They are its own, and those of its workload's other tests, whose past it is.
    """
    trends = []
    for member in (variant, *_siblings(session, variant)):
        if member == variant or jobs_of(session, member, limit=1):
            others = _siblings(session, member)
            stamp = _stamp(session, (member, *others))
            for over in OVERS:
                plain = _computed(session, member, others, over, DEFAULT_METRIC).to_json()
                steps = plain.pop("steps")
                trends.append(StoredTrend(member, over, stamp, plain, steps))
    return tuple(trends)


def store(session: Session, trends: Iterable[StoredTrend], *, now: datetime) -> None:
    """Store trends.

    Where an older one overwrites a newer one, its stamp doesn't match, and `read` computes.
    """
    rows = [
        {
            **trend.variant.to_json(),
            "over": trend.over,
            "form": FORM,
            "stamp": trend.stamp,
            "content": dict(trend.content),
            "steps": list(trend.steps),
            "made_at": now,
        }
        for trend in trends
    ]
    dialect.upsert(session, TrendRow, rows)


def _stamp(session: Session, family: Iterable[Variant]) -> str:
    """Return a digest that changes when one of the variants' jobs ends, or changes after that.

    It covers the number, sums and times of the jobs that a trend reads.
    """
    members = sorted(family)
    keys = {
        f"{name}{number}": value
        for number, member in enumerate(members)
        for name, value in member.to_json().items()
    }
    summaries = [
        [str(value) for value in row] for row in session.execute(_stamp_query(len(members)), keys)
    ]
    return hashlib.sha256(encode(sorted(summaries)).encode()).hexdigest()[:32]


@cache  # building the statement takes longer than running it
def _stamp_query(members: int) -> CompoundSelect[Any]:
    table = JobRow
    parts = []
    for number in range(members):
        named = (
            getattr(table, name) == bindparam(f"{name}{number}")
            for name in ("test_key", "branch", "arch", "board")
        )
        jobs = select(table.done, table.version, table.created_at, table.finished_at).where(
            *named,
            COUNTED,
            table.state.in_((JobState.finished, JobState.cancelled)),
            table.done > 0,
        )
        newest = jobs.order_by(table.id.desc()).limit(MAX_POINTS_JOBS).subquery().c
        times = (
            func.min(newest.created_at),
            func.max(newest.created_at),
            func.max(newest.finished_at),
        )
        parts.append(select(func.count(), func.sum(newest.done), func.sum(newest.version), *times))
    return union_all(*parts)


def _computed(
    session: Session,
    variant: Variant,
    siblings: Sequence[Variant],
    over: Over,
    metric: str,
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
    points = build_series.points(
        session, variant, by=by, metric=metric, siblings=() if metric == OF_TOLERANCE else siblings
    )
    outputs = sorted({output for point in points for output in point.numbers})
    numbers = {
        output: number_changes([point.numbers.get(output) for point in points])
        for output in outputs
    }
    rates = rate_changes([(point.failures, point.runs) for point in points])
    steps = (
        series(build_series.records(session, jobs_of(session, variant)))
        if over == "builds" and with_steps
        else ()
    )
    return Trend(variant, over, metric, points, numbers, rates, steps)


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


def _point(point: Point) -> dict[str, Any]:
    numbers = {
        output: {
            "seeds": len(values),
            "low": min(values),
            "mean": sum(values) / len(values),
            "high": max(values),
        }
        for output, values in point.numbers.items()
        if values
    }
    return {
        "name": point.name,
        "failures": rate(point.failures, point.runs).to_json(),
        "jobs": len(point.jobs),
        "numbers": numbers,
    }


def _changes(changes: Changes, names: Sequence[str]) -> dict[str, Any]:
    """Return the changes in JSON, with builds' or days' names in place of points, in words too."""
    plain = changes.to_json()
    for change, raw in zip(plain["changes"], changes.changes, strict=True):
        place, low, high = (
            names[min(point, len(names) - 1)] for point in (raw.place, raw.low, raw.high)
        )
        words = raw.words.replace(f"from point {raw.place} on", f"from {place} on")
        between = f"between {raw.low} and {raw.high}"
        if raw.low == raw.high:  # the place is exact: no interval to mention
            words = words.replace(f"({between}, ", "(").replace(f" ({between})", "")
        words = words.replace(between, f"between {low} and {high}")
        change.update({"at": place, "between": [low, high], "words": words})
    plain["words"] = "; ".join(change["words"] for change in plain["changes"]) or changes.words
    return plain
