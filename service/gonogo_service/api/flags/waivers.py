"""Waivers: what someone takes on until a day, so that it stops nobody's commit. No verdict is
rewritten.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any

from fastapi import Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import OVERRIDABLE, RED_OR_HOLLOW
from gonogo.urls import API
from gonogo_service.access.context import Context, Ctx, Reader, Submitter
from gonogo_service.api import idempotency_keys
from gonogo_service.api.flags.flags import MAX_OWNER, MAX_REASON
from gonogo_service.api.suites.schemas import Labels
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Moment, Strict
from gonogo_storage.comparison import waivers as stored
from gonogo_storage.comparison.waivers import NewWaiver
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.states import WaiverState
from gonogo_storage.flags.flag_changes import Outdated

router = make_router("waivers")
MOST_PATTERNS = 20
MAX_KEY = 100

Owner = Annotated[str, Field(min_length=1, max_length=MAX_OWNER)]
Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]
Pattern = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^!?[^!\r\n][^\r\n]*$")]
Patterns = Annotated[list[Pattern], Field(max_length=MOST_PATTERNS)]
Waived = Annotated[Class, Field(strict=False)]
Classes = Annotated[list[Waived], Field(min_length=1, max_length=len(OVERRIDABLE))]
DEFAULT = list(RED_OR_HOLLOW)


class WaiverIn(Strict):
    """What is taken on: a test by its key, by its name, by a label of its jobs; of several all must
    fit.
    """

    test: Annotated[str, Field(min_length=1, max_length=MAX_KEY)] | None = Field(
        None, description="the key of a test"
    )
    names: Patterns = Field(
        [],
        description="patterns of the names that `/compare` shows: `*` stays between slashes, `**` doesn't, `!` takes back",
    )
    labels: Labels = Field({}, description="one job of the test on head has all of them")
    builds: Patterns = Field([], description="patterns of head's build; none: any")
    classes: Classes = Field(
        DEFAULT, description="of " + ", ".join(each.value for each in OVERRIDABLE)
    )
    owner: Owner | None = Field(None, description="null: whoever asks")
    reason: Reason
    expires: Moment = Field(
        description="RFC 3339 with a time zone; at most GONOGO_WAIVER_DAYS from now"
    )


class WaiverChange(Strict):
    """What to change; what is left out stays. What a waiver is about stays: make another one for
    other tests.
    """

    owner: Owner = Field("")
    reason: Reason = Field("")
    classes: Classes = Field(DEFAULT)
    expires: Moment | None = Field(
        None, description="a new end, counted from now: so one is renewed"
    )
    version: int | None = Field(
        None, ge=1, description="refused with 409 where the waiver has another one by now"
    )


class WaiverOut(BaseModel):
    """A waiver; `state` is that of this moment."""

    id: str
    state: WaiverState
    test: str | None
    names: list[str]
    labels: dict[str, str]
    builds: list[str]
    classes: list[Class]
    owner: str
    reason: str
    version: int
    created_by: str
    created_at: str
    updated_at: str
    expires_at: str
    ended_at: str | None
    ended_by: str | None
    words: str
    links: dict[str, str | None] = Field(description="itself, and the page of its test")


class WaiverPage(BaseModel):
    """A page of waivers, newest first."""

    items: list[WaiverOut]
    next: str | None


@router.get(
    "/waivers",
    responses={200: {"model": WaiverPage}},
    response_class=Response,
    summary="List waivers, newest first",
)
def list_waivers(
    context: Ctx,
    _who: Reader,
    test: Filter = None,
    state: WaiverState | None = None,
    owner: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Those that are over included. `test`: what concerns it by key, name or label."""
    with context.reading() as session:
        found = stored.list_(
            session, now=utcnow(), test=test, state=state, owner=owner, limit=limit, cursor=cursor
        )
    return answer_page(found, _shown)


@router.post(
    "/waivers",
    status_code=201,
    responses={201: {"model": WaiverOut}},
    response_class=Response,
    summary="Take tests on for a while",
)
def add(
    context: Ctx,
    who: Submitter,
    request: Request,
    body: WaiverIn,
    key: idempotency_keys.Key = None,
) -> Response:
    """In force at once, until it expires or is ended: what `classes` names is `waived` in
    comparisons and in answers to GitHub.
    """
    _check(body)

    def make(session: Session) -> idempotency_keys.Answer:
        new = NewWaiver(
            body.test,
            body.names,
            body.labels,
            body.builds,
            _ordered(body.classes),
            body.owner or who.name,
            body.reason.strip(),
            body.expires,
        )
        made = stored.create(session, new, actor=who.actor, now=utcnow(), longest=_longest(context))
        return 201, _shown(made), {"Location": f"{API}/waivers/{made['id']}"}

    return idempotency_keys.once(context, request, who, key, body.model_dump(mode="json"), make)[0]


@router.get(
    "/waivers/{waiver_id}",
    responses={200: {"model": WaiverOut}},
    response_class=Response,
    summary="Look at a waiver",
)
def look(context: Ctx, _who: Reader, waiver_id: str) -> Response:
    """Also one that is over."""
    with context.reading() as session:
        return answer(_found(stored.get(session, waiver_id, now=utcnow()), waiver_id))


@router.patch(
    "/waivers/{waiver_id}",
    responses={200: {"model": WaiverOut}},
    response_class=Response,
    summary="Renew or change a waiver",
)
def change(context: Ctx, who: Submitter, waiver_id: str, body: WaiverChange) -> Response:
    """Sets any of owner, reason, classes and expires of one that is in force; `version` makes it
    conditional.
    """
    given = body.model_fields_set - {"version"}
    if not given:
        raise BadField(
            "body", {}, "nothing to change", limit="any of owner, reason, classes, expires"
        )
    if "expires" in given and body.expires is None:
        raise BadField("expires", None, "every waiver ends", limit="a time")
    fields: dict[str, Any] = {name: getattr(body, name) for name in given}
    if "reason" in fields:
        fields["reason"] = _said(body.reason)
    if "classes" in fields:
        fields["classes"] = _ordered(_checked(body.classes))
    with context.session() as session:
        try:
            found = stored.change(
                session,
                waiver_id,
                fields,
                actor=who.actor,
                now=utcnow(),
                longest=_longest(context),
                version=body.version,
            )
        except Outdated as problem:
            raise BadField(
                "version",
                problem.given,
                "the waiver was changed since",
                limit=problem.found,
                status=409,
            ) from problem
    return answer(_found(found, waiver_id))


@router.delete(
    "/waivers/{waiver_id}",
    responses={200: {"model": WaiverOut}},
    response_class=Response,
    summary="End a waiver",
)
def end(context: Ctx, who: Submitter, waiver_id: str) -> Response:
    """It does nothing from now on, and stays to be looked at. One that is over already stays as it
    is.
    """
    with context.session() as session:
        return answer(
            _found(stored.end(session, waiver_id, actor=who.actor, now=utcnow()), waiver_id)
        )


def _check(body: WaiverIn) -> None:
    if body.test is None and not body.names and not body.labels:
        raise BadField(
            "test", None, "says of no test that it is meant", limit="any of test, names, labels"
        )
    for field, patterns in (("names", body.names), ("builds", body.builds)):
        if patterns and all(pattern.startswith("!") for pattern in patterns):
            raise BadField(field, patterns, "only takes back", limit="a pattern without ! before")
    _said(body.reason)
    _checked(body.classes)


def _said(reason: str) -> str:
    if not reason.strip():
        raise BadField("reason", reason, "says nothing", limit="words")
    return reason.strip()


def _checked(classes: list[Class]) -> list[Class]:
    for number, each in enumerate(classes):
        if each not in OVERRIDABLE:
            limit = "one of " + ", ".join(kind.value for kind in OVERRIDABLE)
            raise BadField(f"classes.{number}", each.value, "can't be waived", limit=limit)
    return classes


def _ordered(classes: list[Class]) -> list[Class]:
    return [each for each in OVERRIDABLE if each in classes]


def _longest(context: Context) -> timedelta:
    return timedelta(days=context.settings.waiver_days)


def _found(waiver: dict[str, Any] | None, waiver_id: str) -> dict[str, Any]:
    if waiver is None:
        raise missing("waiver", waiver_id)
    return _shown(waiver)


def _shown(waiver: dict[str, Any]) -> dict[str, Any]:
    test = waiver["test"]
    return {
        **waiver,
        "links": {
            "self": f"{API}/waivers/{waiver['id']}",
            "test": None if test is None else urls.history(test),
        },
    }
