"""What runs that a delivery started are for: repository, commits, pull request; so that whoever
asked can be answered.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.ids import is_id, new_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import RunState
from gonogo_storage.tables import CommitCheckRow, RunJobRow, RunRow


@dataclass(frozen=True)
class CommitCheck:
    """One suite that a rule started for one delivery (`suite` null: the rule's gauges)."""

    id: str
    delivery_id: str
    source: str
    """"github" or "ci": only the first can be answered at GitHub."""
    event: str
    rule: str
    suite: str | None
    suite_key: str | None
    """Hash of the suite's content."""
    repository: str
    """"owner/name"; of a pull request the repository that it is made to, where statuses and
    comments go."""
    installation: int | None
    """Of the GitHub App that was told; null: a plain webhook of the repository."""
    branch: str | None
    pull_request: int | None
    fork: bool
    head_sha: str
    base_sha: str | None
    head_build: str | None
    base_build: str | None
    run_id: str | None
    base_run_id: str | None
    gauges: tuple[str, ...]
    error: str | None
    """Why the head's run (run_id null) or the base's run (base_run_id null) could not be started;
    null: nothing went wrong."""
    occurred_at: datetime
    created_at: datetime

    def to_json(self) -> dict[str, Any]:
        """The commit_check as the API shows it."""
        shown = {each.name: getattr(self, each.name) for each in fields(self)}
        shown["delivery"], shown["run"], shown["base_run"] = (
            shown.pop(name) for name in ("delivery_id", "run_id", "base_run_id")
        )
        return {
            **shown,
            "gauges": list(self.gauges),
            "occurred_at": timestamp(self.occurred_at),
            "created_at": timestamp(self.created_at),
        }


def add(session: Session, values: dict[str, Any], *, now: datetime | None = None) -> CommitCheck:
    """Store a commit_check: CommitCheck's fields without id and created_at. What an earlier try of its
    delivery could not start is replaced.
    """
    values = {**values, "gauges": list(values.get("gauges", ()))}
    query = select(CommitCheckRow).where(
        CommitCheckRow.delivery_id == values["delivery_id"], CommitCheckRow.rule == values["rule"]
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
    """One commit_check, or None."""
    row = session.get(CommitCheckRow, commit_check_id) if is_id(commit_check_id) else None
    return None if row is None else _commit_check(row)


def of_run(session: Session, run_id: str, *, limit: int | None = None) -> list[CommitCheck]:
    """Whom a run is for, oldest first: as the run of the head or of the base (a run may serve
    several).
    """
    query = (
        select(CommitCheckRow)
        .where(or_(CommitCheckRow.run_id == run_id, CommitCheckRow.base_run_id == run_id))
        .order_by(CommitCheckRow.id)
    )
    return [_commit_check(row) for row in session.scalars(query.limit(limit))]


def run_of_job(session: Session, job_id: str) -> str | None:
    """The run that a job belongs to, or None."""
    return (
        session.scalar(select(RunJobRow.run_id).where(RunJobRow.job_id == job_id))
        if is_id(job_id)
        else None
    )


def standings(session: Session, run_ids: Collection[str]) -> dict[str, tuple[RunState, str | None]]:
    """Run -> its state and its verdict, of those that are there."""
    query = select(RunRow.id, RunRow.state, RunRow.verdict).where(RunRow.id.in_(run_ids))
    return {run: (RunState(state), verdict) for run, state, verdict in session.execute(query)}


def of_head(session: Session, repository: str, head_sha: str) -> list[CommitCheck]:
    """What was started for a commit, oldest first."""
    query = (
        select(CommitCheckRow)
        .where(CommitCheckRow.repository == repository, CommitCheckRow.head_sha == head_sha)
        .order_by(CommitCheckRow.id)
    )
    return [_commit_check(row) for row in session.scalars(query)]


def for_pull_request(
    session: Session, repository: str, head_sha: str, pull_request: int, rule: str
) -> bool:
    """Whether a rule has taken a commit for a pull request."""
    mine = (
        CommitCheckRow.repository == repository,
        CommitCheckRow.head_sha == head_sha,
        CommitCheckRow.rule == rule,
    )
    return (
        session.scalar(
            select(CommitCheckRow.id)
            .where(*mine, CommitCheckRow.pull_request == pull_request)
            .limit(1)
        )
        is not None
    )


def newest_of(session: Session, repository: str, pull_request: int) -> list[CommitCheck]:
    """The commit_checks of a pull request's newest head (by the sender's clock, then by arrival): those
    that its one comment tells of.
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
    found: dict[tuple[str, str | None], CommitCheck] = {}
    for row in rows:
        found.setdefault((row.rule, row.suite), _commit_check(row))
    return sorted(found.values(), key=lambda each: each.id)


def of_delivery(session: Session, delivery_id: str) -> list[CommitCheck]:
    """What a delivery started."""
    query = (
        select(CommitCheckRow)
        .where(CommitCheckRow.delivery_id == delivery_id)
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
    """Commit checks, newest first. Raises BadCursor."""
    query = select(CommitCheckRow).order_by(CommitCheckRow.id.desc()).limit(limit + 1)
    if repository is not None:
        query = query.where(CommitCheckRow.repository == repository)
    if pull_request is not None:
        query = query.where(CommitCheckRow.pull_request == pull_request)
    if run is not None:
        if not is_id(run):
            return Page((), None)
        query = query.where(or_(CommitCheckRow.run_id == run, CommitCheckRow.base_run_id == run))
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(CommitCheckRow.id < cursor)
    return Page.cut(
        [_commit_check(row) for row in session.scalars(query)], limit, lambda item: item.id
    )


def started(
    session: Session, repository: str, sha: str, *, rule: str, suite_key: str, build: str
) -> str | None:
    """The newest run of a rule's suite on a commit's build, whatever delivery it was started for;
    None when there is none.

    One that was cancelled is none: it says nothing of its commit.
    """
    mine = (
        CommitCheckRow.repository == repository,
        CommitCheckRow.rule == rule,
        CommitCheckRow.suite_key == suite_key,
    )
    ways = (
        (CommitCheckRow.run_id, CommitCheckRow.head_sha, CommitCheckRow.head_build),
        (CommitCheckRow.base_run_id, CommitCheckRow.base_sha, CommitCheckRow.base_build),
    )
    found: list[str] = []
    for run, commit, named in ways:
        query = (
            select(run).join(RunRow, RunRow.id == run).where(*mine, commit == sha, named == build)
        )
        cancelled = (RunState.cancelling.value, RunState.cancelled.value)
        newest = session.scalar(
            query.where(RunRow.state.not_in(cancelled)).order_by(run.desc()).limit(1)
        )
        if newest is not None:
            found.append(newest)
    return max(found, default=None)


def newest_head(
    session: Session, repository: str, pull_request: int, rule: str
) -> CommitCheck | None:
    """What a rule started last for a pull request, by the sender's clock."""
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
    values = {each.name: getattr(row, each.name) for each in fields(CommitCheck)}
    return CommitCheck(**{**values, "gauges": tuple(row.gauges)})
