"""Tests ever submitted, and what their jobs found: per build for a test, over time for a subject."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.dialect import insert_once
from storage.encoding import timestamp
from storage.ids import is_id
from storage.paging import BadCursor, Page
from storage.states import JobKind, JobState
from storage.tables import JobRow, RollupRow, TestSpecRow

METRICS = ("tolerance_ratio", "budget_ratio", "chi", "max_abs", "rms", "pcc_deficit", "row_z", "xhat_z", "scale_z")


def ensure(session: Session, *, key: str, subject_key: str, kernel: str, canonical: dict[str, Any], now: datetime) -> None:
    """Store a test unless it is there."""
    insert_once(
        session, TestSpecRow, [{"key": key, "subject_key": subject_key, "kernel": kernel, "canonical": canonical, "created_at": now}]
    )


def get(session: Session, key: str) -> dict[str, Any] | None:
    """A test: {"key", "subject_key", "kernel", "test", "created_at"}, or None."""
    row = session.get(TestSpecRow, key)
    return None if row is None else _spec(row)


def list_(session: Session, *, limit: int = 50, cursor: str | None = None, kernel: str | None = None) -> Page[dict[str, Any]]:
    """Tests in the order of their keys."""
    query = select(TestSpecRow).order_by(TestSpecRow.key).limit(limit + 1)
    if cursor is not None:
        query = query.where(TestSpecRow.key > cursor)
    if kernel is not None:
        query = query.where(TestSpecRow.kernel == kernel)
    return Page.cut([_spec(row) for row in session.scalars(query)], limit, lambda item: str(item["key"]))


def builds_of(session: Session, key: str) -> list[dict[str, Any]]:
    """What a test did on each build, newest build first: verdicts over its finished jobs, the statistics per output.

    [{"build", "line", "sequence", "jobs", "seeds", "counts": {verdict: n}, "outputs": {output: {metric: value}}, "last_job", "last_at"}]
    """
    found: dict[str, dict[str, Any]] = {}
    jobs = session.execute(
        select(JobRow.id, JobRow.build, JobRow.build_line, JobRow.build_sequence, JobRow.done, JobRow.counts, JobRow.finished_at)
        .where(JobRow.test_key == key, JobRow.state == JobState.finished, JobRow.kind == JobKind.seeds)
        .order_by(JobRow.build_sequence.desc(), JobRow.id)
    )
    for job_id, build, line, sequence, done, counts, at in jobs:
        entry = found.setdefault(
            build,
            {
                "build": build,
                "line": line,
                "sequence": sequence,
                "jobs": 0,
                "seeds": 0,
                "counts": {},
                "outputs": {},
                "last_job": None,
                "last_at": None,
            },
        )
        entry["jobs"] += 1
        entry["seeds"] += done
        entry["counts"] = {verdict: entry["counts"].get(verdict, 0) + counts.get(verdict, 0) for verdict in [*entry["counts"], *counts]}
        entry["last_job"], entry["last_at"] = job_id, timestamp(at)
    columns = [func.avg(getattr(RollupRow, m)) if m in {"rms", "pcc_deficit"} else func.max(getattr(RollupRow, m)) for m in METRICS]
    query = select(RollupRow.build, RollupRow.output, *columns).where(RollupRow.test_key == key).group_by(RollupRow.build, RollupRow.output)
    for build, output, *values in session.execute(query):
        if build in found:
            found[build]["outputs"][output] = dict(zip(METRICS, values, strict=True))
    return list(found.values())


def history(session: Session, subject_key: str, *, limit: int = 200, cursor: str | None = None) -> Page[dict[str, Any]]:
    """Every closed job of a subject, newest first, whatever its tolerance: what a history chart draws. Raises BadCursor.

    Items: {"job", "test_key", "build", "line", "sequence", "verdict", "counts", "seeds", "at", "outputs": {output: {metric: value}}}.
    """
    query = select(JobRow).where(JobRow.subject_key == subject_key, JobRow.state.in_((JobState.finished, JobState.cancelled)))
    query = query.where(JobRow.kind == JobKind.seeds)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(JobRow.id < cursor)
    jobs = list(session.scalars(query.order_by(JobRow.id.desc()).limit(limit + 1)))
    outputs: dict[str, dict[str, dict[str, Any]]] = {}
    for row in session.scalars(select(RollupRow).where(RollupRow.job_id.in_([job.id for job in jobs]))):
        outputs.setdefault(row.job_id, {})[row.output] = {metric: getattr(row, metric) for metric in METRICS}
    items = [
        {
            "job": job.id,
            "test_key": job.test_key,
            "build": job.build,
            "line": job.build_line,
            "sequence": job.build_sequence,
            "verdict": job.verdict,
            "counts": job.counts,
            "seeds": job.done,
            "at": timestamp(job.finished_at),
            "outputs": outputs.get(job.id, {}),
        }
        for job in jobs
    ]
    return Page.cut(items, limit, lambda item: str(item["job"]))


def subject(session: Session, subject_key: str) -> list[dict[str, Any]]:
    """The tests of a subject (the same but for the tolerance), oldest first; empty when there is none."""
    query = select(TestSpecRow).where(TestSpecRow.subject_key == subject_key).order_by(TestSpecRow.created_at, TestSpecRow.key)
    return [_spec(row) for row in session.scalars(query)]


def _spec(row: TestSpecRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "subject_key": row.subject_key,
        "kernel": row.kernel,
        "test": row.canonical,
        "created_at": timestamp(row.created_at),
    }
