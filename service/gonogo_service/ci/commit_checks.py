"""Runs that a delivery started, with repository, commits and pull request for the answer."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gonogo_service.ci.model import CommitCheckRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import HookSource, RunState
from gonogo_service.suites.model import RunJobRow, RunRow


@dataclass(frozen=True)
class CommitCheck:
    """One suite that a rule started for one delivery (`suite` null: the rule's gauges)."""

    id: str
    delivery: str
    source: HookSource
    """"github" or "ci": only the first can be answered at GitHub."""
    event: str
    rule: str
    suite: str | None
    suite_key: str | None
    """Hash of the suite's content."""
    repository: str
    """"owner/name", where statuses and comments go.

    For a pull request it is the repository that the request is made to.
    """
    installation: int | None
    """The installation of the GitHub App; null: a plain webhook of the repository."""
    branch: str | None
    pull_request: int | None
    fork: bool
    head_sha: str
    base_sha: str | None
    head_build: str | None
    base_build: str | None
    run: str | None
    base_run: str | None
    gauges: list[str]
    error: str | None
    """Why the head's run (run null) or the base's (base_run null) could not start"""
    occurred_at: datetime
    created_at: datetime


def add(session: Session, values: dict[str, Any], *, now: datetime | None = None) -> CommitCheck:
    """Store a commit check: CommitCheck's fields without id and created_at.

    It replaces the one of an earlier try of its delivery.
    """
    values = {**values, "gauges": list(values.get("gauges", ()))}
    query = select(CommitCheckRow).where(
        CommitCheckRow.delivery == values["delivery"], CommitCheckRow.rule == values["rule"]
    )
    row = session.scalars(
        query.where(CommitCheckRow.suite.is_not_distinct_from(values["suite"]))
    ).first()
    if row is None:
        row = CommitCheckRow(id=new_id(), created_at=now or utcnow(), **values)
        session.add(row)
    for name, value in values.items():
        setattr(row, name, value)
    session.flush()
    return _commit_check(row)


def get(session: Session, commit_check_id: str) -> CommitCheck | None:
    """Return one commit check, or None."""
    row = session.get(CommitCheckRow, commit_check_id) if is_id(commit_check_id) else None
    return None if row is None else _commit_check(row)


def of_run(session: Session, run_id: str, *, limit: int | None = None) -> list[CommitCheck]:
    """Return the commit checks that a run is for, oldest first.

    It may be the run of the head or of the base; a run may serve several.
    """
    query = (
        select(CommitCheckRow)
        .where(or_(CommitCheckRow.run == run_id, CommitCheckRow.base_run == run_id))
        .order_by(CommitCheckRow.id)
    )
    return [_commit_check(row) for row in session.scalars(query.limit(limit))]


def run_of_job(session: Session, job_id: str) -> str | None:
    """Return the run that a job belongs to, or None."""
    return (
        session.scalar(select(RunJobRow.run_id).where(RunJobRow.job_id == job_id))
        if is_id(job_id)
        else None
    )


def run_states(
    session: Session, run_ids: Collection[str]
) -> dict[str, tuple[RunState, str | None]]:
    """Return run -> (its state, its verdict), for the runs that exist."""
    query = select(RunRow.id, RunRow.state, RunRow.verdict).where(RunRow.id.in_(run_ids))
    return {run: (RunState(state), verdict) for run, state, verdict in session.execute(query)}


def of_head(session: Session, repository: str, head_sha: str) -> list[CommitCheck]:
    """Return the checks that were started for a commit, oldest first."""
    query = (
        select(CommitCheckRow)
        .where(CommitCheckRow.repository == repository, CommitCheckRow.head_sha == head_sha)
        .order_by(CommitCheckRow.id)
    )
    return [_commit_check(row) for row in session.scalars(query)]


def for_pull_request(
    session: Session, repository: str, head_sha: str, pull_request: int, rule: str
) -> bool:
    """Return whether a rule has started a check of a commit for a pull request."""
    of_commit = (
        CommitCheckRow.repository == repository,
        CommitCheckRow.head_sha == head_sha,
        CommitCheckRow.rule == rule,
    )
    return (
        session.scalar(
            select(CommitCheckRow.id)
            .where(*of_commit, CommitCheckRow.pull_request == pull_request)
            .limit(1)
        )
        is not None
    )


def newest_of(session: Session, repository: str, pull_request: int) -> list[CommitCheck]:
    """Return the commit checks of a pull request's newest head: its one comment reports them.

    Newest means by the sender's clock, then by arrival.
    """
    query = (
        select(CommitCheckRow)
        .where(CommitCheckRow.repository == repository, CommitCheckRow.pull_request == pull_request)
        .order_by(CommitCheckRow.occurred_at.desc(), CommitCheckRow.id.desc())
    )
    newest = session.scalars(query.limit(1)).first()
    if newest is None:
        return []
    rows = session.scalars(query.where(CommitCheckRow.head_sha == newest.head_sha)).all()
    newest_by_suite: dict[tuple[str, str | None], CommitCheck] = {}
    for row in rows:
        newest_by_suite.setdefault((row.rule, row.suite), _commit_check(row))
    return sorted(newest_by_suite.values(), key=lambda check: check.id)


def of_delivery(session: Session, delivery_id: str) -> list[CommitCheck]:
    """Return the commit checks that a delivery started."""
    query = (
        select(CommitCheckRow)
        .where(CommitCheckRow.delivery == delivery_id)
        .order_by(CommitCheckRow.id)
    )
    return [_commit_check(row) for row in session.scalars(query)]


def list_(
    session: Session,
    *,
    repository: str | None = None,
    pull_request: int | None = None,
    run: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[CommitCheck]:
    """Return commit checks, newest first. Raises BadCursor."""
    query = select(CommitCheckRow)
    if run is not None:
        if not is_id(run):
            return Page((), None)
        query = query.where(or_(CommitCheckRow.run == run, CommitCheckRow.base_run == run))
    filters = {CommitCheckRow.repository: repository, CommitCheckRow.pull_request: pull_request}
    return newest_first(
        session,
        query,
        CommitCheckRow.id,
        _commit_check,
        limit=limit,
        cursor=cursor,
        filters=filters,
    )


def started(
    session: Session, repository: str, sha: str, *, rule: str, suite_key: str, build: str
) -> str | None:
    """Return the newest run of a rule's suite on a commit's build, from any delivery, or None.

    Cancelled runs don't count: they say nothing of the commit.
    """
    of_suite = (
        CommitCheckRow.repository == repository,
        CommitCheckRow.rule == rule,
        CommitCheckRow.suite_key == suite_key,
    )
    columns = (
        (CommitCheckRow.run, CommitCheckRow.head_sha, CommitCheckRow.head_build),
        (CommitCheckRow.base_run, CommitCheckRow.base_sha, CommitCheckRow.base_build),
    )
    newest_runs: list[str] = []
    for run, commit, build_column in columns:
        query = (
            select(run)
            .join(RunRow, RunRow.id == run)
            .where(*of_suite, commit == sha, build_column == build)
        )
        cancelled = (RunState.cancelling.value, RunState.cancelled.value)
        newest = session.scalar(
            query.where(RunRow.state.not_in(cancelled)).order_by(run.desc()).limit(1)
        )
        if newest is not None:
            newest_runs.append(newest)
    return max(newest_runs, default=None)


def newest_head(
    session: Session, repository: str, pull_request: int, rule: str
) -> CommitCheck | None:
    """Return the check that a rule started last for a pull request, by the sender's clock."""
    query = (
        select(CommitCheckRow)
        .where(
            CommitCheckRow.repository == repository,
            CommitCheckRow.pull_request == pull_request,
            CommitCheckRow.rule == rule,
        )
        .order_by(CommitCheckRow.occurred_at.desc(), CommitCheckRow.id.desc())
        .limit(1)
    )
    row = session.scalars(query).first()
    return None if row is None else _commit_check(row)


def _commit_check(row: CommitCheckRow) -> CommitCheck:
    return from_object(CommitCheck, row, source=HookSource(row.source))
