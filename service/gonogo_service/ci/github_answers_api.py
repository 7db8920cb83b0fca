"""Answers to GitHub about the runs that deliveries started: their state, errors, and resending."""

from __future__ import annotations

from gonogo_service.ci import github_answers
from gonogo_service.ci.github_answers import AnswerDetails
from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Limit, make_router, missing
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.states import AnswerState
from gonogo_service.people.context import Admin, Ctx, Reader

router = make_router("github")


@router.get("/github/answers", summary="List answers to GitHub, newest first")
def list_answers(
    context: Ctx,
    _who: Reader,
    state: AnswerState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[AnswerDetails]:
    """List commit checks with the state of their answers to GitHub."""
    with context.reading() as session:
        return github_answers.list_(session, state=state, limit=limit, cursor=cursor)


@router.post(
    "/github/answers/{commit_check}:again",
    status_code=202,
    summary="Send an answer to GitHub again",
)
def send_again(context: Ctx, who: Admin, commit_check: str) -> AnswerDetails:
    """Send the complete answer as of now, with acknowledged flags and rejudged jobs."""
    with context.session() as session:
        if not github_answers.again(session, commit_check):
            raise missing("answer", commit_check)
        current = github_answers.details(session, commit_check)
        audit.record(session, actor=who.actor, action="answer.again", subject=commit_check)
    return current
