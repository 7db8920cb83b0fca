"""Read models of the page of reports to GitHub on the runs that its webhooks started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.ci.hooks_api import ANSWERS
from gonogo_service.ci.model import AnswerRow
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import AnswerState


@dataclass(frozen=True)
class AnswerLine:
    """A report to GitHub on something that its webhook started."""

    commit_check: str
    repository: str
    head_sha: str
    pull_request: int | None
    event: str
    rule: str
    suite: str | None
    run: str | None
    run_url: str | None
    state: str
    state_words: str
    verdict: str
    reported: tuple[str, ...]
    tries: int
    error: str | None
    due_at: str | None
    due_words: str
    updated_at: str
    age: str
    again: str


def answers(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of reports to GitHub. Raises gonogo_service.kit.database.paging.BadCursor."""
    state = filters.get("state", "")
    given = {"state": state} if state in set(AnswerState) else {}
    page = ANSWERS.page(session, **given, limit=limit, cursor=cursor or None)
    return list_view(page, lambda answer: _answer(answer, now), urls.answers, now, given)


def _answer(item: AnswerRow, now: datetime) -> AnswerLine:
    state = AnswerState(item.state)
    return from_object(
        AnswerLine,
        item,
        run_url=None if item.run is None else urls.run(item.run),
        state_words=state.label,
        verdict=state.mark,
        reported=tuple(item.accepted_parts),
        due_at=timestamp(item.due_at),
        due_words=words.until(item.due_at, now),
        updated_at=timestamp(item.updated_at),
        age=words.since(item.updated_at, now),
        again=urls.answer_again(item.commit_check),
    )
