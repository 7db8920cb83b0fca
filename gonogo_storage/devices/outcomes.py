"""What came out where: seeds by test, build and device, for judging devices."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import case, func, select
from sqlalchemy.orm import Session

from gonogo.devices.suspicion import Tried
from gonogo.spec.verdicts import Verdict
from gonogo_storage.db.ids import floor
from gonogo_storage.tables import JobRow, SeedResultRow

_WELL = (Verdict.pass_.value, Verdict.fail_by_tolerance.value)
"""What a device got right: explained by rounding, whatever the test's tolerance says of it."""
_SILENT = (
    Verdict.skipped.value,
    Verdict.not_run.value,
    Verdict.inconclusive.value,
    Verdict.not_judged.value,
)
MOST_ROWS = 20_000


def by_device(session: Session, *, since: datetime) -> list[Tried]:
    """Of jobs made since then: how many rows (one per output of a seed) each device has of each
    test and build, and how many not right.
    """
    row = SeedResultRow
    wrong = func.sum(case((row.seed_verdict.in_(_WELL), 0), else_=1))
    query = (
        select(row.device, JobRow.workload_key, JobRow.build, func.count(), wrong)
        .join(JobRow, row.job_id == JobRow.id)
        # an id holds its time: without it every result ever stored would be walked through
        .where(
            row.job_id >= floor(since),
            JobRow.created_at >= since,
            row.device.is_not(None),
            row.seed_verdict.not_in(_SILENT),
        )
        .group_by(row.device, JobRow.workload_key, JobRow.build)
        .limit(MOST_ROWS)
    )
    found = session.execute(query)
    return [
        Tried(str(device), workload, build, int(runs), int(failures))
        for device, workload, build, runs, failures in found
    ]
