"""The arithmetic models of stored seeds, by job and output. Bounded reads.

A model was found by replay, or is a budget that its build names (gonogo.judging).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Integer, cast, func, or_, select
from sqlalchemy.orm import Session

from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_names import ALIASES, BUDGETS
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.spec.builds import known_build
from gonogo_storage.tables import BuildRow, JobRow, SeedResultRow

MAX_SEEDS = 64
"""The first (seed, repeat) of each job whose programs are counted: enough for a majority."""
SHOWN_SEEDS = 200
"""Seeds of a job whose programs its page shows."""
BUDGET_SEEDS = 8
"""The same where its build names a budget: all seeds have that model, and nearly equal limits."""
_AT_ONCE = 500

Programs = dict[str | None, int]


@dataclass(frozen=True)
class JobPrograms:
    """The number of seeds of a job by program, for each output.

    Attributes:
        outputs: output -> the programs that name its arithmetic; None: none reproduces it.
        others: output -> the other programs that explain it, too.
    """

    outputs: dict[str, Programs] = field(default_factory=dict)
    others: dict[str, Programs] = field(default_factory=dict)


def of_job(session: Session, job_id: str) -> tuple[OutputArithmetic, ...]:
    """Return the arithmetic models of each output of a job, by name.

    Outputs that a budget rules have one where it explains them. The first seeds to arrive count, at
    most SHOWN_SEEDS, or BUDGET_SEEDS of a build that names a budget.
    """
    table = SeedResultRow
    most = BUDGET_SEEDS if _names_budget(session, job_id) else SHOWN_SEEDS
    query = (
        select(table.output, table.arithmetic, table.statistics)
        .where(table.job_id == job_id, table.arrival <= most, table.output != "")
        .order_by(table.arrival, table.output)
    )
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for output, named, statistics in session.execute(query):
        known = arithmetic_words.with_model(statistics or {}, named)
        if known is not None:
            rows.setdefault(output, []).append(known)
    return tuple(arithmetic_words.of_output(output, rows[output]) for output in sorted(rows))


def of_jobs(
    session: Session,
    job_ids: Sequence[str],
    *,
    min_elements: int = 0,
    without: Collection[str] = (),
) -> dict[str, JobPrograms]:
    """Return the programs of jobs, by job.

    Only replayed seeds count. Jobs and outputs without any are left out. Of each job the first
    MAX_SEEDS (seed, repeat) are read. min_elements: outputs with fewer are left out. without:
    devices whose seeds are left out.
    """
    table = SeedResultRow
    statistics = table.statistics
    jobs: dict[str, JobPrograms] = {}
    for ids in _parts(list(job_ids)):
        rows = select(
            table.job_id,
            table.output,
            statistics["arithmetic"].as_string().label("program"),
            statistics[arithmetic_words.OTHERS].as_string().label("others"),
        ).where(
            table.job_id.in_(ids),
            table.arrival <= MAX_SEEDS,
            table.output != "",
            _without_budget(),
            statistics["nearest_arithmetic"].as_string().is_not(None),
            cast(statistics["count"].as_string(), Integer) >= min_elements,
        )
        if without:
            rows = rows.where(or_(table.device.is_(None), table.device.not_in(list(without))))
        part = rows.subquery()
        axes = (part.c.job_id, part.c.output, part.c.program, part.c.others)
        for job_id, output, program, others, seeds in session.execute(
            select(*axes, func.count()).group_by(*axes)
        ):
            job = jobs.setdefault(job_id, JobPrograms())
            _count(job.outputs, output, program, seeds)
            for name in json.loads(others or "[]"):
                _count(job.others, output, name, seeds)
    return jobs


def _count(counts: dict[str, Programs], output: str, program: str | None, seeds: int) -> None:
    programs = counts.setdefault(output, {})
    programs[program] = programs.get(program, 0) + seeds


def _names_budget(session: Session, job_id: str) -> bool:
    """Return whether a job's build names a budget as its arithmetic model."""
    job = session.get(JobRow, job_id)
    if job is None:
        return False
    known = known_build(job.build, job.executor)
    if known is not None and known.arithmetic in BUDGETS:
        return True
    named = select(BuildRow.arithmetic).where(
        BuildRow.name == job.build, BuildRow.executor == job.executor
    )
    return session.scalar(named) in BUDGETS


def _without_budget() -> Any:
    """Return the condition that selects seeds whose build names no budget.

    Older seeds may have the names of former budgets. It is checked before any JSON is read.
    """
    return SeedResultRow.arithmetic.not_in((*BUDGETS, *ALIASES))


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _AT_ONCE):
        yield ids[start : start + _AT_ONCE]
