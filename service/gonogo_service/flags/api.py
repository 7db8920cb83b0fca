"""Flags: findings about tests that need attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags import noun, store
from gonogo_service.flags.evidence_kinds import FlagDetail, FlagEvidence
from gonogo_service.flags.model import RANK, STATES, FlagChangeRow, FlagRow
from gonogo_service.flags.noun import (
    ACKNOWLEDGED_FOR,
    FlagChange,
    FlagFields,
    FlagsChange,
    FlagState,
)
from gonogo_service.kit import idempotency, rows
from gonogo_service.kit.answers import missing
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import BadCursor, Page
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.kit.principals import Principal
from gonogo_service.kit.problems import BadField, WrongField
from gonogo_service.kit.resource import Resource
from gonogo_service.people.context import Context, Ctx, Submitter

COMPUTED: Mapping[str, Any] = {
    "effect": (
        str | None,
        "The effect of its acknowledgement on commits, and until when; null unless acknowledged",
    ),
    "sentence": (str, "The finding in words"),
    "diagnosis": (str | None, "The fault of the kernel, where its numbers show one"),
}
FLAG_SUMMARY: Any = rows.extended_answer(FlagRow, "FlagSummary", without=("evidence",), **COMPUTED)
"""A flag in a list. `GET /flags/{id}` has its evidence and its history."""
_CHANGE: Any = rows.extended_answer(
    FlagChangeRow,
    "FlagHistoryEntry",
    without=("flag_id",),
    detail=Annotated[dict[str, Any] | None, Documented(FlagDetail)],
)
FLAG = rows.extended_answer(
    FlagRow,
    "Flag",
    **COMPUTED,
    evidence=Annotated[dict[str, Any], Documented(FlagEvidence)],
    history=list[_CHANGE],
)


class _Flags(Resource[FlagRow]):
    def for_triage(
        self, session: Session, *, limit: int = 50, cursor: str | None = None, **filters: Any
    ) -> Page[FlagRow]:
        """Return flags by kind, in the order of triage, the newest of a kind first.

        The cursor is "kind.id". Raises BadCursor.
        """
        conditions = self.conditions({"state": "open", **filters})
        if conditions is None:
            return Page((), None)
        if cursor is not None:
            kind, _, after = cursor.partition(".")
            if kind not in tuple(FlagKind) or not is_id(after):
                raise BadCursor(cursor)
            rank = FlagKind(kind).rank
            conditions.append((rank < RANK) | ((rank == RANK) & (FlagRow.id < after)))
        order = RANK, FlagRow.id.desc()
        # the ids come from the index alone; rows have kilobytes of evidence
        first = select(FlagRow.id).where(*conditions).order_by(*order).limit(limit + 1)
        ids = session.scalars(first).all()
        flags = session.scalars(select(FlagRow).where(FlagRow.id.in_(ids)).order_by(*order)).all()
        return Page.cut(flags, limit, lambda flag: f"{flag.kind}.{flag.id}")


FLAGS = _Flags(
    noun.FLAGS,
    FlagRow,
    answer=FLAG,
    line=FLAG_SUMMARY,
    where={
        "state": lambda state: FlagRow.state.in_(STATES[state]),
        "test": FlagRow.test_key,
        "job": FlagRow.last_job,
    },
)
router = FLAGS.router


@dataclass(frozen=True)
class FlagOutcome:
    """The outcome for one flag: `changed`, `same`, `refused` (see `problem`) or `missing`."""

    id: str
    outcome: Literal["changed", "same", "refused", "missing"]
    state: FlagState | None
    version: int | None
    before: store.FlagBefore | None
    problem: WrongField | None


@dataclass(frozen=True)
class FlagsChanged:
    """The outcomes for all flags in the order of the request, each ID once."""

    changed: int
    items: list[FlagOutcome]


@router.patch(
    "/flags/{flag_id}", response_model=FLAG, summary="Acknowledge, resolve or reopen a flag"
)
def change(context: Ctx, who: Submitter, flag_id: str, body: FlagChange) -> Any:
    """Set any of state, owner, reason and expires; `version` makes the change conditional."""
    fields = _changed(context, who, body, "version")
    with context.session() as session:
        flag = store.change(session, flag_id, fields, actor=who.actor, version=body.version)
        if flag is None:
            raise missing("flag", flag_id)
        return FLAG.model_validate(flag)


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
    key: idempotency.Key = None,
) -> Response:
    """Set any of state, owner, reason and expires of up to 200 flags in one transaction.

    A flag that can't be changed doesn't block the others: each has an outcome. History, audit and
    webhooks are as for one flag.
    """
    fields = _changed(context, who, body, "ids", "versions")

    def make(session: Session) -> idempotency.Answer:
        outcomes = store.change_many(
            session, body.ids, fields, actor=who.actor, versions=body.versions
        )
        changed = sum(outcome.outcome == "changed" for outcome in outcomes)
        items = [from_object(FlagOutcome, outcome) for outcome in outcomes]
        return 200, FlagsChanged(changed, items), {}

    sent = body.model_dump(mode="json", exclude_unset=True)
    return idempotency.once(context, request, who, key, sent, make)


def _changed(context: Context, who: Principal, body: FlagFields, *others: str) -> dict[str, Any]:
    """Return the fields that a body changes; `others` are its other fields."""
    fields = body.model_dump(exclude_unset=True, exclude=set(others))
    if not fields:
        limit = "any of state, owner, reason, expires"
        raise BadField("body", {}, "nothing to change", limit=limit)
    return completed(fields, who, longest(context))


def completed(fields: dict[str, Any], who: Principal, most: timedelta) -> dict[str, Any]:
    """Return the changes with an acknowledgement's owner and end where the request has none.

    Raises FieldError for an acknowledgement without a reason, and for an end that is past or
    further away than `most`.
    """
    now = utcnow()
    if fields.get("expires") is not None:
        store.check_end(fields["expires"], now, most)
    if fields.get("state") != FlagState.acknowledged:
        return fields
    store.check_reason(fields.get("reason"))
    end = fields.get("expires") or now + min(ACKNOWLEDGED_FOR, most)
    return {**fields, "owner": fields.get("owner") or who.name, "expires": end}


def longest(context: Context) -> timedelta:
    """Return how long an acknowledgement or a waiver may last."""
    return timedelta(days=context.settings.waiver_days)
