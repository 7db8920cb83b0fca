"""Reads of gauges for the API, and the sharpness of a test by its last gauge."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from gonogo.gauge.rates import Rate
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.ids import is_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import JobState
from gonogo_storage.tables import GaugeRow, JobRow, TestSpecRow


def get(session: Session, gauge_id: str) -> dict[str, Any] | None:
    """Return a gauge with its report, or None."""
    if not is_id(gauge_id):
        return None
    query = _joined().where(GaugeRow.id == gauge_id)
    row = session.execute(query).one_or_none()
    if row is None:
        return None
    gauge, job, canonical = row
    return {
        **_summary(gauge, job, canonical),
        "elsewhere": gauge.elsewhere,
        "parts": gauge.parts,
        "report": gauge.report,
    }


def list_(
    session: Session,
    *,
    test: str | None = None,
    state: str | None = None,
    sharpness: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[dict[str, Any]]:
    """Return gauges without their reports, newest first. Raises BadCursor."""
    query = _joined().options(
        defer(GaugeRow.report), defer(GaugeRow.parts), defer(GaugeRow.elsewhere)
    )
    for column, value in (
        (GaugeRow.test_key, test),
        (JobRow.state, state),
        (GaugeRow.sharpness, sharpness),
    ):
        if value is not None:
            query = query.where(column == value)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(GaugeRow.id < cursor)
    rows = session.execute(query.order_by(GaugeRow.id.desc()).limit(limit + 1)).all()
    return Page.cut([_summary(*row) for row in rows], limit, lambda item: str(item["id"]))


def last(
    session: Session, test_key: str, branch: str, arch: str, board: str
) -> dict[str, Any] | None:
    """Return {"id", "finished_at", "report"} of a variant's last finished gauge, or None.

    The gauge is chosen as in `sharpness_of`.
    """
    query = select(GaugeRow.id, JobRow.finished_at, GaugeRow.report).join(
        JobRow, JobRow.id == GaugeRow.id
    )
    query = query.where(
        GaugeRow.test_key == test_key, GaugeRow.arch == arch, GaugeRow.board == board
    )
    query = query.where(JobRow.state == JobState.finished, GaugeRow.report.is_not(None))
    row = session.execute(
        query.order_by((GaugeRow.branch == branch).desc(), GaugeRow.id.desc()).limit(1)
    ).one_or_none()
    return (
        None
        if row is None
        else {"id": row.id, "finished_at": timestamp(row.finished_at), "report": row.report}
    )


def sharpness_of(
    session: Session, test_key: str, branch: str, arch: str, board: str
) -> dict[str, Rate]:
    """Return {mutant: how often it passed the test} by the last finished gauge; {} without one.

    A gauge of this branch counts before a newer one of another branch. The gauge measures the test,
    but a branch may have its own kernels.
    """
    query = (
        select(GaugeRow.misses)
        .join(JobRow, JobRow.id == GaugeRow.id)
        .where(
            GaugeRow.test_key == test_key,
            GaugeRow.arch == arch,
            GaugeRow.board == board,
            JobRow.state == JobState.finished,
        )
        .order_by((GaugeRow.branch == branch).desc(), GaugeRow.id.desc())
        .limit(1)
    )
    return {name: Rate(count, of) for name, (count, of) in (session.scalar(query) or {}).items()}


def _joined() -> Any:
    query = select(GaugeRow, JobRow, TestSpecRow.canonical).join(JobRow, JobRow.id == GaugeRow.id)
    return query.join(TestSpecRow, TestSpecRow.key == GaugeRow.test_key)


def _summary(gauge: GaugeRow, job: JobRow, canonical: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": gauge.id,
        "state": job.state,
        "error": job.error,
        "waiting_reason": job.waiting_reason,
        "version": job.version,
        "owner": job.owner,
        "test": canonical,
        "test_key": gauge.test_key,
        "workload_key": job.workload_key,
        "kernel": job.kernel,
        "branch": gauge.branch,
        "target": {"arch": gauge.arch, "board": gauge.board},
        "seeds": gauge.seeds,
        "search": gauge.search,
        "total": job.total,
        "done": gauge.done,
        "chunks": {"total": job.chunk_count, "open": job.open_chunks},
        "sharpness": gauge.sharpness,
        "words": gauge.words,
        "created_at": timestamp(job.created_at),
        "deadline_at": timestamp(job.deadline_at),
        "started_at": timestamp(job.started_at),
        "finished_at": timestamp(job.finished_at),
    }
