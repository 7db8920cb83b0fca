"""What GitHub was told of each commit_check: which answers are due, what was taken, and the comments
that are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session, aliased

from gonogo_storage.db.dialect import insert_once, upsert
from gonogo_storage.db.encoding import storable, timestamp, utcnow
from gonogo_storage.db.ids import floor, is_id
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import AnswerState, HookSource, RunState
from gonogo_storage.tables import AnswerRow, CommentRow, CommitCheckRow, RunRow

YOUNG = timedelta(days=1)
"""Older commit_checks that have no answer get none: a token that is set at last must not tell of the
whole past."""
MOST_ERROR = 500
_RUNNING = (RunState.running, RunState.cancelling)


@dataclass(frozen=True)
class Answer:
    """How far the answer about a commit_check has come."""

    commit_check_id: str
    state: AnswerState
    told: Mapping[str, str]
    check_id: int | None
    tries: int
    error: str | None
    due_at: datetime | None
    created_at: datetime
    updated_at: datetime

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "commit_check": self.commit_check_id,
            "state": self.state.value,
            "told": sorted(self.told),
            "check": self.check_id,
            "tries": self.tries,
            "error": self.error,
            "due_at": timestamp(self.due_at),
            "created_at": timestamp(self.created_at),
            "updated_at": timestamp(self.updated_at),
        }


@dataclass(frozen=True)
class About:
    """An answer and what it is about."""

    answer: Answer
    repository: str
    head_sha: str
    pull_request: int | None
    event: str
    rule: str
    suite: str | None
    run_id: str | None

    def to_json(self) -> dict[str, Any]:
        """Plain JSON."""
        told = self.answer.to_json()
        own = ("repository", "head_sha", "pull_request", "event", "rule", "suite")
        return {
            "commit_check": told["commit_check"],
            **{name: getattr(self, name) for name in own},
            "run": self.run_id,
            **told,
        }


def enlist(session: Session, *, now: datetime | None = None) -> int:
    """Every young commit_check that GitHub asked about is to be answered; how many are new."""
    now = now or utcnow()
    query = (
        select(CommitCheckRow.id)
        .outerjoin(AnswerRow, AnswerRow.commit_check_id == CommitCheckRow.id)
        .where(
            CommitCheckRow.id >= floor(now - YOUNG),
            CommitCheckRow.source == HookSource.github.value,
            AnswerRow.commit_check_id.is_(None),
        )
        .order_by(CommitCheckRow.id)
    )
    fresh: dict[str, Any] = {
        "state": AnswerState.waiting.value,
        "told": {},
        "check_id": None,
        "tries": 0,
        "error": None,
    }
    rows = [
        {"commit_check_id": each, **fresh, "due_at": now, "created_at": now, "updated_at": now}
        for each in session.scalars(query)
    ]
    insert_once(session, AnswerRow, rows)
    return len(rows)


def anything(session: Session, *, now: datetime | None = None) -> bool:
    """Whether `enlist` would find something: asked first, as it costs no write."""
    now = now or utcnow()
    query = select(CommitCheckRow.id).outerjoin(
        AnswerRow, AnswerRow.commit_check_id == CommitCheckRow.id
    )
    query = query.where(
        CommitCheckRow.id >= floor(now - YOUNG),
        CommitCheckRow.source == HookSource.github.value,
        AnswerRow.commit_check_id.is_(None),
    )
    return session.scalar(query.limit(1)) is not None


def due(session: Session, *, now: datetime | None = None, limit: int = 50) -> list[str]:
    """The commit_checks about which GitHub is to be told something now, the longest due first; those
    that wait for a run are left out.
    """
    head, base = aliased(RunRow), aliased(RunRow)
    over = and_(
        or_(head.id.is_(None), head.state.not_in(_RUNNING)),
        or_(base.id.is_(None), base.state.not_in(_RUNNING)),
    )
    query = (
        select(AnswerRow.commit_check_id)
        .join(CommitCheckRow, CommitCheckRow.id == AnswerRow.commit_check_id)
        .outerjoin(head, head.id == CommitCheckRow.run_id)
        .outerjoin(base, base.id == CommitCheckRow.base_run_id)
        .where(
            AnswerRow.due_at <= (now or utcnow()),
            or_(AnswerRow.state != AnswerState.pending.value, over),
        )
        .order_by(AnswerRow.due_at, AnswerRow.commit_check_id)
        .limit(limit)
    )
    return list(session.scalars(query))


def get(session: Session, commit_check_id: str) -> Answer | None:
    """The answer about a commit_check, or None."""
    row = session.get(AnswerRow, commit_check_id) if is_id(commit_check_id) else None
    return None if row is None else _answer(row)


def about(session: Session, commit_check_id: str) -> About:
    """An answer that is there, with its commit_check."""
    return _about(
        *session.execute(_joined().where(AnswerRow.commit_check_id == commit_check_id)).one()
    )


def list_(
    session: Session, *, state: str | None = None, limit: int = 50, cursor: str | None = None
) -> Page[About]:
    """Answers, those about the newest commit_checks first. Raises BadCursor."""
    query = _joined().order_by(AnswerRow.commit_check_id.desc()).limit(limit + 1)
    if state is not None:
        query = query.where(AnswerRow.state == state)
    if cursor is not None:
        if not is_id(cursor):
            raise BadCursor(cursor)
        query = query.where(AnswerRow.commit_check_id < cursor)
    return Page.cut(
        [_about(*row) for row in session.execute(query)],
        limit,
        lambda item: item.answer.commit_check_id,
    )


def took(
    session: Session, commit_check_id: str, part: str, digest: str, *, check_id: int | None = None
) -> None:
    """GitHub took a part of the answer (status, check, comment)."""
    row = session.get_one(AnswerRow, commit_check_id, with_for_update=True, populate_existing=True)
    row.told = {**row.told, part: digest}
    row.check_id = check_id or row.check_id
    row.tries, row.error, row.updated_at = 0, None, utcnow()
    session.flush()


def goes_on(
    session: Session, commit_check_id: str, state: AnswerState, *, due_at: datetime | None
) -> None:
    """All parts are told as they are now; `due_at` None: for good."""
    row = session.get_one(AnswerRow, commit_check_id, with_for_update=True, populate_existing=True)
    row.state, row.due_at, row.error, row.tries, row.updated_at = (
        state.value,
        due_at,
        None,
        0,
        utcnow(),
    )
    session.flush()


def postponed(
    session: Session,
    commit_check_id: str,
    error: str,
    *,
    due_at: datetime | None,
    counts: bool = True,
) -> None:
    """Something could not be told: why, and when to try again (None: never). A rate limit doesn't
    count as a failure.
    """
    row = session.get_one(AnswerRow, commit_check_id, with_for_update=True, populate_existing=True)
    row.error, row.due_at, row.updated_at = (storable(error) or "")[:MOST_ERROR], due_at, utcnow()
    row.tries += int(counts)
    if due_at is None:
        row.state = AnswerState.failed.value
    session.flush()


def again(session: Session, commit_check_id: str, *, now: datetime | None = None) -> Answer | None:
    """Tell it once more, whole and as it is now; None if there is no such answer."""
    row = (
        session.get(AnswerRow, commit_check_id, with_for_update=True, populate_existing=True)
        if is_id(commit_check_id)
        else None
    )
    if row is None:
        return None
    now = now or utcnow()
    row.state, row.told, row.tries, row.error, row.due_at, row.updated_at = (
        AnswerState.waiting.value,
        {},
        0,
        None,
        now,
        now,
    )
    session.flush()
    return _answer(row)


def superseded(session: Session, commit_check_id: str) -> bool:
    """Whether a later commit_check asks for the same: of one commit, rule, suite, kind of event and pull
    request the last one counts.
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


def outshone(session: Session, commit_check_id: str) -> bool:
    """Whether the status of its commit is another pull request's, which has the same head: GitHub
    keeps one status of a name.
    """
    return (
        session.scalar(_later(session.get_one(CommitCheckRow, commit_check_id)).limit(1))
        is not None
    )


def _later(row: CommitCheckRow) -> Select[str]:
    """Later commit_checks with the same name at GitHub."""
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
    """The number of our comment on a pull request, and the hash of its text; None before there is
    one.
    """
    row = session.get(CommentRow, (repository, pull_request))
    return None if row is None else (row.comment_id, row.told)


def commented(
    session: Session, repository: str, pull_request: int, comment_id: int, told: str
) -> None:
    """Our comment is this one, and says that."""
    key = {"repository": repository, "pull_request": pull_request}
    upsert(
        session,
        CommentRow,
        [{**key, "comment_id": comment_id, "told": told, "updated_at": utcnow()}],
    )


def _joined() -> Select[AnswerRow, CommitCheckRow]:
    return select(AnswerRow, CommitCheckRow).join(
        CommitCheckRow, CommitCheckRow.id == AnswerRow.commit_check_id
    )


def _about(row: AnswerRow, commit_check: CommitCheckRow) -> About:
    return About(
        _answer(row),
        **{
            name: getattr(commit_check, name)
            for name in About.__dataclass_fields__
            if name != "answer"
        },
    )


def _answer(row: AnswerRow) -> Answer:
    values = {name: getattr(row, name) for name in Answer.__dataclass_fields__}
    return Answer(**{**values, "state": AnswerState(row.state)})
