"""Incoming webhooks from GitHub and other CI systems.

They are verified and stored unchanged. Other endpoints list them with their outcomes, and the
commits that runs are for.
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
"""GitHub needs an answer within a second; if the database is slower, GitHub must send it again."""
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


class DeliveryAccepted(BaseModel):
    """The answer to a delivery that is stored, now or before."""

    id: str
    new: bool = Field(description="false: this delivery came before, and has no further effect")


class IncomingDeliveryOut(BaseModel):
    """A delivery; `delivery` is the sender's ID."""

    id: str
    source: HookSource
    delivery: str
    event: str
    repository: str | None
    size: int
    state: IncomingState
    reason: str | None
    outcome: list[dict[str, Any]] = Field(
        description="For each matching rule: what it started, or why not"
    )
    tries: int
    due_at: str | None
    received_at: str
    ended_at: str | None


class IncomingDeliveryDetails(IncomingDeliveryOut):
    """A delivery with its payload, without secrets; null if it was deleted or is not JSON."""

    payload: Any


class IncomingDeliveryPage(BaseModel):
    """A page of deliveries, newest first."""

    items: list[IncomingDeliveryOut]
    next: str | None


class CommitCheckOut(BaseModel):
    """The commit that a suite (null: the gauges) of a rule was started for."""

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


class CommitCheckPage(BaseModel):
    """A page of commit checks, newest first."""

    items: list[CommitCheckOut]
    next: str | None


@router.post(
    "/hooks/github",
    status_code=202,
    responses={202: {"model": DeliveryAccepted}},
    response_class=Response,
    summary="Receive a delivery from GitHub",
    openapi_extra=BODY,
)
async def github(context: Ctx, request: Request) -> Response:
    """Store a delivery that is signed with a secret of GONOGO_GITHUB_WEBHOOK_SECRET.

    The background process handles it. A redelivery changes nothing.
    """
    secrets = _secrets(context.settings.github_webhook_secret, "GONOGO_GITHUB_WEBHOOK_SECRET")
    try:
        delivery, event = signatures.identity(
            request.headers, (signatures.DELIVERY, signatures.EVENT)
        )
        body = await request.body()
        signatures.github(secrets, request.headers, body)
    except Unverified as problem:
        raise _rejected(request, problem) from None
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Problem(415, "The webhook's content type must be application/json.", slug="not-json")
    return await _store(context, HookSource.github, delivery, event, body)


@router.post(
    "/hooks/ci",
    status_code=202,
    responses={202: {"model": DeliveryAccepted}},
    response_class=Response,
    summary="Receive a delivery from another CI system",
    openapi_extra=BODY,
)
async def ci(context: Ctx, request: Request) -> Response:
    """Store a delivery {"type": "commit", "timestamp", "data": {...}} of another CI system.

    It must be signed as in Standard Webhooks, with a secret of GONOGO_CI_WEBHOOK_SECRET.
    """
    secrets = _secrets(context.settings.ci_webhook_secret, "GONOGO_CI_WEBHOOK_SECRET")
    try:
        (delivery,) = signatures.identity(request.headers, ("webhook-id",))
        body = await request.body()
        signatures.standard(secrets, request.headers, body)
    except Unverified as problem:
        raise _rejected(request, problem) from None
    try:
        payload = decode(body)
    except ValueError as problem:
        raise BadField("body", None, f"is not JSON ({problem})") from None
    from_ci(payload)  # the sender's developer learns at once what is wrong
    kind = str(payload["type"])[: signatures.MAX_ID]
    return await _store(
        context, HookSource.ci, delivery, kind if kind.isprintable() else "unknown", body
    )


@router.get(
    "/hooks/deliveries",
    responses={200: {"model": IncomingDeliveryPage}},
    response_class=Response,
    summary="List incoming webhooks",
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
    """List deliveries, newest first, with what each started, or why it started nothing."""
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
    responses={200: {"model": IncomingDeliveryDetails}},
    response_class=Response,
    summary="Show an incoming webhook",
)
def look(context: Ctx, _who: Admin, incoming_id: str) -> Response:
    """Show a delivery with its payload, which may name private repositories.

    Payloads are deleted after 30 days.
    """
    with context.reading() as session:
        delivery = stored.look(session, incoming_id)
    if delivery is None:
        raise missing("delivery", incoming_id)
    fields, body = delivery
    try:
        payload = None if body is None else decode(body)
    except ValueError:
        payload = None
    return answer({**fields, "payload": without_secrets(payload)})


@router.post(
    "/hooks/deliveries/{incoming_id}:replay",
    status_code=202,
    responses={202: {"model": IncomingDeliveryOut}},
    response_class=Response,
    summary="Process an incoming webhook again",
)
def replay(context: Ctx, who: Admin, incoming_id: str) -> Response:
    """Process a delivery again by the current rules.

    A delivery that started something can't be processed again, so that nothing starts twice.
    """
    with context.session() as session:
        delivery = stored.look(session, incoming_id)
        if delivery is None:
            raise missing("delivery", incoming_id)
        fields, body = delivery
        if fields["state"] == IncomingState.started:
            raise BadField(
                "state",
                fields["state"],
                "has started something already; submit or resubmit that",
                limit="ignored or failed",
            )
        if body is None:
            raise BadField("payload", None, "was deleted", limit=f"{stored.KEEP_BODIES.days} days")
        again = stored.again(session, incoming_id)
        audit.record(session, actor=who.actor, action="hook.replayed", subject=incoming_id)
    return answer(again, 202)


@router.get(
    "/hooks/commit_checks",
    responses={200: {"model": CommitCheckPage}},
    response_class=Response,
    summary="List commits that runs are for",
)
def list_commit_checks(
    context: Ctx,
    _who: Reader,
    repository: Filter = None,
    run: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List repository, commits, pull request, both runs and the rule, newest first."""
    with context.reading() as session:
        page = commit_checks.list_(
            session, repository=repository, run=run, limit=limit, cursor=cursor
        )
    return answer_page(page, lambda commit_check: commit_check.to_json())


def _secrets(setting: SecretStr | None, name: str) -> list[str]:
    secrets = signatures.secrets_of(setting)
    if not secrets:
        raise Problem(
            403, f"This service accepts no such deliveries: {name} is not set.", slug="no-secret"
        )
    return secrets


def _rejected(request: Request, problem: Unverified) -> Problem:
    """Return a 401. Raises Problem 429 after too many failures from an address."""
    state = request.scope["state"]
    state["limits"].failed_token(state["visit"].client)
    return Problem(401, f"The signature is not valid: {problem}.", slug="signature")


async def _store(
    context: Context, source: HookSource, delivery: str, event: str, body: bytes
) -> Response:
    def store() -> tuple[str, bool]:
        with context.session() as session:
            return stored.store(session, source, delivery, event, body)

    with anyio.move_on_after(ANSWER_WITHIN_S):
        incoming_id, new = await to_thread.run_sync(store, abandon_on_cancel=True)
        return answer({"id": incoming_id, "new": new}, 202)
    detail = (
        "The database did not store the delivery in time. It may still do so. "
        "Sending it again is harmless."
    )
    raise Problem(503, detail, slug="database", headers={"Retry-After": "5"})
