"""After how many seconds a seed is a hang: the limit follows what a seed takes."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.spec.executors import EXECUTORS
from gonogo_storage.db.states import JobState
from gonogo_storage.rollups.figures import figure
from gonogo_storage.rollups.tallies import DURATION, WHOLE
from gonogo_storage.tables import JobRow, JobTallyRow

FACTOR = 20.0
"""Times the expected seconds of a seed: a device that others share is rarely 10 times slower."""
LEAST_S = 30.0
"""No limit is shorter: a machine that swaps, or reads from the network, stands still this long."""
FIRST_CALL_S = 120.0
"""In addition for the first seed of a child, whose call may compile the kernel."""


def of(seed_s: float | None, most_s: float) -> tuple[float, float]:
    """Return the limits of a seed, and of the first seed of a fresh child; at most `most_s` each.

    seed_s: what a seed is expected to take; None if nobody knows, which leaves it at `most_s`.
    """
    if seed_s is None:
        return most_s, most_s
    limit = max(LEAST_S, FACTOR * seed_s)
    return min(limit, most_s), min(limit + FIRST_CALL_S, most_s)


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
    """Return what a seed is expected to take; None where there is only a guess.

    Own executors' kernels on a CPU are guessed well enough from their size. Nobody can guess tests
    that exist already, the executors of others, and chips, since a simulated one takes minutes.
    """
    measured = measured_seed_s(session, workload_key, executor)
    known = EXECUTORS.get(executor)
    return guess_s if measured is None and known is not None and not known.on_chips else measured
