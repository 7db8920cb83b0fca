"""A test from build to build, or from day to day: points, change points of its numbers and of its
failure rate, and what builds changed.

The background keeps the trend of each variant when one of its jobs is over; `read` gives that as
long as its stamp, which names the jobs that it was made from, is that of the jobs there are, and
else computes it, by the same function.
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
from gonogo_storage.history.build_series import METRICS, MOST_POINTS_JOBS, Point
from gonogo_storage.rollups.variants import COUNTED, JobFacts, Variant, jobs_of
from gonogo_storage.tables import JobRow, TrendRow

if TYPE_CHECKING:
    from gonogo.flakiness.changes import Changes

DEFAULT_METRIC = METRICS[0]
OF_TOLERANCE = "tolerance_ratio"
"""The one statistic that depends on the tolerance: its history is the test's own, that of the
others is the workload's."""
MOST_TESTS = 8
"""Tests of a workload whose numbers make one history: a tolerance is advised a few times in a test's
life."""
FORM = f"2/{POLICY.version}"
"""Of a stored trend: what it consists of, and the policy's version. With another one all are made
anew (assessments.catch_up)."""
Over = Literal["builds", "days"]
OVERS: tuple[Over, ...] = ("builds", "days")


@dataclass(frozen=True)
class Trend:
    """Points in order; the changes of each output's numbers, and of the failure rate; between
    builds what became of the kernel.
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
        """In plain JSON types; each change with the names of its place. `steps` come last."""
        names = [point.name for point in self.points]
        return {
            "over": self.over,
            "metric": self.metric,
            "points": [_point(point) for point in self.points],
            "numbers": {output: _changes(found, names) for output, found in self.numbers.items()},
            "rates": _changes(self.rates, names),
            "steps": [step.to_json() for step in self.steps],
        }


@dataclass(frozen=True)
class Kept:
    """A trend of the default metric as it is stored."""

    variant: Variant
    over: Over
    stamp: str
    content: Mapping[str, Any]
    steps: Sequence[Mapping[str, Any]]


def read(
    session: Session, variant: Variant, *, over: Over = "builds", metric: str = DEFAULT_METRIC
) -> dict[str, Any]:
    """The trend of a variant in plain JSON (`Trend.to_json`): as stored where nothing has run
    since, else computed.

    Raises ValueError for a metric that isn't in METRICS.
    """
    table, whole = TrendRow, metric == DEFAULT_METRIC
    siblings = _siblings(session, variant)
    query = select(table.steps, *((table.content,) if whole else ())).where(
        table.test_key == variant.test_key, table.branch == variant.branch, table.arch == variant.arch,
        table.board == variant.board, table.over == over, table.form == FORM, table.stamp == _stamp(session, (variant, *siblings)),
    )  # fmt: skip
    kept = session.execute(query).one_or_none()
    if kept is None:
        return _computed(session, variant, siblings, over, metric).to_json()
    if whole:
        return {**kept.content, "steps": kept.steps}
    return {
        **_computed(session, variant, siblings, over, metric, stepped=False).to_json(),
        "steps": kept.steps,
    }


def made(session: Session, variant: Variant) -> tuple[Kept, ...]:
    """The trends to store now that a job of this variant is over: its own, and those of its
    workload's other tests, whose past it is.
    """
    found = []
    for each in (variant, *_siblings(session, variant)):
        if each == variant or jobs_of(session, each, limit=1):
            others = _siblings(session, each)
            stamp = _stamp(session, (each, *others))
            for over in OVERS:
                plain = _computed(session, each, others, over, DEFAULT_METRIC).to_json()
                steps = plain.pop("steps")
                found.append(Kept(each, over, stamp, plain, steps))
    return tuple(found)


def keep(session: Session, found: Iterable[Kept], *, now: datetime) -> None:
    """Store them. Where an older look is written after a newer one, its stamp tells `read`, which
    computes.
    """
    rows = [
        {**each.variant.to_json(), "over": each.over, "form": FORM, "stamp": each.stamp, "content": dict(each.content),
         "steps": list(each.steps), "made_at": now}
        for each in found
    ]  # fmt: skip
    dialect.upsert(session, TrendRow, rows)


def _stamp(session: Session, family: Iterable[Variant]) -> str:
    """What changes when a job of these is over, or changes after that: their numbers, sums and
    times, over the jobs that are looked at.
    """
    members = sorted(family)
    keys = {
        f"{name}{number}": value
        for number, each in enumerate(members)
        for name, value in each.to_json().items()
    }
    told = [
        [str(value) for value in row] for row in session.execute(_stamp_query(len(members)), keys)
    ]
    return hashlib.sha256(encode(sorted(told)).encode()).hexdigest()[:32]


@cache  # to put the statement together takes longer than to run it
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
        own = jobs.order_by(table.id.desc()).limit(MOST_POINTS_JOBS).subquery().c
        times = (func.min(own.created_at), func.max(own.created_at), func.max(own.finished_at))
        parts.append(select(func.count(), func.sum(own.done), func.sum(own.version), *times))
    return union_all(*parts)


def _computed(
    session: Session,
    variant: Variant,
    siblings: Sequence[Variant],
    over: Over,
    metric: str,
    *,
    stepped: bool = True,
) -> Trend:
    """From the stored seeds. Rates are the test's own; numbers are its workload's on the same branch
    and board, but for tolerance_ratio, so that a test that takes another tolerance keeps its
    past.
    """
    from gonogo.flakiness.changes import (
        number_changes,
        rate_changes,
    )  # loads numpy, which the API starts without

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
        if over == "builds" and stepped
        else ()
    )
    return Trend(variant, over, metric, points, numbers, rates, steps)


def compare(session: Session, variant: Variant, base: str | None, head: str | None) -> BuildChange:
    """What became of the kernel between two builds of a variant: masked, fixed, unchanged, ... with
    its evidence.

    Left out: head is the newest build, base the nearest one before it. A build that never ran has
    no seeds, which the answer says.
    """
    jobs = jobs_of(session, variant)
    ran = _in_order(jobs)
    if head is None:
        head = next((name for name in reversed(ran) if name != base), "")
    if base is None:
        before = ran[: ran.index(head)] if head in ran else ran
        base = before[-1] if before else ""
    found = {
        each.build: each
        for each in build_series.records(
            session, [job for job in jobs if job.build in (base, head)]
        )
    }
    return compare_builds(found.get(base, Record(base, {})), found.get(head, Record(head, {})))


def _in_order(jobs: Sequence[JobFacts]) -> list[str]:
    return list(
        dict.fromkeys(job.build for job in sorted(jobs, key=lambda job: (job.sequence, job.build)))
    )


def _siblings(session: Session, variant: Variant) -> list[Variant]:
    """The same variant of the other tests of the workload: those that differ in the tolerance
    only.
    """
    keys = test_specs.siblings(session, variant.test_key)[-MOST_TESTS:]
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


def _changes(found: Changes, names: Sequence[str]) -> dict[str, Any]:
    """With the names of builds or days in place of points in the words too."""
    plain = found.to_json()
    for change, raw in zip(plain["changes"], found.changes, strict=True):
        place, low, high = (
            names[min(each, len(names) - 1)] for each in (raw.place, raw.low, raw.high)
        )
        said = raw.words.replace(f"from point {raw.place} on", f"from {place} on")
        between = f"between {raw.low} and {raw.high}"
        if raw.low == raw.high:  # the place is sure: nothing to say about it
            said = said.replace(f"({between}, ", "(").replace(f" ({between})", "")
        said = said.replace(between, f"between {low} and {high}")
        change.update({"at": place, "between": [low, high], "words": said})
    plain["words"] = "; ".join(change["words"] for change in plain["changes"]) or found.words
    return plain
