"""Read models of the page of reports to GitHub on the runs that its webhooks started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import words
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.states import AnswerState
from gonogo_storage.messages import github_answers


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


@dataclass(frozen=True)
class AnswersView:
    """A page of reports; those on the newest commit checks come first."""

    items: tuple[AnswerLine, ...]
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    at: str | None


def answers(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> AnswersView:
    """Return a page of reports to GitHub. Raises gonogo_storage.db.paging.BadCursor."""
    state = filters.get("state", "")
    given = {"state": state} if state in set(AnswerState) else {}
    page = github_answers.list_(
        session, state=given.get("state"), limit=limit, cursor=cursor or None
    )
    next_url = urls.answers(given, cursor=page.next) if page.next else None
    return AnswersView(
        tuple(_answer(answer.to_json(), now) for answer in page.items),
        given,
        page.next,
        next_url,
        timestamp(now),
    )


def _answer(item: Mapping[str, Any], now: datetime) -> AnswerLine:
    same = (
        "commit_check",
        "repository",
        "head_sha",
        "pull_request",
        "event",
        "rule",
        "suite",
        "run",
        "state",
        "tries",
        "error",
        "due_at",
    )
    state = AnswerState(item["state"])
    return AnswerLine(
        **{name: item[name] for name in same},
        run_url=urls.run(item["run"]) if item["run"] else None,
        state_words=words.ANSWERS[state].words,
        verdict=words.ANSWERS[state].verdict,
        reported=tuple(item["told"]),
        due_words=words.until(item["due_at"], now),
        updated_at=item["updated_at"],
        age=words.since(item["updated_at"], now),
        again=urls.answer_again(item["commit_check"]),
    )
