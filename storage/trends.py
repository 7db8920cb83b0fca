"""A test from build to build, or from day to day: points, change points of its numbers and of its failure rate, and what builds changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from sqlalchemy.orm import Session

from gonogo.flakiness.masking import BuildChange, Record, compare_builds, series
from gonogo.flakiness.rates import rate
from storage import build_series, test_specs
from storage.build_series import METRICS, SEEDS_PER_BUILD, Point
from storage.variants import JobFacts, Variant, jobs_of

if TYPE_CHECKING:
    from gonogo.flakiness.changes import Changes

DEFAULT_METRIC = METRICS[0]
OF_TOLERANCE = "tolerance_ratio"
"""The one statistic that depends on the tolerance: its history is the test's own, that of the others is the subject's."""
MOST_TESTS = 8
"""Tests of a subject whose numbers make one history: a tolerance is advised a few times in a test's life."""
Over = Literal["builds", "days"]


@dataclass(frozen=True)
class Trend:
    """Points in order; the changes of each output's numbers, and of the failure rate; between builds what became of the kernel."""

    variant: Variant
    over: Over
    metric: str
    points: tuple[Point, ...]
    numbers: Mapping[str, Changes]
    rates: Changes
    steps: tuple[BuildChange, ...]
    """Each build against the nearest earlier one with judged seeds; empty over days."""

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types; each change with the names of its place."""
        names = [point.name for point in self.points]
        return {
            "over": self.over,
            "metric": self.metric,
            "points": [_point(point) for point in self.points],
            "numbers": {output: _changes(found, names) for output, found in self.numbers.items()},
            "rates": _changes(self.rates, names),
            "steps": [step.to_json() for step in self.steps],
        }


def read(session: Session, variant: Variant, *, over: Over = "builds", metric: str = DEFAULT_METRIC) -> Trend:
    """The trend of a variant. Rates are the test's own; numbers are its subject's on the same line and board, but for tolerance_ratio, so
    that a test that takes another tolerance keeps its past. Raises ValueError for a metric that isn't in METRICS."""
    from gonogo.flakiness.changes import number_changes, rate_changes  # loads numpy, which the API starts without

    by: Literal["build", "day"] = "build" if over == "builds" else "day"
    points = build_series.points(session, variant, by=by, metric=metric)
    if metric != OF_TOLERANCE:
        others = [build_series.points(session, each, by=by, metric=metric) for each in _siblings(session, variant)]
        points = _joined(points, others)
    outputs = sorted({output for point in points for output in point.numbers})
    numbers = {output: number_changes([point.numbers.get(output) for point in points]) for output in outputs}
    rates = rate_changes([(point.failures, point.runs) for point in points])
    steps = series(build_series.records(session, jobs_of(session, variant))) if over == "builds" else ()
    return Trend(variant, over, metric, points, numbers, rates, steps)


def compare(session: Session, variant: Variant, base: str | None, head: str | None) -> BuildChange:
    """What became of the kernel between two builds of a variant: masked, fixed, unchanged, ... with its evidence.

    Left out: head is the newest build, base the nearest one before it. A build that never ran has no seeds, which the answer says.
    """
    jobs = jobs_of(session, variant)
    ran = _in_order(jobs)
    if head is None:
        head = next((name for name in reversed(ran) if name != base), "")
    if base is None:
        before = ran[: ran.index(head)] if head in ran else ran
        base = before[-1] if before else ""
    found = {each.build: each for each in build_series.records(session, [job for job in jobs if job.build in (base, head)])}
    return compare_builds(found.get(base, Record(base, {})), found.get(head, Record(head, {})))


def _in_order(jobs: Sequence[JobFacts]) -> list[str]:
    return list(dict.fromkeys(job.build for job in sorted(jobs, key=lambda job: (job.sequence, job.build))))


def _siblings(session: Session, variant: Variant) -> list[Variant]:
    """The same variant of the other tests of the subject: those that differ in the tolerance only."""
    spec = test_specs.get(session, variant.test_key)
    tests = test_specs.subject(session, spec["subject_key"]) if spec is not None else []
    keys = [test["key"] for test in tests if test["key"] != variant.test_key][-MOST_TESTS:]
    return [Variant(key, variant.build_line, variant.arch, variant.board) for key in keys]


def _joined(own: tuple[Point, ...], others: Sequence[tuple[Point, ...]]) -> tuple[Point, ...]:
    """The points of a test with the numbers of its siblings; their runs are not the test's."""
    found = {(point.at, point.name): point for point in own}
    for points in others:
        for point in points:
            place = (point.at, point.name)
            mine = found.get(place, replace(point, numbers={}, failures=0, runs=0))
            names = mine.numbers.keys() | point.numbers.keys()
            numbers = {name: (*mine.numbers.get(name, ()), *point.numbers.get(name, ()))[:SEEDS_PER_BUILD] for name in sorted(names)}
            found[place] = replace(mine, numbers=numbers, jobs=(*mine.jobs, *(job for job in point.jobs if job not in mine.jobs)))
    return tuple(found[place] for place in sorted(found))


def _point(point: Point) -> dict[str, Any]:
    numbers = {
        output: {"seeds": len(values), "low": min(values), "mean": sum(values) / len(values), "high": max(values)}
        for output, values in point.numbers.items()
        if values
    }
    return {"name": point.name, "failures": rate(point.failures, point.runs).to_json(), "jobs": len(point.jobs), "numbers": numbers}


def _changes(found: Changes, names: Sequence[str]) -> dict[str, Any]:
    """With the names of builds or days in place of points in the words too."""
    plain = found.to_json()
    for change, raw in zip(plain["changes"], found.changes, strict=True):
        place, low, high = (names[min(each, len(names) - 1)] for each in (raw.place, raw.low, raw.high))
        said = raw.words.replace(f"from point {raw.place} on", f"from {place} on")
        between = f"between {raw.low} and {raw.high}"
        if raw.low == raw.high:  # the place is sure: nothing to say about it
            said = said.replace(f"({between}, ", "(").replace(f" ({between})", "")
        said = said.replace(between, f"between {low} and {high}")
        change.update({"at": place, "between": [low, high], "words": said})
    plain["words"] = "; ".join(change["words"] for change in plain["changes"]) or found.words
    return plain
