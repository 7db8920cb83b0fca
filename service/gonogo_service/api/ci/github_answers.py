"""Answers to GitHub about the runs that deliveries started: their state, errors, and resending."""

from __future__ import annotations

from typing import Any

from fastapi import Response
from pydantic import BaseModel, Field

from gonogo_service.access.context import Admin, Ctx, Reader
from gonogo_service.kit.answers import Cursor, Limit, answer, answer_page, make_router, missing
from gonogo_storage.access import audit
from gonogo_storage.db.states import AnswerState
from gonogo_storage.messages import github_answers
from gonogo_storage.messages.github_answers import About

router = make_router("github")


class AnswerOut(BaseModel):
    """The answer to GitHub about a commit check.

    `told` are the parts that GitHub accepted: status, check, comment.
    """

    commit_check: str
    repository: str
    head_sha: str
    pull_request: int | None
    event: str
    rule: str
    suite: str | None
    run: str | None
    state: AnswerState
    accepted_parts: list[str] = Field(alias="told")
    check: int | None = Field(description="GitHub's number of the check run")
    tries: int = Field(description="Failed tries since GitHub accepted a part")
    error: str | None
    due_at: str | None
    created_at: str
    updated_at: str


class AnswerPage(BaseModel):
    """A page of answers, those about the newest commit checks first."""

    items: list[AnswerOut]
    next: str | None


@router.get(
    "/github/answers",
    responses={200: {"model": AnswerPage}},
    response_class=Response,
    summary="List answers to GitHub, newest first",
)
def list_answers(
    context: Ctx,
    _who: Reader,
    state: AnswerState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List commit checks with the state of their answers to GitHub."""
    with context.reading() as session:
        return answer_page(
            github_answers.list_(session, state=state, limit=limit, cursor=cursor), About.to_json
        )


@router.post(
    "/github/answers/{commit_check}:again",
    status_code=202,
    responses={202: {"model": AnswerOut}},
    response_class=Response,
    summary="Send an answer to GitHub again",
)
def send_again(context: Ctx, who: Admin, commit_check: str) -> Response:
    """Send the complete answer as of now, with acknowledged flags and rejudged jobs."""
    with context.session() as session:
        if github_answers.again(session, commit_check) is None:
            raise missing("answer", commit_check)
        current: dict[str, Any] = github_answers.about(session, commit_check).to_json()
        audit.record(session, actor=who.actor, action="answer.again", subject=commit_check)
    return answer(current, 202)
