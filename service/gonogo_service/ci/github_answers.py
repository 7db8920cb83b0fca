"""Reports to GitHub about commit checks: which are due, what GitHub accepted, and our comments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session, aliased

from gonogo_service.ci.model import AnswerRow, CommentRow, CommitCheckRow
from gonogo_service.kit.database.dialect import insert_once, upsert
from gonogo_service.kit.database.encoding import storable, utcnow
from gonogo_service.kit.database.ids import floor, is_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import AnswerState, HookSource, RunState
from gonogo_service.kit.outbox.due import Backoff, DueTable
from gonogo_service.suites.model import RunRow

ANSWERS = DueTable(AnswerRow, Backoff((5, 30, 300, 1800, 3600, 10800, 21600, 43200), max_tries=9))
"""An answer is given up after about a day."""
YOUNG = timedelta(days=1)
"""Older commit checks without an answer get none: a new token must not report the whole past."""
MAX_ERROR_CHARS = 500
_RUNNING = (RunState.running, RunState.cancelling)


@dataclass(frozen=True)
class Answer:
    """The state of our report to GitHub about a commit check."""

    commit_check: str
    state: AnswerState
    check: int | None
    """GitHub's number of the check run"""
    tries: int
    """Failed tries since GitHub accepted a part"""
    error: str | None
    due_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class SentAnswer(Answer):
    """An answer with what GitHub last accepted of it."""

    sent_digests: Mapping[str, str]
    """Part (status, check, comment) -> hash"""


@dataclass(frozen=True)
class AnswerDetails(Answer):
    """An answer with its commit check."""

    repository: str
    head_sha: str
    pull_request: int | None
    event: str
    rule: str
    suite: str | None
    run: str | None
    accepted_parts: list[str]
    """The parts that GitHub accepted: status, check, comment"""


def create_missing(session: Session, *, now: datetime | None = None) -> int:
    """Create an answer for each recent commit check of a GitHub delivery; return how many."""
    now = now or utcnow()
    fresh: dict[str, Any] = {
        "state": AnswerState.waiting.value,
        "told": {},
        "check_id": None,
        "tries": 0,
        "error": None,
    }
    rows = [
        {
            "commit_check_id": commit_check_id,
            **fresh,
            "due_at": now,
            "created_at": now,
            "updated_at": now,
        }
        for commit_check_id in session.scalars(_missing(now))
    ]
    insert_once(session, AnswerRow, rows)
    return len(rows)


def any_missing(session: Session, *, now: datetime | None = None) -> bool:
    """Return whether `create_missing` would create an answer; this check costs no write."""
    return session.scalar(_missing(now or utcnow()).limit(1)) is not None


def _missing(now: datetime) -> Select[str]:
    """Return the query of recent commit checks of GitHub deliveries without an answer."""
    query = select(CommitCheckRow.id).outerjoin(
        AnswerRow, AnswerRow.commit_check == CommitCheckRow.id
    )
    return query.where(
        CommitCheckRow.id >= floor(now - YOUNG),
        CommitCheckRow.source == HookSource.github.value,
        AnswerRow.commit_check.is_(None),
    ).order_by(CommitCheckRow.id)


def due(session: Session, *, now: datetime | None = None, limit: int = 50) -> list[str]:
    """Return the commit checks to report to GitHub now, the longest due first.

    Those that wait for a run are left out.
    """
    head, base = aliased(RunRow), aliased(RunRow)
    over = and_(
        or_(head.id.is_(None), head.state.not_in(_RUNNING)),
        or_(base.id.is_(None), base.state.not_in(_RUNNING)),
    )
    query = (
        select(AnswerRow.commit_check)
        .join(CommitCheckRow, CommitCheckRow.id == AnswerRow.commit_check)
        .outerjoin(head, head.id == CommitCheckRow.run)
        .outerjoin(base, base.id == CommitCheckRow.base_run)
        .where(or_(AnswerRow.state != AnswerState.pending.value, over))
    )
    return list(session.scalars(ANSWERS.due(query, now=now, limit=limit)))


def get(session: Session, commit_check_id: str) -> SentAnswer | None:
    """Return the answer about a commit check, or None."""
    row = session.get(AnswerRow, commit_check_id) if is_id(commit_check_id) else None
    return None if row is None else from_object(SentAnswer, row, state=AnswerState(row.state))


def details(session: Session, commit_check_id: str) -> AnswerDetails:
    """Return an existing answer with its commit check."""
    return _details(
        *session.execute(_joined().where(AnswerRow.commit_check == commit_check_id)).one()
    )


def list_(
    session: Session, *, state: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[AnswerDetails]:
    """Return answers, those about the newest commit checks first. Raises BadCursor."""
    return newest_first(
        session,
        _joined(),
        AnswerRow.commit_check,
        _details,
        limit=limit,
        cursor=cursor,
        filters={AnswerRow.state: state},
    )


def record_accepted(
    session: Session, commit_check_id: str, part: str, digest: str, *, check_id: int | None
) -> None:
    """Record that GitHub accepted a part of the answer (status, check, comment)."""
    row = session.get_one(AnswerRow, commit_check_id, with_for_update=True, populate_existing=True)
    row.sent_digests = {**row.sent_digests, part: digest}
    row.check = check_id or row.check
    row.tries, row.error, row.updated_at = 0, None, utcnow()
    session.flush()


def record_reported(
    session: Session, commit_check_id: str, state: AnswerState, *, due_at: datetime | None
) -> None:
    """Record that all parts are reported; `due_at` None: there is nothing more to report."""
    row = session.get_one(AnswerRow, commit_check_id, with_for_update=True, populate_existing=True)
    row.state, row.due_at, row.updated_at = state.value, due_at, utcnow()
    row.error, row.tries = None, 0
    session.flush()


def postponed(
    session: Session,
    commit_check_id: str,
    error: str,
    *,
    limited_until: datetime | None = None,
    now: datetime | None = None,
) -> None:
    """Record why a report failed; it is retried, and given up at last.

    `limited_until` is the end of a rate limit, which is not a failure.
    """
    now = now or utcnow()
    row = ANSWERS.locked(session, commit_check_id)
    if row is None:
        return
    row.error, row.updated_at = (storable(error) or "")[:MAX_ERROR_CHARS], now
    if limited_until is not None:
        row.due_at = limited_until
    elif not ANSWERS.postponed(row, now=now):
        row.state = AnswerState.failed.value
    session.flush()


def again(session: Session, commit_check_id: str) -> bool:
    """Report everything again in its present state; False if there is no such answer."""
    row = ANSWERS.locked(session, commit_check_id, ended=True)
    if row is None:
        return False
    now = utcnow()
    row.state, row.due_at, row.updated_at = AnswerState.waiting.value, now, now
    row.sent_digests, row.error, row.tries = {}, None, 0
    session.flush()
    return True


def superseded(session: Session, commit_check_id: str) -> bool:
    """Return whether a later commit check covers the same work.

    The last one counts for each commit, rule, suite, kind of event and pull request.
    """
    row = session.get_one(CommitCheckRow, commit_check_id)
    return (
        session.scalar(
            _later(row)
            .where(CommitCheckRow.pull_request.is_not_distinct_from(row.pull_request))
            .limit(1)
        )
        is not None
    )


def status_taken(session: Session, commit_check_id: str) -> bool:
    """Return whether another pull request with the same head has set the commit's status.

    GitHub keeps one status per name and commit.
    """
    return (
        session.scalar(_later(session.get_one(CommitCheckRow, commit_check_id)).limit(1))
        is not None
    )


def _later(row: CommitCheckRow) -> Select[str]:
    """Return the query of later commit checks with the same name at GitHub."""
    same = (
        CommitCheckRow.rule == row.rule,
        CommitCheckRow.event == row.event,
        CommitCheckRow.suite.is_not_distinct_from(row.suite),
    )
    query = select(CommitCheckRow.id).where(
        CommitCheckRow.repository == row.repository, CommitCheckRow.head_sha == row.head_sha, *same
    )
    later = or_(
        CommitCheckRow.occurred_at > row.occurred_at,
        and_(CommitCheckRow.occurred_at == row.occurred_at, CommitCheckRow.id > row.id),
    )
    return query.where(later, CommitCheckRow.source == row.source)


def comment_of(session: Session, repository: str, pull_request: int) -> tuple[int, str] | None:
    """Return the number of our comment on a pull request and the hash of its text, or None."""
    row = session.get(CommentRow, (repository, pull_request))
    return None if row is None else (row.comment_id, row.digest)


def commented(
    session: Session, repository: str, pull_request: int, comment_id: int, digest: str
) -> None:
    """Store the number of our comment and the hash of its text."""
    key = {"repository": repository, "pull_request": pull_request}
    upsert(
        session,
        CommentRow,
        [{**key, "comment_id": comment_id, "told": digest, "updated_at": utcnow()}],
    )


def _joined() -> Select[AnswerRow, CommitCheckRow]:
    return select(AnswerRow, CommitCheckRow).join(
        CommitCheckRow, CommitCheckRow.id == AnswerRow.commit_check
    )


def _details(row: AnswerRow, commit_check: CommitCheckRow) -> AnswerDetails:
    return from_object(
        AnswerDetails,
        row,
        commit_check,
        state=AnswerState(row.state),
        accepted_parts=sorted(row.sent_digests),
    )
