"""The tests of a selection's job, each with its outcomes over all iterations. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from gonogo.spec.selections import KERNEL
from gonogo.spec.verdicts import WORST_FIRST
from gonogo_storage.jobs.job import Job
from gonogo_storage.tables import SeedResultRow

_WORST_OUTCOME = {
    "error": 0,
    "crash": 1,
    "hang": 2,
    "failed": 3,
    "skipped": 4,
    "not_run": 5,
    "passed": 6,
}
_RANK = {str(verdict): verdict.rank for verdict in WORST_FIRST}


@dataclass(frozen=True)
class TestRecord:
    """One test of a job over its iterations.

    `sample` is the entry of the worst iteration, as the worker sent it.
    """

    __test__ = False  # pytest: not a test case

    name: str
    verdict: str
    outcomes: Mapping[str, int]
    iteration: int
    repeat: int
    sample: Mapping[str, Any] = field(default_factory=dict)


def judged_outputs(session: Session, job_id: str) -> set[str]:
    """Return the outputs with numbers: the arrays that tests handed over."""
    table = SeedResultRow
    query = (
        select(table.output)
        .where(table.job_id == job_id, table.output != "", table.outcome.is_(None))
        .distinct()
    )
    return set(session.scalars(query))


def count(session: Session, job_id: str) -> int:
    """Count the different tests that a job has run."""
    table = SeedResultRow
    query = select(func.count(table.output.distinct())).where(
        table.job_id == job_id, table.outcome.is_not(None)
    )
    return session.scalar(query) or 0


def census(session: Session, job: Job) -> dict[tuple[str, str | None], int]:
    """Count the seeds of a kernel's job, or a selection's tests, by (verdict, outcome).

    A selection's tests count once for each iteration.
    """
    if job.kernel != KERNEL:
        return {(verdict, None): number for verdict, number in job.counts.items()}
    table = SeedResultRow
    of_tests = (table.job_id == job.id, table.outcome.is_not(None) | (table.output == ""))
    query = (
        select(table.verdict, table.outcome, func.count())
        .where(*of_tests)
        .group_by(table.verdict, table.outcome)
    )
    return {(verdict, outcome): number for verdict, outcome, number in session.execute(query)}


def tests(session: Session, job_id: str, limit: int) -> list[TestRecord]:
    """Return the worst `limit` tests of a job.

    The order is the worst verdict, then the worst outcome (red before green), then the name.
    """
    table = SeedResultRow
    verdict = case(_RANK, value=table.verdict, else_=len(_RANK))
    outcome = case(_WORST_OUTCOME, value=table.outcome, else_=0)
    of_job = (table.job_id == job_id, table.outcome.is_not(None))
    place = (
        func.row_number()
        .over(partition_by=table.output, order_by=(verdict, outcome, table.seed, table.repeat))
        .label("place")
    )
    columns = (table.output, table.seed, table.repeat, table.verdict, table.statistics)
    worst = (
        select(*columns, verdict.label("v"), outcome.label("o"), place).where(*of_job).subquery()
    )
    ordered = (
        select(worst)
        .where(worst.c.place == 1)
        .order_by(worst.c.v, worst.c.o, worst.c.output)
        .limit(limit)
    )
    rows = session.execute(ordered).all()
    counts: dict[str, dict[str, int]] = {}
    for name, word, number in session.execute(
        select(table.output, table.outcome, func.count())
        .where(*of_job)
        .group_by(table.output, table.outcome)
    ):
        counts.setdefault(name, {})[str(word)] = number
    return [
        TestRecord(
            row.output,
            row.verdict,
            dict(
                sorted(counts[row.output].items(), key=lambda item: _WORST_OUTCOME.get(item[0], 0))
            ),
            row.seed,
            row.repeat,
            row.statistics or {},
        )
        for row in rows
    ]
