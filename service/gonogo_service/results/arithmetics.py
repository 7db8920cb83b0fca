"""The arithmetics that explain stored seeds, by job and output. Bounded reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from gonogo.flakiness.arithmetic_changes import Programs
from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.spec.verdicts import Explanation
from gonogo_service.kit.database.paging import batched
from gonogo_service.results import seeds as stored
from gonogo_service.results.model import ResultRow, SourceRow

MAX_SEEDS = 64
"""The first (seed, repeat) of each job that are read: enough for a majority."""
_AT_ONCE = 500


def of_job(session: Session, job_id: str) -> tuple[OutputArithmetic, ...]:
    """Return the arithmetics of each output of a job, by name; of its first MAX_SEEDS."""
    table = ResultRow
    first = table.job_id == job_id, table.arrival <= MAX_SEEDS, table.arithmetic.is_not(None)
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for seed in stored.read(session, *first, statistics=arithmetic_words.READ, by="arrival"):
        for output, judged in seed.outputs.items():
            rows.setdefault(output, []).append(judged)
    return tuple(arithmetic_words.of_output(output, rows[output]) for output in sorted(rows))


def of_jobs(
    session: Session,
    job_ids: Sequence[str],
    *,
    min_elements: int = 0,
    without: Collection[str] = (),
) -> dict[str, dict[str, Programs]]:
    """Return job -> output -> the number of seeds that each arithmetic explains.

    Jobs and outputs without any are left out. Of each job the first MAX_SEEDS (seed, repeat) are
    read. min_elements: outputs with fewer are left out. without: devices whose seeds are left out.
    """
    table = ResultRow
    by = table.job_id, table.output, table.arithmetic
    explained = table.explanation == Explanation.explained.value, table.arithmetic.is_not(None)
    query = select(*by, func.count()).where(table.arrival <= MAX_SEEDS, *explained)
    if min_elements:
        query = query.where(table.notes["count"].as_integer() >= min_elements)
    if without:
        device = SourceRow.device
        query = query.join(SourceRow, stored.OF_SOURCE)
        query = query.where(or_(device.is_(None), device.not_in(list(without))))
    jobs: dict[str, dict[str, dict[str, int]]] = {}
    for batch in batched(list(job_ids), _AT_ONCE):
        for job, output, name, number in session.execute(
            query.where(table.job_id.in_(batch)).group_by(*by)
        ):
            jobs.setdefault(job, {}).setdefault(output, {})[str(name)] = number
    return {job: dict(outputs) for job, outputs in jobs.items()}
