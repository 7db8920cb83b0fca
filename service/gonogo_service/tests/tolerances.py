"""The slack of tests' tolerances: how much more each allows than right kernels need. Reads only.

A gauge has measured it, or else the seeds of the test's newest job say what rounding needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from statistics import median
from typing import Any, Literal, NamedTuple

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo.gauge.summary import Slack, largest
from gonogo.gauge.windows import finite
from gonogo.spec import tolerances
from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import Explanation
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
Gauged = Mapping[str, GaugedSlack]
"""Key of a test -> its slack by its last gauge (gauges.store.slacks)."""


class ToleranceLine(Answer, frozen=True, use_attribute_docstrings=True):
    """The slack of a test's tolerance."""

    key: str
    kernel: str
    test: dict[str, Any]
    source: Literal["gauge", "seeds", "nothing"]
    """Where it is known from: the last gauge, the seeds of the newest job, or nothing"""
    gauge: str | None
    branch: str | None
    """The branch of that gauge"""
    board: str | None
    """Its board"""
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
    gauged: Gauged,
    *,
    since: datetime,
    limit: int = 50,
    cursor: str | None = None,
    kernel: str | None = None,
    suite: str | None = None,
    search: str | None = None,
) -> Page[ToleranceLine]:
    """Return the tests that were submitted since then, the largest slack first. Raises BadCursor.

    Tests of which nothing is known come last; tests of programs, which no gauge takes, are left
    out. suite: only tests of the newest run of that name.
    """
    conditions = test_list.matching(TestFilter(kernel, search, since=since))
    if suite is not None:
        newest = select(RunRow.id).where(RunRow.name == suite).order_by(RunRow.id.desc()).limit(1)
        jobs = select(JobRow.test_key).join(RunJobRow, RunJobRow.job_id == JobRow.id)
        of_suite = jobs.where(RunJobRow.run_id == newest.scalar_subquery())
        conditions.append(TestSpecRow.key.in_(of_suite))
    ranked = _ranked(session, gauged, conditions)
    if cursor is not None:
        keys = [one.key for one in ranked]
        if cursor not in keys:
            raise BadCursor(cursor)
        ranked = ranked[keys.index(cursor) + 1 :]
    shown = ranked[: limit + 1]
    tests = test_list.specs(session, [one.key for one in shown])
    lines = [_line(one, tests[one.key], gauged.get(one.key)) for one in shown]
    return Page.cut(lines, limit, lambda line: line.key)


class _Ranked(NamedTuple):
    """A test with its newest job with results and its outputs, the largest slack first."""

    key: str
    job: str | None
    outputs: list[Slack]


def _ranked(
    session: Session, gauged: Gauged, conditions: Sequence[ColumnElement[bool]]
) -> list[_Ranked]:
    """Return the tests that meet the conditions in the order of the list."""
    table = TestSpecRow
    newest = select(JobRow.id).where(JobRow.test_key == table.key, ENDED)
    job = newest.order_by(JobRow.id.desc()).limit(1).correlate(table).scalar_subquery()
    query = select(table.key, job, table.test["tolerance"])
    query = query.where(table.kernel != KERNEL, *conditions)
    tests = session.execute(query.order_by(table.created_at.desc()).limit(MAX_TESTS)).all()
    explained = _explained(session, [job for key, job, _ in tests if job and key not in gauged])
    ranked = [
        _Ranked(key, job, _outputs(gauged.get(key), tolerance or {}, explained.get(job, {})))
        for key, job, tolerance in tests
    ]
    ranked.sort(key=lambda one: (-(largest(one.outputs) or -1.0), one.key))
    return ranked


def _explained(session: Session, jobs: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return job -> output -> the largest tolerance ratio that rounding explains."""
    table, ratios = JobBlockRow, dict[str, dict[str, float]]()
    most = func.max(table.tolerance_ratio)
    query = select(table.job_id, table.output, most).group_by(table.job_id, table.output)
    counted = table.explanation == Explanation.explained, table.output != WHOLE
    for batch in batched(jobs, _AT_ONCE):
        of_jobs = query.where(among(session, table.job_id, batch), *counted)
        for job, output, ratio in session.execute(of_jobs):
            if ratio is not None:
                ratios.setdefault(job, {})[output] = ratio
    return ratios


def _outputs(
    gauged: GaugedSlack | None, tolerance: Mapping[str, Any], explained: Mapping[str, float]
) -> list[Slack]:
    """Return the outputs by a gauge, or else by what rounding explained, the loosest first.

    Seeds have the errors of allclose only, so outputs with other comparators are left out.
    """
    if gauged is not None:
        outputs = [one for one in gauged.slack if one.factor is not None]
    else:
        outputs = [
            Slack(name, "allclose", need)
            for name, need in explained.items()
            if (declared := tolerances.for_output(tolerance, name))
            and declared.to_json().keys() <= _ALLCLOSE
        ]
    return sorted(outputs, key=lambda one: one.factor or 0.0, reverse=True)


def _line(one: _Ranked, test: dict[str, Any], gauged: GaugedSlack | None) -> ToleranceLine:
    return ToleranceLine(
        key=one.key,
        kernel=test["kernel"],
        test=test,
        source="nothing" if not one.outputs else "seeds" if gauged is None else "gauge",
        gauge=gauged and gauged.gauge,
        branch=gauged and gauged.branch,
        board=gauged and gauged.board,
        job=one.job,
        slack=finite(largest(one.outputs)),
        outputs=one.outputs,
        passing_mutants=gauged and gauged.passing,
        mutants=gauged and gauged.mutants,
    )


def detection_limits(session: Session, lines: Iterable[ToleranceLine]) -> dict[str, list[str]]:
    """Return test -> the faults that the first seed of its newest job could not have shown.

    Lines of which a gauge says more are left out.
    """
    table = ResultRow
    by_job = {line.job: line for line in lines if line.source == "seeds"}
    first = among(session, table.job_id, list(by_job)), table.arrival == 1
    query = select(table.job_id, table.output, table.notes).where(*first)
    return {
        by_job[job].key: notes["detection_limits"]
        for job, output, notes in session.execute(query)
        if notes and notes.get("detection_limits") and output == by_job[job].outputs[0].output
    }


def weeks(session: Session, gauged: Gauged, memory: Memory, now: datetime) -> list[Week]:
    """Return the median slack of the last WEEKS, which end today; it updates `memory`."""

    def ran(first: date) -> dict[date, frozenset[str]]:
        table, keys_of = DailyRow, dict[date, set[str]]()
        query = select(table.day, table.test_key).distinct()
        for batch in batched(sorted(gauged), _AT_ONCE):  # by an index that has these columns
            of_tests = among(session, table.test_key, batch), table.output == WHOLE
            for day, key in session.execute(query.where(*of_tests, table.day >= first)):
                keys_of.setdefault(day, set()).add(key)
        return {day: frozenset(keys) for day, keys in keys_of.items()}

    days = recent_days.read(memory, ran, frozenset, days=7 * WEEKS, now=now)
    medians = []
    for start in range(0, len(days), 7):
        of_week = days[start : start + 7]
        keys = frozenset[str]().union(*(keys for _, keys in of_week))
        slacks = [largest(gauged[key].slack) for key in keys & gauged.keys()]
        known = [factor for factor in slacks if factor is not None]
        middle = finite(median(known)) if known else None
        medians.append(Week(of_week[0][0], of_week[-1][0], len(known), middle))
    return medians
