"""The tests of a selection's job, each with its outcomes over all iterations. Reads only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Integer, case, func, select, type_coerce
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobRow
from gonogo_service.results.model import WHOLE, ResultRow

_OUTCOMES = ("error", "crash", "hang", "failed", "skipped", "not_run", "passed")
"""Worst first."""
_RANK = case({name: rank for rank, name in enumerate(_OUTCOMES)}, value=ResultRow.outcome, else_=0)


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


def census(session: Session, job: JobRow) -> dict[tuple[str, str | None], int]:
    """Count the seeds of a kernel's job, or a selection's tests, by (verdict, outcome).

    A selection's tests count once for each iteration; an iteration without any counts once.
    """
    if not job.is_selection:
        return {(verdict, None): number for verdict, number in job.counts.items()}
    table = ResultRow
    counted = (table.outcome.is_not(None)) | (table.output == WHOLE)
    query = select(table.verdict, table.outcome, func.count())
    query = query.where(table.job_id == job.id, counted).group_by(table.verdict, table.outcome)
    return {(verdict, outcome): number for verdict, outcome, number in session.execute(query)}


def tests(
    session: Session, job_id: str, limit: int, *, skip: int, search: str
) -> tuple[list[TestRecord], int]:
    """Return the worst `limit` tests of a job after the first `skip`, and the number of all.

    Only those count whose names hold the text of `search`, whatever the case of ASCII letters.

    The order is the worst verdict, then the worst outcome (red before green), then the name.
    """
    table = ResultRow
    of_tests = [table.job_id == job_id, table.outcome.is_not(None)]
    if search:
        text = search.encode().lower().decode()  # ASCII alone, as by the databases' lower()
        of_tests.append(func.lower(table.output).contains(text, autoescape=True))
    badness = func.min(type_coerce(table.verdict, Integer) * len(_OUTCOMES) + _RANK).label(
        "badness"
    )
    listed = select(table.output, badness).where(*of_tests).group_by(table.output)
    total = session.scalar(select(func.count()).select_from(listed.subquery())) or 0
    page = listed.order_by("badness", table.output).offset(skip).limit(limit)
    names = [name for name, _ in session.execute(page)]
    counts: dict[str, dict[str, int]] = {name: {} for name in names}
    shown = *of_tests, table.output.in_(names)
    query = select(table.output, table.outcome, func.count()).where(*shown)
    query = query.group_by(table.output, table.outcome).order_by(func.min(_RANK))
    for name, outcome, number in session.execute(query):
        counts[name][str(outcome)] = number
    order = table.verdict, _RANK, table.seed, table.repeat
    rank = func.row_number().over(partition_by=table.output, order_by=order).label("rank")
    columns = table.output, table.verdict, table.outcome, table.seed, table.repeat, table.notes
    worst = select(*columns, rank).where(*shown).subquery()
    records = {
        name: TestRecord(
            name, verdict, counts[name], seed, repeat, {**(notes or {}), "outcome": outcome}
        )
        for name, verdict, outcome, seed, repeat, notes, _ in session.execute(
            select(worst).where(worst.c.rank == 1)
        )
    }
    return [records[name] for name in names], total
