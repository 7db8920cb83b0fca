"""The slack of tests' tolerances: how much more each allows than right kernels need. Reads only.

A gauge has measured it, or else the seeds of the test's newest job say what rounding needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from statistics import median
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo.gauge import slack as slacks
from gonogo.gauge.summary import Slack
from gonogo.spec import tolerances
from gonogo.spec.verdicts import Explanation
from gonogo_service.gauges import store as gauges
from gonogo_service.gauges.store import GaugedSlack
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among
from gonogo_service.kit.database.paging import BadCursor, Page, batched
from gonogo_service.kit.rows import Answer
from gonogo_service.results.model import WHOLE, DailyRow, JobBlockRow, ResultRow
from gonogo_service.suites.model import RunJobRow, RunRow
from gonogo_service.tests import recent_days, test_list
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.test_list import TestFilter
from gonogo_service.tests.variants import ENDED

MAX_TESTS = 5000
"""The newest tests of which the slack is read."""
WEEKS = 8
_AT_ONCE = 500
_ALLCLOSE = {"rtol", "atol"}


class ToleranceLine(Answer, frozen=True, use_attribute_docstrings=True):
    """The slack of a test's tolerance."""

    key: str
    kernel: str
    test: dict[str, Any]
    source: Literal["gauge", "seeds", "nothing"]
    """Where it is known from: the last gauge, the seeds of the newest job, or nothing"""
    gauge: str | None
    job: str | None
    """The newest job with results"""
    slack: float | None
    """The largest of its outputs; null where right kernels need nothing, and where none is known"""
    outputs: list[Slack]
    """The largest slack first"""
    passing_mutants: int | None
    mutants: int | None
    """The mutants that can show"""


@dataclass(frozen=True)
class Week:
    """The median slack of the gauged tests that ran in seven days."""

    first: date
    last: date
    tests: int
    median: float | None
    """null where no gauged test ran"""


class Memory(recent_days.Memory[frozenset[str]]):
    """The tests that ran on each past day, cached in one process."""


def page(
    session: Session,
    *,
    since: datetime,
    limit: int = 50,
    cursor: str | None = None,
    kernel: str | None = None,
    suite: str | None = None,
    search: str | None = None,
) -> Page[ToleranceLine]:
    """Return the tests that were submitted since then, the largest slack first. Raises BadCursor.

    Tests of which nothing is known come last. suite: only tests of the newest run of that name.
    """
    conditions = test_list.matching(TestFilter(kernel, search, since=since))
    if suite is not None:
        conditions.append(TestSpecRow.key.in_(_of_suite(suite)))
    ranked = _ranked(session, conditions)
    start = 0
    if cursor is not None:
        place = next((n for n, one in enumerate(ranked) if one.test.key == cursor), None)
        if place is None:
            raise BadCursor(cursor)
        start = place + 1
    lines = [_line(*one) for one in ranked[start : start + limit + 1]]
    return Page.cut(lines, limit, lambda line: line.key)


def _of_suite(name: str) -> Any:
    newest = select(RunRow.id).where(RunRow.name == name).order_by(RunRow.id.desc()).limit(1)
    jobs = select(JobRow.test_key).join(RunJobRow, RunJobRow.job_id == JobRow.id)
    return jobs.where(RunJobRow.run_id == newest.scalar_subquery())


class _Ranked(NamedTuple):
    """A test with its outputs, the largest slack first."""

    test: Any
    gauged: GaugedSlack | None
    outputs: list[Slack]


def _ranked(session: Session, conditions: Sequence[ColumnElement[bool]]) -> list[_Ranked]:
    """Return the tests that meet the conditions in the order of the list."""
    table = TestSpecRow
    newest = select(JobRow.id).where(JobRow.test_key == table.key, ENDED)
    job = newest.order_by(JobRow.id.desc()).limit(1).correlate(table).scalar_subquery()
    query = select(table.key, table.kernel, table.test, job.label("job")).where(*conditions)
    tests = session.execute(query.order_by(table.created_at.desc()).limit(MAX_TESTS)).all()
    gauged = gauges.slacks(session)
    jobs = [
        test.job
        for test in tests
        if test.job and test.key not in gauged and _only_allclose(test.test.get("tolerance", {}))
    ]
    explained = _explained(session, jobs)
    ranked = [
        _Ranked(test, slack, _outputs(slack, explained.get(test.job, {})))
        for test in tests
        for slack in (gauged.get(test.key),)
    ]
    ranked.sort(key=lambda one: (-_factor(one.outputs[0]) if one.outputs else 1.0, one.test.key))
    return ranked


def _factor(slack: Slack) -> float:
    return slack.factor or 0.0


def _only_allclose(tolerance: Mapping[str, Any]) -> bool:
    """Return whether the stored sums have the errors of all declared comparators."""
    by_output = [one for one in tolerance.values() if isinstance(one, Mapping)]
    return bool(tolerance) and all(one.keys() <= _ALLCLOSE for one in by_output or [tolerance])


def _explained(session: Session, jobs: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return job -> output -> the largest tolerance ratio that rounding explains."""
    table, ratios = JobBlockRow, dict[str, dict[str, float]]()
    largest = func.max(table.tolerance_ratio)
    query = select(table.job_id, table.output, largest).group_by(table.job_id, table.output)
    counted = table.explanation == Explanation.explained, table.output != WHOLE
    for batch in batched(jobs, _AT_ONCE):
        of_jobs = query.where(among(session, table.job_id, batch), *counted)
        for job, output, ratio in session.execute(of_jobs):
            if ratio is not None:
                ratios.setdefault(job, {})[output] = ratio
    return ratios


def _outputs(gauged: GaugedSlack | None, explained: Mapping[str, float]) -> list[Slack]:
    """Return the outputs by a gauge, or else by what rounding explained, the loosest first."""
    if gauged is not None:
        outputs = [one for one in gauged.slack if one.factor is not None]
    else:
        nothing: dict[str, Any] = {"advised": None, "advice": {}, "passing": None, "mutant": None}
        outputs = [Slack(name, "allclose", need, **nothing) for name, need in explained.items()]
    return sorted(outputs, key=_factor, reverse=True)


def _line(test: Any, gauged: GaugedSlack | None, outputs: list[Slack]) -> ToleranceLine:
    largest = outputs[0].factor if outputs else None
    return ToleranceLine(
        key=test.key,
        kernel=test.kernel,
        test=test.test,
        source="nothing" if not outputs else "seeds" if gauged is None else "gauge",
        gauge=gauged and gauged.gauge,
        job=test.job,
        slack=largest if largest is not None and math.isfinite(largest) else None,
        outputs=outputs,
        passing_mutants=gauged and gauged.passing,
        mutants=gauged and gauged.mutants,
    )


def allowing(test: Mapping[str, Any], slack: Slack, error: float | None) -> dict[str, float]:
    """Return the tolerance that allows this share of the declared error; {} for None."""
    declared = tolerances.for_output(test.get("tolerance", {}), slack.output)
    if declared is None or error is None:
        return {}
    return slacks.at(slack.comparator, declared, error)


def detection_limits(
    session: Session, lines: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[str, ...]]:
    """Return test -> the faults that the first seed of its newest job could not have shown.

    lines: ToleranceLines; those of which a gauge says more are left out.
    """
    table = ResultRow
    by_job = {line["job"]: line for line in lines if line["source"] == "seeds"}
    first = among(session, table.job_id, list(by_job)), table.arrival == 1
    query = select(table.job_id, table.output, table.notes).where(*first)
    return {
        by_job[job]["key"]: tuple(notes["detection_limits"])
        for job, output, notes in session.execute(query)
        if notes and notes.get("detection_limits") and output == by_job[job]["outputs"][0].output
    }


def weeks(session: Session, memory: Memory, now: datetime) -> list[Week]:
    """Return the median slack of the last WEEKS, which end today; it updates `memory`."""
    factors = {
        key: max((one.factor for one in gauged.slack if one.factor is not None), default=None)
        for key, gauged in gauges.slacks(session).items()
    }

    def ran(first: date) -> dict[date, frozenset[str]]:
        table, keys_of = DailyRow, dict[date, set[str]]()
        query = select(table.day, table.test_key).distinct()
        for batch in batched(sorted(factors), _AT_ONCE):  # by an index that has these columns
            of_tests = among(session, table.test_key, batch), table.output == WHOLE
            for day, key in session.execute(query.where(*of_tests, table.day >= first)):
                keys_of.setdefault(day, set()).add(key)
        return {day: frozenset(keys) for day, keys in keys_of.items()}

    days = recent_days.read(memory, ran, frozenset, days=7 * WEEKS, now=now)
    medians = []
    for start in range(0, len(days), 7):
        of_week = days[start : start + 7]
        keys = frozenset[str]().union(*(keys for _, keys in of_week))
        known = [factor for key in keys if (factor := factors.get(key)) is not None]
        middle = median(known) if known else None
        finite = middle if middle is not None and math.isfinite(middle) else None
        medians.append(Week(of_week[0][0], of_week[-1][0], len(known), finite))
    return medians
