"""Flags: findings about tests that wait for someone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from service.api.answers import Cursor, Filter, Limit, Strict, answer, answer_page, make_router, missing
from service.context import Ctx, Reader, Submitter
from service.problems import BadField
from storage import audit, flag_changes
from storage import flags as stored
from storage.states import FlagKind, FlagState

router = make_router("flags")
MAX_REASON = 2000


class FlagOut(BaseModel):
    """A flag with its evidence."""

    id: str
    kind: FlagKind
    state: FlagState
    test_key: str
    subject_key: str
    kernel: str
    build: str
    build_line: str
    arch: str
    board: str
    owner: str | None
    reason: str | None
    evidence: dict[str, Any]
    first_job: str
    last_job: str
    jobs: int
    version: int
    opened_at: str
    updated_at: str
    expires_at: str | None


class FlagPage(BaseModel):
    """A page of flags, newest first."""

    items: list[FlagOut]
    next: str | None


class FlagChange(Strict):
    """What to change; what is left out stays. A flag is reopened by the job that finds it again, not by hand."""

    state: Literal["open", "acknowledged", "resolved"] = Field("open")
    owner: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)] | None = None


@router.get("/flags", responses={200: {"model": FlagPage}}, response_class=Response, summary="List flags, newest first")
def list_flags(
    context: Ctx,
    _who: Reader,
    kind: FlagKind | None = None,
    state: FlagState | None = None,
    test: Filter = None,
    job: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """`state=open` includes those that were reopened; `job` gives the flags whose evidence is of that job."""
    with context.reading() as session:
        return answer_page(stored.list_(session, kind=kind, state=state, test=test, job=job, limit=limit, cursor=cursor))


@router.get("/flags/{flag_id}", responses={200: {"model": FlagOut}}, response_class=Response, summary="Look at a flag")
def look(context: Ctx, _who: Reader, flag_id: str) -> Response:
    """With its evidence."""
    with context.reading() as session:
        flag = stored.get(session, flag_id)
    if flag is None:
        raise missing("flag", flag_id)
    return answer(flag)


@router.patch("/flags/{flag_id}", responses={200: {"model": FlagOut}}, response_class=Response, summary="Take on or close a flag")
def change(context: Ctx, who: Submitter, flag_id: str, body: FlagChange) -> Response:
    """Sets any of state, owner and reason."""
    fields = body.model_dump(exclude_unset=True)
    if not fields:
        raise BadField("body", {}, "nothing to change", limit="any of state, owner, reason")
    with context.session() as session:
        flag = flag_changes.change(session, flag_id, fields)
        if flag is None:
            raise missing("flag", flag_id)
        audit.record(session, actor=who.actor, action="flag.changed", subject=flag_id, detail=fields)
    return answer(flag)
