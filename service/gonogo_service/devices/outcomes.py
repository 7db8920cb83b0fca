"""Numbers of results by test, build and device, for judging devices."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session

from gonogo.devices.suspicion import WorkloadRuns
from gonogo.spec.verdicts import Verdict
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import floor
from gonogo_service.results.model import WHOLE, JobBlockRow

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
    block = JobBlockRow
    # existing tests have no sums of their own, so their iteration counts as one result; of a
    # kernel's seed the outputs count, and a seed without any counts as one
    number = case(
        (and_(block.output == WHOLE, ~JobRow.is_selection), block.empty),
        (and_(block.output != WHOLE, JobRow.is_selection), 0),
        else_=block.n,
    )
    wrong = case((block.verdict.in_(_RIGHT), 0), else_=number)
    by = block.device, JobRow.workload_key, JobRow.build
    query = (
        select(*by, func.sum(number), func.sum(wrong))
        .join(JobRow, block.job_id == JobRow.id)
        # An id contains its time: this condition avoids reading all results.
        .where(
            block.job_id >= floor(since),
            JobRow.created_at >= since,
            block.device != "",
            block.verdict.not_in(_SILENT),
        )
        .group_by(*by)
        .having(func.sum(number) > 0)
        .limit(MAX_ROWS)
    )
    return [
        WorkloadRuns(str(device), workload, build, int(runs), int(failures))
        for device, workload, build, runs, failures in session.execute(query)
    ]
