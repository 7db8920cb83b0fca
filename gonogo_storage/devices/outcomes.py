"""Numbers of results by test, build and device, for judging devices."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from gonogo.devices.suspicion import WorkloadRuns
from gonogo.spec.verdicts import Verdict
from gonogo_storage.db.ids import floor
from gonogo_storage.seed_rows.stored import OF_SOURCE
from gonogo_storage.tables import JobRow, SeedResultRow, SeedSourceRow

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

    It counts the jobs created since then; a result is one (seed, repeat).
    """
    row = SeedResultRow
    device = SeedSourceRow.device
    wrong = func.sum(case((row.verdict.in_(_RIGHT), 0), else_=1))
    query = (
        select(device, JobRow.workload_key, JobRow.build, func.count(), wrong)
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
