"""Incoming webhooks from GitHub and other CI systems.

They are verified and stored unchanged. Other endpoints list them with their outcomes, and the
commits that runs are for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import anyio
from anyio import to_thread
from fastapi import Request
from pydantic import SecretStr

from gonogo.ci.events import from_ci
from gonogo.ci.payloads import without_secrets
from gonogo_service.ci import commit_checks, signatures
from gonogo_service.ci import incoming as stored
from gonogo_service.ci.commit_checks import CommitCheck
from gonogo_service.ci.incoming import IncomingDelivery
from gonogo_service.kit import audit, json_bodies
from gonogo_service.kit.answers import Cursor, Filter, Limit, make_router, require
from gonogo_service.kit.database.encoding import decode
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import HookSource, IncomingState
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.people.context import Admin, Context, Ctx, Reader
from gonogo_service.webhooks.signatures import Unverified

router = make_router("hooks")
ANSWER_WITHIN_S = 0.9
"""GitHub needs an answer within a second; if the database is slower, GitHub must send it again."""
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@dataclass(frozen=True)
class DeliveryAccepted:
    """The answer to a delivery that is stored, now or before."""

    id: str
    new: bool
    """false: this delivery came before, and has no further effect"""


@dataclass(frozen=True)
class IncomingDeliveryDetails(IncomingDelivery):
    """A delivery with its payload, without secrets; null if it was deleted or is not JSON."""

    payload: Any


@router.post(
    "/hooks/github",
    status_code=202,
    summary="Receive a delivery from GitHub",
    openapi_extra=BODY,
)
async def github(context: Ctx, request: Request) -> DeliveryAccepted:
    """Store a delivery that is signed with a secret of GONOGO_GITHUB_WEBHOOK_SECRET.

    The background process handles it. A redelivery changes nothing.
    """
    secrets = _secrets(context.settings.github_webhook_secret, "GONOGO_GITHUB_WEBHOOK_SECRET")
    try:
        delivery, event = signatures.identity(
            request.headers, (signatures.DELIVERY, signatures.EVENT)
        )
        signatures.github_form(request.headers)
    except Unverified as problem:
        raise _rejected(request, problem) from None
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Problem(415, "The webhook's content type must be application/json.", slug="not-json")
    body = await request.body()
    try:
        await to_thread.run_sync(signatures.github, secrets, request.headers, body)
    except Unverified as problem:
        raise _rejected(request, problem) from None
    await to_thread.run_sync(json_bodies.parse, body)
    return await _store(context, HookSource.github, delivery, event, body)


@router.post(
    "/hooks/ci",
    status_code=202,
    summary="Receive a delivery from another CI system",
    openapi_extra=BODY,
)
async def ci(context: Ctx, request: Request) -> DeliveryAccepted:
    """Store a delivery {"type": "commit", "timestamp", "data": {...}} of another CI system.

    It must be signed as in Standard Webhooks, with a secret of GONOGO_CI_WEBHOOK_SECRET.
    """
    secrets = _secrets(context.settings.ci_webhook_secret, "GONOGO_CI_WEBHOOK_SECRET")
    try:
        (delivery,) = signatures.identity(request.headers, ("webhook-id",))
        signatures.standard_form(request.headers)
    except Unverified as problem:
        raise _rejected(request, problem) from None
    body = await request.body()
    try:
        await to_thread.run_sync(signatures.standard, secrets, request.headers, body)
    except Unverified as problem:
        raise _rejected(request, problem) from None
    payload = await to_thread.run_sync(_ci_payload, body)
    kind = str(payload["type"])[: signatures.MAX_ID]
    return await _store(
        context, HookSource.ci, delivery, kind if kind.isprintable() else "unknown", body
    )


@router.get(
    "/hooks/deliveries",
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
) -> Page[IncomingDelivery]:
    """List deliveries, newest first, with what each started, or why it started nothing."""
    with context.reading() as session:
        return stored.list_(
            session,
            source=source,
            state=state,
            event=event,
            repository=repository,
            limit=limit,
            cursor=cursor,
        )


@router.get(
    "/hooks/deliveries/{incoming_id}",
    summary="Show an incoming webhook",
)
def look(context: Ctx, _who: Admin, incoming_id: str) -> IncomingDeliveryDetails:
    """Show a delivery with its payload, which may name private repositories.

    Payloads are deleted after 30 days.
    """
    with context.reading() as session:
        result = require(stored.look(session, incoming_id), "delivery", incoming_id)
    delivery, body = result
    try:
        payload = None if body is None else decode(body)
    except ValueError:
        payload = None
    return from_object(IncomingDeliveryDetails, delivery, payload=without_secrets(payload))


@router.post(
    "/hooks/deliveries/{incoming_id}:replay",
    status_code=202,
    summary="Process an incoming webhook again",
)
def replay(context: Ctx, who: Admin, incoming_id: str) -> IncomingDelivery:
    """Process a delivery again by the current rules.

    A delivery that started something can't be processed again, so that nothing starts twice.
    """
    with context.session() as session:
        result = require(stored.look(session, incoming_id), "delivery", incoming_id)
        delivery, body = result
        if delivery.state is IncomingState.started:
            raise BadField(
                "state",
                delivery.state.value,
                "has started something already; submit or resubmit that",
                limit="ignored or failed",
            )
        if body is None:
            raise BadField("payload", None, "was deleted", limit=f"{stored.KEEP_BODIES.days} days")
        again = stored.again(session, incoming_id)
        assert again is not None
        audit.record(session, actor=who.actor, action="hook.replayed", subject=incoming_id)
    return again


@router.get(
    "/hooks/commit_checks",
    summary="List commits that runs are for",
)
def list_commit_checks(
    context: Ctx,
    _who: Reader,
    repository: Filter = None,
    run: Filter = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[CommitCheck]:
    """List repository, commits, pull request, both runs and the rule, newest first."""
    with context.reading() as session:
        return commit_checks.list_(
            session, repository=repository, run=run, limit=limit, cursor=cursor
        )


def _secrets(setting: SecretStr | None, name: str) -> list[str]:
    secrets = signatures.secrets_of(setting)
    if not secrets:
        raise Problem(
            403, f"This service accepts no such deliveries: {name} is not set.", slug="no-secret"
        )
    return secrets


def _ci_payload(body: bytes) -> Any:
    payload = json_bodies.parse(body)
    from_ci(payload)  # the sender's developer learns at once what is wrong
    return payload


def _rejected(request: Request, problem: Unverified) -> Problem:
    """Return a 401. Raises Problem 429 after too many failures from an address."""
    state = request.scope["state"]
    state["limits"].rejected_signature(state["visit"].client)
    return Problem(401, f"The signature is not valid: {problem}.", slug="signature")


async def _store(
    context: Context, source: HookSource, delivery: str, event: str, body: bytes
) -> DeliveryAccepted:
    def store() -> tuple[str, bool]:
        with context.session() as session:
            return stored.store(session, source, delivery, event, body)

    with anyio.move_on_after(ANSWER_WITHIN_S):
        incoming_id, new = await to_thread.run_sync(store, abandon_on_cancel=True)
        return DeliveryAccepted(incoming_id, new)
    detail = (
        "The database did not store the delivery in time. It may still do so. "
        "Sending it again is harmless."
    )
    raise Problem(503, detail, slug="database", headers={"Retry-After": "5"})
