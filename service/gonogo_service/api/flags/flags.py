"""Flags: findings about tests that need attention."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.api import idempotency_keys
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    extend_page,
    make_router,
    missing,
    require,
)
from gonogo_service.kit.problems import BadField, WrongField, wrong_field
from gonogo_service.kit.strict import Moment, Strict
from gonogo_storage.db.paging import Page
from gonogo_storage.db.records import from_object
from gonogo_storage.db.states import FlagKind, FlagState
from gonogo_storage.flags import flag_changes
from gonogo_storage.flags import flags as stored
from gonogo_storage.flags.flags import Flag, FlagSummary, FlagWithHistory

router = make_router("flags")
MAX_REASON = 2000
MAX_OWNER = 100
MAX_AT_ONCE = 200


class FlagFields(Strict):
    """The fields to change; omitted fields stay.

    Only a job that finds it again sets a flag to `reopened`; people set a resolved flag to `open`.
    Acknowledgements expire, and the flag is then open again.
    """

    state: Literal["open", "acknowledged", "resolved"] = Field("open")
    owner: Annotated[str, Field(min_length=1, max_length=MAX_OWNER)] | None = None
    reason: Annotated[str, Field(min_length=1, max_length=MAX_REASON)] | None = None
    expires: Moment | None = Field(
        None, description="RFC 3339 with a time zone; only for an acknowledgement"
    )


class FlagChange(FlagFields):
    """A change of one flag."""

    version: int | None = Field(
        None, ge=1, description="Rejected with 409 if the flag has a newer version"
    )


class FlagsChange(FlagFields):
    """The same change of several flags."""

    ids: list[Annotated[str, Field(max_length=36)]] = Field(min_length=1, max_length=MAX_AT_ONCE)


@dataclass(frozen=True)
class ListedFlag(FlagSummary):
    """A flag in a list. `GET /flags/{id}` has its evidence and its history."""

    sentence: str | None
    """The finding in words"""
    diagnosis: str | None
    """The fault of the kernel, where its numbers show one"""


def _listed(flag: Flag) -> ListedFlag:
    sentence = flag.evidence.get("words") or flag.evidence.get("sentence")
    diagnosis = flag.evidence.get("diagnosis")
    return from_object(ListedFlag, flag, sentence=sentence, diagnosis=diagnosis)


@dataclass(frozen=True)
class FlagBefore:
    """A flag's fields before a change, as needed to undo it."""

    state: FlagState
    owner: str | None
    reason: str | None
    expires_at: datetime | None


@dataclass(frozen=True)
class FlagOutcome:
    """The outcome for one flag: `changed`, `same`, `refused` (see `problem`) or `missing`."""

    id: str
    outcome: Literal["changed", "same", "refused", "missing"]
    state: FlagState | None
    version: int | None
    before: FlagBefore | None
    problem: WrongField | None


@dataclass(frozen=True)
class FlagsChanged:
    """The outcomes for all flags in the order of the request, each ID once."""

    changed: int
    items: list[FlagOutcome]


@router.get("/flags", summary="List flags, newest first")
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
) -> Page[ListedFlag]:
    """List flags that match all filters.

    `state=open` includes reopened flags. `job` and `build` are those of the newest evidence.
    """
    filters: dict[str, Any] = {
        "kind": kind,
        "state": state,
        "test": test,
        "job": job,
        "owner": owner,
        "build": build,
    }
    with context.reading() as session:
        page = stored.list_(session, **filters, limit=limit, cursor=cursor)
        return extend_page(page, _listed)


@router.get("/flags/{flag_id}", summary="Show a flag")
def look(context: Ctx, _who: Reader, flag_id: str) -> FlagWithHistory:
    """Show a flag with its evidence and its newest 200 changes."""
    with context.reading() as session:
        return require(stored.look(session, flag_id), "flag", flag_id)


@router.patch("/flags/{flag_id}", summary="Acknowledge, resolve or reopen a flag")
def change(context: Ctx, who: Submitter, flag_id: str, body: FlagChange) -> FlagWithHistory:
    """Set any of state, owner, reason and expires; `version` makes the change conditional."""
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
                "is outdated: the flag was changed",
                limit=problem.current,
                status=409,
            ) from problem
    if flag is None:
        raise missing("flag", flag_id)
    return flag


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
    """Set any of state, owner, reason and expires of up to 200 flags in one transaction.

    A flag that can't be changed doesn't block the others: each has an outcome. History, audit and
    webhooks are as for one flag. The same request again changes nothing.
    """
    fields = body.model_dump(exclude_unset=True)
    ids = fields.pop("ids")
    if not fields:
        raise BadField(
            "body", {}, "nothing to change", limit="any of state, owner, reason, expires"
        )

    def make(session: Session) -> idempotency_keys.Answer:
        outcomes = flag_changes.change_many(session, ids, fields, actor=who.actor)
        changed = sum(outcome.outcome == "changed" for outcome in outcomes)
        return 200, FlagsChanged(changed, [_outcome(outcome) for outcome in outcomes]), {}

    fields_sent = body.model_dump(mode="json", exclude_unset=True)
    return idempotency_keys.once(context, request, who, key, fields_sent, make, counted=False)[0]


def _outcome(outcome: flag_changes.Outcome) -> FlagOutcome:
    problem, flag, before = outcome.problem, outcome.flag, outcome.before
    return FlagOutcome(
        id=outcome.id,
        outcome=outcome.outcome,
        state=None if flag is None else flag.state,
        version=None if flag is None else flag.version,
        before=None if before is None else from_object(FlagBefore, before),
        problem=None
        if problem is None
        else wrong_field(problem.field, problem.value, problem.reason, problem.limit),
    )
