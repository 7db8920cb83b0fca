"""The SQL of commit checks: what a delivery started, for which commit and pull request."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, false, or_, select
from sqlalchemy.orm import Session

from gonogo_service.ci.model import CommitCheckRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.states import RunState
from gonogo_service.suites.model import RunJobRow, RunRow

C = CommitCheckRow
NEWEST = (C.occurred_at.desc(), C.id.desc())
"""By the sender's clock, then by arrival."""


def add(session: Session, values: dict[str, Any]) -> CommitCheckRow:
    """Store a commit check: its columns without id and created_at.

    It replaces the one of an earlier try of its delivery.
    """
    values = {**values, "gauges": list(values.get("gauges", ()))}
    same = (C.delivery == values["delivery"], C.rule == values["rule"])
    query = select(C).where(*same, C.suite.is_not_distinct_from(values["suite"]))
    row = session.scalars(query).first()
    if row is None:
        row = CommitCheckRow(id=new_id(), created_at=utcnow())
        session.add(row)
    for name, value in values.items():
        setattr(row, name, value)
    session.flush()
    return row


def get(session: Session, commit_check_id: str) -> CommitCheckRow | None:
    """Return one commit check, or None."""
    return session.get(C, commit_check_id) if is_id(commit_check_id) else None


def of_run(session: Session, run_id: str, *, limit: int | None = None) -> Sequence[CommitCheckRow]:
    """Return the commit checks that a run is for, oldest first; a run may serve several."""
    return session.scalars(select(C).where(is_of_run(run_id)).order_by(C.id).limit(limit)).all()


def of_head(session: Session, repository: str, head_sha: str) -> Sequence[CommitCheckRow]:
    """Return the checks that were started for a commit, oldest by the sender's clock first."""
    query = select(C).where(C.repository == repository, C.head_sha == head_sha)
    return session.scalars(query.order_by(C.occurred_at, C.id)).all()


def of_delivery(session: Session, delivery_id: str) -> Sequence[CommitCheckRow]:
    """Return the commit checks that a delivery started."""
    return session.scalars(select(C).where(C.delivery == delivery_id).order_by(C.id)).all()


def of_pull_request(session: Session, repository: str, number: int) -> list[CommitCheckRow]:
    """Return the newest check of each suite on a pull request's newest head.

    The pull request's one comment reports them.
    """
    query = select(C).where(C.repository == repository, C.pull_request == number).order_by(*NEWEST)
    newest = session.scalars(query.limit(1)).first()
    if newest is None:
        return []
    by_suite: dict[tuple[str, str | None], CommitCheckRow] = {}
    for row in session.scalars(query.where(C.head_sha == newest.head_sha)):
        by_suite.setdefault((row.rule, row.suite), row)
    return sorted(by_suite.values(), key=lambda check: check.id)


def newest_head(
    session: Session, repository: str, pull_request: int, rule: str, sha: str | None = None
) -> CommitCheckRow | None:
    """Return the check that a rule started last for a pull request (and the commit `sha`)."""
    where = [C.repository == repository, C.pull_request == pull_request, C.rule == rule]
    where += [] if sha is None else [C.head_sha == sha]
    return session.scalars(select(C).where(*where).order_by(*NEWEST).limit(1)).first()


def started(
    session: Session, repository: str, sha: str, *, rule: str, suite_key: str, build: str
) -> str | None:
    """Return the newest run of a rule's suite on a commit's build, from any delivery, or None.

    Canceled runs don't count: they say nothing of the commit.
    """
    canceled = (RunState.cancelling, RunState.cancelled)
    newest: list[str] = []
    for run, commit, build_column in (
        (C.run, C.head_sha, C.head_build),
        (C.base_run, C.base_sha, C.base_build),
    ):
        query = select(run).join(RunRow, RunRow.id == run).where(C.repository == repository)
        query = query.where(C.rule == rule, C.suite_key == suite_key, commit == sha)
        query = query.where(build_column == build, RunRow.state.not_in(canceled))
        newest += session.scalars(query.order_by(run.desc()).limit(1))
    return max(newest, default=None)


def run_of_job(session: Session, job_id: str) -> str | None:
    """Return the run that a job belongs to, or None."""
    query = select(RunJobRow.run_id).where(RunJobRow.job_id == job_id)
    return session.scalar(query) if is_id(job_id) else None


def run_states(
    session: Session, run_ids: Collection[str]
) -> dict[str, tuple[RunState, str | None]]:
    """Return run -> (its state, its verdict), for the runs that exist."""
    query = select(RunRow.id, RunRow.state, RunRow.verdict).where(RunRow.id.in_(run_ids))
    return {run: (RunState(state), verdict) for run, state, verdict in session.execute(query)}


def is_of_run(run_id: str) -> ColumnElement[bool]:
    """Return the condition of the commit checks that a run is for."""
    return or_(C.run == run_id, C.base_run == run_id) if is_id(run_id) else false()
