"""Deliveries in: GitHub's and those of other CI systems, verified and stored as they came; what
became of them, and for whom runs are.
"""

from __future__ import annotations

from typing import Any

import anyio
from anyio import to_thread
from fastapi import Request, Response
from pydantic import BaseModel, Field, SecretStr

from gonogo.ci.events import from_ci
from gonogo.ci.payloads import without_secrets
from gonogo_service.access.context import Admin, Context, Ctx, Reader
from gonogo_service.hooks import signatures
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.webhooks.signatures import Unverified
from gonogo_storage.access import audit
from gonogo_storage.automation import commit_checks
from gonogo_storage.db.encoding import decode
from gonogo_storage.db.states import HookSource, IncomingState
from gonogo_storage.messages import incoming as stored

router = make_router("hooks")
ANSWER_WITHIN_S = 0.9
"""GitHub is answered within a second; what a busy database has not taken by then must be sent
again."""
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class Taken(BaseModel):
    """A delivery was stored, now or before."""

    id: str
    new: bool = Field(
        description="false: this delivery came before, and nothing more follows from it"
    )


class IncomingDeliveryOut(BaseModel):
    """A delivery; `delivery` is the sender's own id."""

    id: str
    source: HookSource
    delivery: str
    event: str
    repository: str | None
    size: int
    state: IncomingState
    reason: str | None
    outcome: list[dict[str, Any]] = Field(
        description="per rule that speaks of it: what it started, or why not"
    )
    tries: int
    due_at: str | None
    received_at: str
    ended_at: str | None


class IncomingDeliveryWhole(IncomingDeliveryOut):
    """With its payload, without secrets; null once it is forgotten, or is no JSON."""

    payload: Any


class IncomingDeliveryPage(BaseModel):
    """A page of deliveries, newest first."""

    items: list[IncomingDeliveryOut]
    next: str | None


class SubjectOut(BaseModel):
    """What a suite (null: the gauges) of a rule was started for."""

    id: str
    delivery: str
    source: HookSource
    event: str
    rule: str
    suite: str | None
    suite_key: str | None
    repository: str
    installation: int | None
    branch: str | None
    pull_request: int | None
    fork: bool
    head_sha: str
    base_sha: str | None
    head_build: str | None
    base_build: str | None
    run: str | None
    base_run: str | None
    gauges: list[str]
    error: str | None
    occurred_at: str
    created_at: str


class SubjectPage(BaseModel):
    """A page of commit_checks, newest first."""

    items: list[SubjectOut]
    next: str | None


@router.post(
    "/hooks/github",
    status_code=202,
    responses={202: {"model": Taken}},
    response_class=Response,
    summary="Take a delivery of GitHub",
    openapi_extra=BODY,
)
async def github(context: Ctx, request: Request) -> Response:
    """Signed with a secret of GONOGO_GITHUB_WEBHOOK_SECRET. Stored, and worked off by the
    background; a redelivery changes nothing.
    """
    secrets = _secrets(context.settings.github_webhook_secret, "GONOGO_GITHUB_WEBHOOK_SECRET")
    try:
        delivery, event = signatures.identity(
            request.headers, (signatures.DELIVERY, signatures.EVENT)
        )
        body = await request.body()
        signatures.github(secrets, request.headers, body)
    except Unverified as problem:
        raise _refused(request, problem) from None
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Problem(415, "The webhook's content type must be application/json.", slug="not-json")
    return await _kept(context, HookSource.github, delivery, event, body)


@router.post(
    "/hooks/ci",
    status_code=202,
    responses={202: {"model": Taken}},
    response_class=Response,
    summary="Take a delivery of another CI system",
    openapi_extra=BODY,
)
async def ci(context: Ctx, request: Request) -> Response:
    """Signed as Standard Webhooks says with a secret of GONOGO_CI_WEBHOOK_SECRET: {"type":
    "commit", "timestamp", "data": {...}}.
    """
    secrets = _secrets(context.settings.ci_webhook_secret, "GONOGO_CI_WEBHOOK_SECRET")
    try:
        (delivery,) = signatures.identity(request.headers, ("webhook-id",))
        body = await request.body()
        signatures.standard(secrets, request.headers, body)
    except Unverified as problem:
        raise _refused(request, problem) from None
    try:
        payload = decode(body)
    except ValueError as problem:
        raise BadField("body", None, f"is not JSON ({problem})") from None
    from_ci(payload)  # whoever writes the sender is told at once what is wrong
    kind = str(payload["type"])[: signatures.MOST_ID]
    return await _kept(
        context, HookSource.ci, delivery, kind if kind.isprintable() else "unknown", body
    )


@router.get(
    "/hooks/deliveries",
    responses={200: {"model": IncomingDeliveryPage}},
    response_class=Response,
    summary="List deliveries that came in",
)
def list_deliveries(
    context: Ctx,
    _who: Reader,
    source: HookSource | None = None,
    state: IncomingState | None = None,
    event: Filter = None,
    repository: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Newest first; what each started, or why it started nothing."""
    with context.reading() as session:
        page = stored.list_(
            session,
            source=source,
            state=state,
            event=event,
            repository=repository,
            limit=limit,
            cursor=cursor,
        )
    return answer_page(page)


@router.get(
    "/hooks/deliveries/{incoming_id}",
    responses={200: {"model": IncomingDeliveryWhole}},
    response_class=Response,
    summary="Look at a delivery that came in",
)
def look(context: Ctx, _who: Admin, incoming_id: str) -> Response:
    """With its payload, which may tell of private repositories; payloads are forgotten after 30
    days.
    """
    with context.reading() as session:
        found = stored.look(session, incoming_id)
    if found is None:
        raise missing("delivery", incoming_id)
    told, body = found
    try:
        payload = None if body is None else decode(body)
    except ValueError:
        payload = None
    return answer({**told, "payload": without_secrets(payload)})


@router.post(
    "/hooks/deliveries/{incoming_id}:replay",
    status_code=202,
    responses={202: {"model": IncomingDeliveryOut}},
    response_class=Response,
    summary="Work a delivery off once more",
)
def replay(context: Ctx, who: Admin, incoming_id: str) -> Response:
    """By the rules of now. One that started something is not worked off again: nothing is started
    twice.
    """
    with context.session() as session:
        found = stored.look(session, incoming_id)
        if found is None:
            raise missing("delivery", incoming_id)
        told, body = found
        if told["state"] == IncomingState.started:
            raise BadField(
                "state",
                told["state"],
                "it started something already; submit or resubmit that",
                limit="ignored or failed",
            )
        if body is None:
            raise BadField("payload", None, "is forgotten", limit=f"{stored.KEEP_BODIES.days} days")
        again = stored.again(session, incoming_id)
        audit.record(session, actor=who.actor, action="hook.replayed", subject=incoming_id)
    return answer(again, 202)


@router.get(
    "/hooks/commit_checks",
    responses={200: {"model": SubjectPage}},
    response_class=Response,
    summary="List what runs are for",
)
def list_commit_checks(
    context: Ctx,
    _who: Reader,
    repository: Filter = None,
    run: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """Repository, commits, pull request, both runs and the rule; newest first."""
    with context.reading() as session:
        page = commit_checks.list_(
            session, repository=repository, run=run, limit=limit, cursor=cursor
        )
    return answer_page(page, lambda commit_check: commit_check.to_json())


def _secrets(setting: SecretStr | None, name: str) -> list[str]:
    found = signatures.secrets_of(setting)
    if not found:
        raise Problem(
            403, f"Such deliveries are not taken here: {name} is not set.", slug="no-secret"
        )
    return found


def _refused(request: Request, problem: Unverified) -> Problem:
    """401; 429 from an address that guesses."""
    state = request.scope["state"]
    state["limits"].failed_token(state["visit"].client)
    return Problem(401, f"This delivery is not believed: {problem}.", slug="signature")


async def _kept(
    context: Context, source: HookSource, delivery: str, event: str, body: bytes
) -> Response:
    def keep() -> tuple[str, bool]:
        with context.session() as session:
            return stored.store(session, source, delivery, event, body)

    with anyio.move_on_after(ANSWER_WITHIN_S):
        found, new = await to_thread.run_sync(keep, abandon_on_cancel=True)
        return answer({"id": found, "new": new}, 202)
    detail = (
        "The database did not take it in time. It may be stored yet; sent again it does no harm."
    )
    raise Problem(503, detail, slug="database", headers={"Retry-After": "5"})
