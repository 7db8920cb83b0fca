"""The stages of a staged suite's job: their status, and regressions since earlier jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.spec.stages import JobStages, StageTable, combined, regression_words, regressions
from gonogo_service.jobs.model import ArtifactRow, JobRow
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests.model import TestSpecRow

KIND = "stages"
"""The kind of a worker's artifact with one iteration's gonogo.spec.stages.StageTable."""
MAX_EARLIER = 100
"""Maximum number of earlier jobs that are read."""


def of_job(session: Session, job_id: str) -> JobStages | None:
    """Return the stages of a job; None if it has none.

    A stage has the worst status of all iterations so far. `regressions` are the stages that don't
    pass in this job but passed in an earlier one: a finished job of the same suite and branch, of
    an earlier build, or earlier with the same build.
    """
    query = select(ArtifactRow.content).where(
        ArtifactRow.job_id == job_id, ArtifactRow.kind == KIND
    )
    contents = session.scalars(query.order_by(ArtifactRow.seed, ArtifactRow.repeat))
    tables = [table for table in map(_read, contents) if table]
    if not tables:
        return None
    table = combined(tables)
    lost = regressions(_earlier(session, session.get_one(JobRow, job_id)), table)
    words = " ".join(filter(None, (table.words, regression_words(lost))))
    blocker = None if table.blocker is None else table.blocker.name
    return JobStages(list(table.stages), blocker, words, list(lost))


def _earlier(session: Session, job: JobRow) -> list[tuple[str, StageTable]]:
    """Return (build, table) of the earlier jobs that `job` is compared with, the newest last."""
    specs = session.execute(
        select(TestSpecRow.key, TestSpecRow.test).where(TestSpecRow.kernel == job.kernel)
    )
    canonical = {row.key: row.test for row in specs}
    suite = _suite(canonical[job.test_key])
    keys = [key for key, test in canonical.items() if _suite(test) == suite]
    before = or_(
        JobRow.build_sequence < job.build_sequence,
        and_(JobRow.build_sequence == job.build_sequence, JobRow.id < job.id),
    )
    query = (
        select(JobRow.build, JobRow.diagnosis)
        .where(
            JobRow.test_key.in_(keys),
            JobRow.executor == job.executor,
            JobRow.branch == job.branch,
        )
        .where(JobRow.state == JobState.finished, JobRow.id != job.id, before)
        .order_by(JobRow.build_sequence.desc(), JobRow.id.desc())
        .limit(MAX_EARLIER)
    )
    newest_first = [
        (row.build, _read(row.diagnosis and row.diagnosis.stages and asdict(row.diagnosis.stages)))
        for row in session.execute(query)
    ]
    return [(build, table) for build, table in reversed(newest_first) if table is not None]


def _suite(canonical: Mapping[str, Any]) -> Any:
    selection = canonical.get("selection")
    return selection.get("suite") if isinstance(selection, Mapping) else None


def _read(content: Any) -> StageTable | None:
    """Return a stored table; None if a newer version wrote it and this one can't read it."""
    try:
        return StageTable.parse(content) if content else None
    except FieldError:
        return None
