"""Waivers: findings that someone accepts until a date, so that they don't block commits.

Verdicts do not change.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import RED_OR_HOLLOW, WAIVABLE, Waiver
from gonogo.urls import API
from gonogo_service.flags.api import MAX_OWNER, longest
from gonogo_service.flags.store import MAX_REASON
from gonogo_service.jobs.bodies import Labels
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    extend_page,
    make_router,
    missing,
)
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import WaiverState
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Moment, Strict
from gonogo_service.people import idempotency_keys
from gonogo_service.people.context import Ctx, Reader, Submitter
from gonogo_service.waivers import store as stored
from gonogo_service.waivers.store import StoredWaiver

router = make_router("waivers")
MAX_PATTERNS = 20
MAX_KEY = 100

Owner = Annotated[str, Field(min_length=1, max_length=MAX_OWNER)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
Pattern = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^!?[^!\r\n][^\r\n]*$")]
Patterns = Annotated[list[Pattern], Field(max_length=MAX_PATTERNS)]
Waived = Annotated[Class, Field(strict=False)]
Classes = Annotated[list[Waived], Field(min_length=1, max_length=len(WAIVABLE))]
DEFAULT = list(RED_OR_HOLLOW)


class WaiverIn(Strict):
    """A waiver of tests by key, name, or a label of their jobs; all given fields must match."""

    # not gonogo.flakiness.waivers.Waiver: without an id, with an optional owner, with limits

    test: Annotated[str, Field(min_length=1, max_length=MAX_KEY)] | None = Field(
        None, description="A test's key"
    )
    names: Patterns = Field(
        [],
        description=(
            "Patterns of names as in `/compare`: `*` does not match slashes, `**` does, "
            "`!` excludes"
        ),
    )
    labels: Labels = Field({}, description="A job of the test on head must have all of them")
    builds: Patterns = Field([], description="Patterns of head's build; empty: any")
    classes: Classes = Field(
        DEFAULT, description="Some of " + ", ".join(kind.value for kind in WAIVABLE)
    )
    owner: Owner | None = Field(None, description="null: the caller")
    reason: Reason
    expires: Moment = Field(
        description="RFC 3339 with a time zone; at most GONOGO_WAIVER_DAYS from now"
    )


class WaiverChange(Strict):
    """The fields to change; omitted fields stay.

    A waiver's tests can't change: create another waiver for other tests.
    """

    owner: Owner = Field("")
    reason: Reason = Field("")
    classes: Classes = Field(DEFAULT)
    expires: Moment | None = Field(
        None, description="The new end, which renews the waiver; the limit counts from now"
    )
    version: int | None = Field(
        None, ge=1, description="Rejected with 409 if the waiver has a newer version"
    )


@dataclass(frozen=True)
class WaiverLinks:
    """The address of a waiver, and the page of its test."""

    self: str
    test: str | None


@dataclass(frozen=True, kw_only=True)
class WaiverOut(StoredWaiver):
    """A waiver with its current `state`."""

    links: WaiverLinks


@router.get("/waivers", summary="List waivers, newest first")
def list_waivers(
    context: Ctx,
    _who: Reader,
    test: Filter = None,
    state: WaiverState | None = None,
    owner: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[WaiverOut]:
    """List waivers, including ended ones; `test` selects waivers of it by key, name or label."""
    with context.reading() as session:
        page = stored.list_(
            session, now=utcnow(), test=test, state=state, owner=owner, limit=limit, cursor=cursor
        )
    return extend_page(page, _with_links)


@router.post(
    "/waivers",
    status_code=201,
    responses={201: {"model": WaiverOut}},
    response_class=Response,
    summary="Create a waiver",
)
def add(
    context: Ctx,
    who: Submitter,
    request: Request,
    body: WaiverIn,
    key: idempotency_keys.Key = None,
) -> Response:
    """Create a waiver, which is in force until it expires or is ended.

    Findings of its `classes` are `waived` in comparisons and in answers to GitHub.
    """
    _check(body)

    def make(session: Session) -> WaiverOut:
        new = Waiver(
            new_id(),
            body.owner or who.name,
            body.reason.strip(),
            body.expires,
            body.test,
            body.names,
            body.labels,
            body.builds,
            _ordered(body.classes),
        )
        waiver = stored.create(
            session, new, actor=who.actor, now=utcnow(), longest=longest(context)
        )
        return _with_links(waiver)

    return idempotency_keys.created(
        context, request, who, key, body, make, status=201, counted=False
    )


@router.get("/waivers/{waiver_id}", summary="Show a waiver")
def look(context: Ctx, _who: Reader, waiver_id: str) -> WaiverOut:
    """Show a waiver, also an ended one."""
    with context.reading() as session:
        return _require(stored.get(session, waiver_id, now=utcnow()), waiver_id)


@router.patch("/waivers/{waiver_id}", summary="Renew or change a waiver")
def change(context: Ctx, who: Submitter, waiver_id: str, body: WaiverChange) -> WaiverOut:
    """Set any of owner, reason, classes and expires of a waiver in force.

    `version` makes the change conditional.
    """
    given = body.model_fields_set - {"version"}
    if not given:
        raise BadField(
            "body", {}, "nothing to change", limit="any of owner, reason, classes, expires"
        )
    if "expires" in given and body.expires is None:
        raise BadField("expires", None, "is required: every waiver ends", limit="a time")
    fields: dict[str, Any] = {name: getattr(body, name) for name in given}
    if "reason" in fields:
        fields["reason"] = _required_reason(body.reason)
    if "classes" in fields:
        fields["classes"] = _ordered(_checked(body.classes))
    with context.session() as session:
        changed = stored.change(
            session,
            waiver_id,
            fields,
            actor=who.actor,
            now=utcnow(),
            longest=longest(context),
            version=body.version,
        )
    return _require(changed, waiver_id)


@router.delete("/waivers/{waiver_id}", summary="End a waiver")
def end(context: Ctx, who: Submitter, waiver_id: str) -> WaiverOut:
    """End a waiver now. It stays visible; an ended waiver does not change."""
    with context.session() as session:
        ended = stored.end(session, waiver_id, actor=who.actor, now=utcnow())
    return _require(ended, waiver_id)


def _check(body: WaiverIn) -> None:
    if body.test is None and not body.names and not body.labels:
        raise BadField("test", None, "no test is selected", limit="any of test, names, labels")
    for field, patterns in (("names", body.names), ("builds", body.builds)):
        if patterns and all(pattern.startswith("!") for pattern in patterns):
            raise BadField(field, patterns, "only excludes", limit="a pattern without !")
    _required_reason(body.reason)
    _checked(body.classes)


def _required_reason(reason: str) -> str:
    if not reason.strip():
        raise BadField("reason", reason, "is blank", limit="text")
    return reason.strip()


def _checked(classes: list[Class]) -> list[Class]:
    for number, kind in enumerate(classes):
        if kind not in WAIVABLE:
            limit = "one of " + ", ".join(waivable.value for waivable in WAIVABLE)
            raise BadField(f"classes.{number}", kind.value, "can't be waived", limit=limit)
    return classes


def _ordered(classes: list[Class]) -> list[Class]:
    return [kind for kind in WAIVABLE if kind in classes]


def _require(waiver: StoredWaiver | None, waiver_id: str) -> WaiverOut:
    if waiver is None:
        raise missing("waiver", waiver_id)
    return _with_links(waiver)


def _with_links(waiver: StoredWaiver) -> WaiverOut:
    page = None if waiver.test is None else urls.history(waiver.test)
    return from_object(WaiverOut, waiver, links=WaiverLinks(f"{API}/waivers/{waiver.id}", page))
