"""The arithmetic models of stored seeds, by job and output. Bounded reads.

A model was found by replay, or is a budget that its build names (gonogo.judging).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gonogo.spec import arithmetic_words
from gonogo.spec.arithmetic_names import ALIASES, BUDGETS
from gonogo.spec.arithmetic_words import OutputArithmetic
from gonogo.spec.builds import known_build
from gonogo_storage.db.paging import batched
from gonogo_storage.seed_rows import slots, stored
from gonogo_storage.tables import BuildRow, JobRow, SeedResultRow, SeedSourceRow

MAX_SEEDS = 64
"""The first (seed, repeat) of each job whose programs are counted: enough for a majority."""
SHOWN_SEEDS = 200
"""Seeds of a job whose programs its page shows."""
BUDGET_SEEDS = 8
"""The same where its build names a budget: all seeds have that model, and nearly equal limits."""
_READ = ("arithmetic", "nearest_arithmetic", "count", arithmetic_words.OTHERS)
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
    query = stored.query(table.job_id == job_id, table.arrival <= most).order_by(table.arrival)
    rows: dict[str, list[Mapping[str, Any]]] = {}
    has_numbers = slots.with_numbers(session, [job_id])
    for seed in stored.read(session, query, *arithmetic_words.READ) if has_numbers else ():
        for output, judged in seed.outputs.items():
            known = arithmetic_words.with_model(judged, seed.arithmetic)
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
    jobs: dict[str, JobPrograms] = {}
    for batch in batched(list(job_ids), _AT_ONCE):
        source = SeedSourceRow.job_id
        ids = session.scalars(select(source).where(source.in_(batch), _without_budget())).all()
        if not ids:  # no seed of these jobs was replayed
            continue
        query = stored.query(table.job_id.in_(ids), table.arrival <= MAX_SEEDS, _without_budget())
        if without:
            device = SeedSourceRow.device
            query = query.where(or_(device.is_(None), device.not_in(list(without))))
        for seed in stored.read(session, query, *_READ):
            for output, judged in seed.outputs.items():
                elements = judged.get("count", -1)
                if judged.get("nearest_arithmetic") is None or elements < min_elements:
                    continue
                job = jobs.setdefault(seed.job, JobPrograms())
                _count(job.outputs, output, judged.get("arithmetic"))
                for name in judged.get(arithmetic_words.OTHERS) or ():
                    _count(job.others, output, name)
    return jobs


def _count(counts: dict[str, Programs], output: str, program: str | None) -> None:
    programs = counts.setdefault(output, {})
    programs[program] = programs.get(program, 0) + 1


def _names_budget(session: Session, job_id: str) -> bool:
    """Return whether a job's build names a budget as its arithmetic model."""
    query = select(JobRow.build, JobRow.executor).where(JobRow.id == job_id)
    job = session.execute(query).one_or_none()
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

    Older seeds may have the names of former budgets.
    """
    return SeedSourceRow.arithmetic.not_in((*BUDGETS, *ALIASES))
