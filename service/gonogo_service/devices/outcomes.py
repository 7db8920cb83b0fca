"""Numbers of results by test, build and device, for judging devices."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import case, func, literal, select
from sqlalchemy.orm import Session

from gonogo.devices.suspicion import WorkloadRuns
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.results.rows import SLOTS, SeedResultRow, SeedSourceRow
from gonogo_service.results.seed_rows.stored import OF_SOURCE

_RIGHT = (Verdict.pass_.value, Verdict.fail_by_tolerance.value)
"""The verdicts that a device got right: rounding explains the error, whatever the tolerance."""
_SILENT = (
    Verdict.skipped.value,
    Verdict.not_run.value,
    Verdict.inconclusive.value,
    Verdict.not_judged.value,
)
MAX_ROWS = 20_000


def by_device(session: Session, *, since: datetime) -> list[WorkloadRuns]:
    """Return the number of results, and of wrong ones, by device, test and build.

    It counts the jobs created since then; a result is one output of a seed.
    """
    row = SeedResultRow
    device = SeedSourceRow.device
    # each output has a rank; those of existing tests have none, so their iteration counts as one
    ranks = (getattr(row, f"rank_{slot}") for slot in range(SLOTS))
    outputs = sum((case((rank.is_(None), 0), else_=1) for rank in ranks), start=literal(0))
    results = case((outputs > 0, outputs), else_=1)
    wrong = func.sum(case((row.verdict.in_(_RIGHT), 0), else_=results))
    query = (
        select(device, JobRow.workload_key, JobRow.build, func.sum(results), wrong)
        .join(JobRow, row.job_id == JobRow.id)
        .join(SeedSourceRow, OF_SOURCE)
        # An id contains its time: this condition avoids reading all results.
        .where(
            row.job_id >= floor(since),
            JobRow.created_at >= since,
            device.is_not(None),
            row.verdict.not_in(_SILENT),
        )
        .group_by(device, JobRow.workload_key, JobRow.build)
        .limit(MAX_ROWS)
    )
    return [
        WorkloadRuns(str(device), workload, build, int(runs), int(failures))
        for device, workload, build, runs, failures in session.execute(query)
    ]
