"""Flags: findings about tests that wait for someone."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.api import idempotency_keys
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.kit.problems import BadField, entry
from gonogo_service.kit.strict import Moment, Strict
from gonogo_storage.db.states import FlagKind, FlagState
from gonogo_storage.flags import flag_changes
from gonogo_storage.flags import flags as stored

router = make_router("flags")
MAX_REASON = 2000
MAX_OWNER = 100
MOST_AT_ONCE = 200


class FlagOut(BaseModel):
    """A flag with its evidence."""

    id: str
    kind: FlagKind
    state: FlagState
    test_key: str
    workload_key: str
    kernel: str
    build: str
    branch: str
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


class FlagEntry(BaseModel):
    """One change of a flag; `actor` is a token's name, or `background` for what follows from
    numbers and times.
    """

    version: int
    at: str
    actor: str
    what: Literal["opened", "reopened", "resolved", "expired", "changed"]
    before: FlagState | None
    after: FlagState
    reason: str | None
    detail: dict[str, Any] | None


class FlagWithHistory(FlagOut):
    """A flag and what happened to it, newest first."""

    history: list[FlagEntry]


class FlagPage(BaseModel):
    """A page of flags, newest first."""

    items: list[FlagOut]
    next: str | None


class FlagFields(Strict):
    """What to change; what is left out stays. A flag is reopened by the job that finds it again,
    not by hand: a person sets a resolved one to `open`. What expires is an acknowledgement: the
    flag is then open again.
    """

    state: Literal["open", "acknowledged", "resolved"] = Field("open")
    owner: Annotated[str, Field(min_length=1, max_length=MAX_OWNER)] | None = None
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)] | None = None
    expires: Moment | None = Field(
        None, description="RFC 3339 with a time zone; of an acknowledgement only"
    )


class FlagChange(FlagFields):
    """A change of one flag."""

    version: int | None = Field(
        None, ge=1, description="refused with 409 where the flag has another one by now"
    )


class FlagsChange(FlagFields):
    """A change of several flags: all become the same."""

    ids: list[Annotated[str, Field(max_length=36)]] = Field(min_length=1, max_length=MOST_AT_ONCE)


class FlagBefore(BaseModel):
    """What a flag was before a change: enough to take it back."""

    state: FlagState
    owner: str | None
    reason: str | None
    expires_at: str | None


class FlagOutcome(BaseModel):
    """What became of one flag: `changed`, `same` (it was so already), `refused` (the problem says
    why), `missing`.
    """

    id: str
    outcome: Literal["changed", "same", "refused", "missing"]
    state: FlagState | None
    version: int | None
    before: FlagBefore | None
    problem: dict[str, Any] | None = Field(
        description="field, value, limit and message, as in a problem document"
    )


class FlagsChanged(BaseModel):
    """What became of all of them, in the order of the request, each id once."""

    changed: int
    items: list[FlagOutcome]


@router.get(
    "/flags",
    responses={200: {"model": FlagPage}},
    response_class=Response,
    summary="List flags, newest first",
)
def list_flags(
    context: Ctx,
    _who: Reader,
    kind: FlagKind | None = None,
    state: FlagState | None = None,
    test: Filter = None,
    job: Filter = None,
    owner: Filter = None,
    build: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """`state=open` includes those that were reopened; `job` and `build` are those of a flag's
    newest evidence.
    """
    wanted: dict[str, Any] = {
        "kind": kind,
        "state": state,
        "test": test,
        "job": job,
        "owner": owner,
        "build": build,
    }
    with context.reading() as session:
        return answer_page(stored.list_(session, **wanted, limit=limit, cursor=cursor))


@router.get(
    "/flags/{flag_id}",
    responses={200: {"model": FlagWithHistory}},
    response_class=Response,
    summary="Look at a flag",
)
def look(context: Ctx, _who: Reader, flag_id: str) -> Response:
    """With its evidence, and its newest 200 changes."""
    with context.reading() as session:
        flag = stored.look(session, flag_id)
    if flag is None:
        raise missing("flag", flag_id)
    return answer(flag)


@router.patch(
    "/flags/{flag_id}",
    responses={200: {"model": FlagWithHistory}},
    response_class=Response,
    summary="Take on, close or open a flag",
)
def change(context: Ctx, who: Submitter, flag_id: str, body: FlagChange) -> Response:
    """Sets any of state, owner, reason and expires; `version` makes it conditional."""
    fields = body.model_dump(exclude_unset=True)
    version = fields.pop("version", None)
    if not fields:
        raise BadField(
            "body", {}, "nothing to change", limit="any of state, owner, reason, expires"
        )
    with context.session() as session:
        try:
            flag = flag_changes.change(session, flag_id, fields, actor=who.actor, version=version)
        except flag_changes.Outdated as problem:
            raise BadField(
                "version",
                problem.given,
                "the flag was changed since",
                limit=problem.found,
                status=409,
            ) from problem
    if flag is None:
        raise missing("flag", flag_id)
    return answer(flag)


@router.post(
    "/flags:change",
    responses={200: {"model": FlagsChanged}},
    response_class=Response,
    summary="Change many flags",
)
def change_many(
    context: Ctx,
    who: Submitter,
    request: Request,
    body: FlagsChange,
    key: idempotency_keys.Key = None,
) -> Response:
    """Sets any of state, owner, reason and expires of up to 200 flags in one transaction. One that
    can't be changed holds up no other: each has its outcome. History, audit and webhooks are as for
    one flag; the same again changes nothing.
    """
    fields = body.model_dump(exclude_unset=True)
    ids = fields.pop("ids")
    if not fields:
        raise BadField(
            "body", {}, "nothing to change", limit="any of state, owner, reason, expires"
        )

    def make(session: Session) -> idempotency_keys.Answer:
        found = flag_changes.change_many(session, ids, fields, actor=who.actor)
        return (
            200,
            {
                "changed": sum(each.outcome == "changed" for each in found),
                "items": [_outcome(each) for each in found],
            },
            {},
        )

    return idempotency_keys.once(
        context, request, who, key, body.model_dump(mode="json", exclude_unset=True), make
    )[0]


def _outcome(found: flag_changes.Outcome) -> dict[str, Any]:
    problem, flag, before = found.problem, found.flag or {}, found.before
    return {
        "id": found.id,
        "outcome": found.outcome,
        "state": flag.get("state"),
        "version": flag.get("version"),
        "before": None
        if before is None
        else {name: before[name] for name in FlagBefore.model_fields},
        "problem": None
        if problem is None
        else entry(problem.field, problem.value, problem.reason, problem.limit),
    }
