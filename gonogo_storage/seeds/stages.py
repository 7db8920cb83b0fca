"""The stages of a job of a staged suite: the table of all its iterations, and what has gone
backwards since earlier jobs of the suite.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import and_, or_, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.spec.stages import StageTable, combined, regression_words, regressions
from gonogo_storage.db.states import JobState
from gonogo_storage.tables import ArtifactRow, JobRow, TestSpecRow

KIND = "stages"
"""The kind of the artifact in which a worker sends the table of one iteration
(gonogo.spec.stages.StageTable.to_json)."""
MAX_EARLIER = 100
"""Jobs that are looked at for a stage that passed once."""


def of_job(session: Session, job_id: str) -> dict[str, Any] | None:
    """{"stages", "blocker", "words", "regressions"} of the iterations so far; None for a job that
    has no stages.

    A stage has its worst status of all iterations. `regressions` are the stages that passed in a
    finished job of the same suite on the same branch, of an earlier build or earlier on the
    same one, and aren't passed in this job.
    """
    query = select(ArtifactRow.content).where(
        ArtifactRow.job_id == job_id, ArtifactRow.kind == KIND
    )
    tables = [
        found
        for content in session.scalars(query.order_by(ArtifactRow.seed, ArtifactRow.repeat))
        if (found := _read(content))
    ]
    if not tables:
        return None
    table = combined(tables)
    lost = regressions(_earlier(session, session.get_one(JobRow, job_id)), table)
    words = " ".join(filter(None, (table.words, regression_words(lost))))
    return {**table.to_json(), "words": words, "regressions": [each.to_json() for each in lost]}


def _earlier(session: Session, job: JobRow) -> list[tuple[str, StageTable]]:
    """The tables of the jobs that `job` can be compared with, the newest last, each with its
    build.
    """
    specs = session.execute(
        select(TestSpecRow.key, TestSpecRow.canonical).where(TestSpecRow.kernel == job.kernel)
    )
    canonical = {row.key: row.canonical for row in specs}
    suite = _suite(canonical[job.test_key])
    keys = [key for key, each in canonical.items() if _suite(each) == suite]
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
        (row.build, _read((row.diagnosis or {}).get("stages"))) for row in session.execute(query)
    ]
    return [(build, table) for build, table in reversed(newest_first) if table is not None]


def _suite(canonical: Mapping[str, Any]) -> Any:
    selection = canonical.get("selection")
    return selection.get("suite") if isinstance(selection, Mapping) else None


def _read(content: Any) -> StageTable | None:
    """A stored table; None for what a newer version wrote and this one can't read."""
    try:
        return StageTable.parse(content) if content else None
    except FieldError:
        return None
