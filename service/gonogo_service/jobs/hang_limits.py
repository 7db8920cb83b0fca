"""The seconds that a seed is expected to take; gonogo.spec.hang_limits makes a limit of them."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.hang_limits import is_guessed_well
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.states import JobState
from gonogo_service.results.rollups.figures import figure
from gonogo_service.results.rollups.tallies import DURATION, WHOLE
from gonogo_service.results.rows import JobTallyRow


def measured_seed_s(session: Session, workload_key: str, executor: str) -> float | None:
    """Return the mean seconds per seed of a workload's last job on an executor, if there is one."""
    table = JobTallyRow
    query = (
        select(table.figures)
        .join(JobRow, JobRow.id == table.job_id)
        .where(JobRow.workload_key == workload_key, JobRow.executor == executor)
        .where(JobRow.state.in_((JobState.finished, JobState.cancelled)))
        .where(table.output == WHOLE, table.shadow.is_(False), table.seeds > table.empty)
    )
    figures = session.scalar(query.order_by(JobRow.id.desc()).limit(1))
    mean_ms = figure(figures or {}, DURATION)
    return max(mean_ms / 1000, 1e-4) if mean_ms else None


def expected_seed_s(
    session: Session, workload_key: str, executor: str, guess_s: float
) -> float | None:
    """Return what a seed is expected to take; None where there is only a guess that may be bad."""
    measured = measured_seed_s(session, workload_key, executor)
    return guess_s if measured is None and is_guessed_well(executor) else measured
