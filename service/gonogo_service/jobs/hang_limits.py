"""The seconds that a seed is expected to take; gonogo.spec.hang_limits makes a limit of them."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from gonogo.spec.hang_limits import is_guessed_well
from gonogo_service.jobs.model import JobRow
from gonogo_service.results.model import WHOLE, JobBlockRow
from gonogo_service.tests.variants import OVER


def measured_seed_s(session: Session, workload_key: str, executor: str) -> float | None:
    """Return the mean seconds per seed of a workload's last job on an executor, if there is one."""
    table = JobBlockRow
    timed = table.job_id == JobRow.id, table.output == WHOLE, table.timed > 0
    mean_ms = select(func.sum(table.timed_ms) / func.sum(table.timed)).where(*timed)
    query = select(mean_ms.correlate(JobRow).scalar_subquery()).where(
        JobRow.workload_key == workload_key,
        JobRow.executor == executor,
        OVER,
        select(table.job_id).where(*timed).correlate(JobRow).exists(),
    )
    mean = session.scalar(query.order_by(JobRow.id.desc()).limit(1))
    return max(float(mean) / 1000, 1e-4) if mean else None


def expected_seed_s(
    session: Session, workload_key: str, executor: str, guess_s: float
) -> float | None:
    """Return what a seed is expected to take; None where there is only a guess that may be bad."""
    measured = measured_seed_s(session, workload_key, executor)
    return guess_s if measured is None and is_guessed_well(executor) else measured
