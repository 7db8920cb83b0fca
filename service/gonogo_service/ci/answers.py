"""The SQL of answers to GitHub: which are due, what GitHub accepted, and our comments."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Select, and_, or_, select
from sqlalchemy.orm import Session

from gonogo_service.ci.model import AnswerRow, CommentRow, CommitCheckRow
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.states import AnswerState, RunState
from gonogo_service.kit.outbox.model import MAX_REASON_CHARS
from gonogo_service.suites.model import RunRow

OPEN_RUN = (RunState.running, RunState.cancelling)


def add(session: Session, commit_check_id: str) -> None:
    """Report a commit check to GitHub; one that is there is due again."""
    row = AnswerRow.locked(session, commit_check_id, ended=True)
    if row is not None:
        row.due_at = utcnow()
        return
    fresh = {"id": commit_check_id, "key": commit_check_id, "topic": "github"}
    AnswerRow.add(session, [{**fresh, "updated_at": utcnow()}])


def get(session: Session, commit_check_id: str) -> AnswerRow | None:
    """Return the answer about a commit check, or None."""
    return session.get(AnswerRow, commit_check_id) if is_id(commit_check_id) else None


def accepted(
    session: Session, commit_check_id: str, part: str, digest: str, *, check: int | None = None
) -> None:
    """Record that GitHub accepted a part of the answer (status, check, comment)."""
    row = AnswerRow.locked(session, commit_check_id, ended=True)
    if row is not None:
        row.sent_digests = {**row.sent_digests, part: digest}
        row.check = check or row.check
        row.tries, row.error = 0, None


def reported(
    session: Session, commit_check_id: str, state: AnswerState, *, again_at: datetime | None
) -> None:
    """Record that all parts are reported.

    `again_at` None: there is nothing more to report, or a run is still open (see `run_ended`).
    """
    row = AnswerRow.locked(session, commit_check_id, ended=True)
    if row is not None:
        row.state, row.due_at, row.error, row.tries = state.value, again_at, None, 0
        if state is AnswerState.pending and again_at is None and not _has_open_run(session, row):
            row.due_at = utcnow()  # it ended meanwhile


def run_ended(session: Session, run_id: str) -> None:
    """Make the answers due that waited for the end of a run, and wait for no other."""
    check = CommitCheckRow
    ids = select(check.id).where(or_(check.run == run_id, check.base_run == run_id))
    query = select(AnswerRow.id).where(
        AnswerRow.id.in_(ids), AnswerRow.state == AnswerState.pending.value
    )
    for commit_check_id in session.scalars(query).all():
        row = AnswerRow.locked(session, commit_check_id, ended=True)
        if row is not None and not _has_open_run(session, row):
            row.due_at = utcnow()


def _has_open_run(session: Session, row: AnswerRow) -> bool:
    runs = [run for run in (row.about.run, row.about.base_run) if run is not None]
    query = select(RunRow.id).where(RunRow.id.in_(runs), RunRow.state.in_(OPEN_RUN))
    return session.scalars(query.limit(1)).first() is not None


def limited(session: Session, commit_check_id: str, error: str, until: datetime) -> None:
    """Wait for the end of a rate limit, which is no failed try."""
    row = AnswerRow.locked(session, commit_check_id)
    if row is not None:
        row.error, row.due_at = error[:MAX_REASON_CHARS], until


def again(session: Session, commit_check_id: str) -> AnswerRow | None:
    """Report everything again in its present state; None if there is no such answer."""
    row = AnswerRow.locked(session, commit_check_id, ended=True)
    if row is not None:
        row.repeat()
        row.sent_digests, row.tries = {}, 0
        session.flush()
    return row


def superseded(session: Session, check: CommitCheckRow) -> bool:
    """Return whether a later commit check covers the same work.

    The last one counts for each commit, rule, suite, kind of event and pull request.
    """
    same = CommitCheckRow.pull_request.is_not_distinct_from(check.pull_request)
    return session.scalar(_later(check).where(same).limit(1)) is not None


def status_taken(session: Session, check: CommitCheckRow) -> bool:
    """Return whether another pull request with the same head has set the commit's status.

    GitHub keeps one status per name and commit.
    """
    return session.scalar(_later(check).limit(1)) is not None


def _later(check: CommitCheckRow) -> Select[str]:
    """Return the query of later commit checks with the same name at GitHub."""
    other = CommitCheckRow
    names = ("repository", "head_sha", "rule", "event", "source")
    same = [getattr(other, name) == getattr(check, name) for name in names]
    later = or_(
        other.occurred_at > check.occurred_at,
        and_(other.occurred_at == check.occurred_at, other.id > check.id),
    )
    return select(other.id).where(*same, other.suite.is_not_distinct_from(check.suite), later)


def comment_of(session: Session, repository: str, pull_request: int) -> CommentRow | None:
    """Return our comment on a pull request, or None."""
    return session.get(CommentRow, (repository, pull_request))


def commented(
    session: Session, repository: str, pull_request: int, comment_id: int, digest: str
) -> None:
    """Store the number of our comment and the hash of its text."""
    session.merge(
        CommentRow(
            repository=repository,
            pull_request=pull_request,
            comment_id=comment_id,
            digest=digest,
            updated_at=utcnow(),
        )
    )
