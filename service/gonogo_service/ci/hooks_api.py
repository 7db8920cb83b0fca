"""Incoming webhooks of GitHub and other CI systems, what they started, and the answers to GitHub.

Deliveries are verified and stored unchanged; the background handles them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import anyio
from anyio import to_thread
from fastapi import Request
from pydantic import Field, SecretStr, create_model

from gonogo.ci.events import from_ci
from gonogo.ci.payloads import without_secrets
from gonogo_service.ci import answers, commit_checks, noun
from gonogo_service.ci import incoming as stored
from gonogo_service.ci.model import AnswerRow, CommitCheckRow, IncomingDeliveryRow
from gonogo_service.kit import audit, json_bodies
from gonogo_service.kit.answers import missing, require
from gonogo_service.kit.database.encoding import decode
from gonogo_service.kit.database.states import AnswerState, HookSource, IncomingState
from gonogo_service.kit.problems import BadField, Problem
from gonogo_service.kit.resource import Resource
from gonogo_service.kit.rows import extended_answer, values
from gonogo_service.people.context import Admin, Context, Ctx
from gonogo_service.webhooks import signing
from gonogo_service.webhooks.signing import Unverified

ANSWER_WITHIN_S = 0.9
"""GitHub needs an answer within a second; if the database is slower, GitHub must send it again."""
BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}
DELIVERY: Any = extended_answer(
    IncomingDeliveryRow,
    "IncomingDelivery",
    without=("state", "created_at"),
    event=str,
    state=IncomingState,
    reason=str | None,
    received_at=datetime,
)
DETAILS: Any = create_model(
    "IncomingDeliveryDetails",
    __base__=DELIVERY,
    payload=(
        Any,
        Field(description="Without secrets; null if it was deleted or is not JSON"),
    ),
)
_OF_CHECK = {"repository": str, "head_sha": str, "event": str, "rule": str}
_MAYBE_OF_CHECK = {"suite": str | None, "run": str | None, "pull_request": int | None}
ANSWER: Any = extended_answer(
    AnswerRow,
    "AnswerDetails",
    without=("id", "state", "ended_at"),
    commit_check=str,
    state=AnswerState,
    error=str | None,
    **_OF_CHECK,
    **_MAYBE_OF_CHECK,
    accepted_parts=(list[str], "The parts that GitHub accepted: status, check, comment"),
)


HOOKS = Resource(
    noun.HOOKS,
    IncomingDeliveryRow,
    answer=DELIVERY,
    where={"event": IncomingDeliveryRow.topic},
    has_one=False,
)
COMMIT_CHECKS = Resource(
    noun.COMMIT_CHECKS,
    CommitCheckRow,
    tag="hooks",
    where={"run": commit_checks.is_of_run},
    has_one=False,
)
ANSWERS = Resource(noun.ANSWERS, AnswerRow, tag="github", answer=ANSWER, has_one=False)
router = HOOKS.router


@dataclass(frozen=True)
class DeliveryAccepted:
    """The answer to a delivery that is stored, now or before."""

    id: str
    new: bool
    """false: this delivery came before, and has no further effect"""


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
    with _verifying(request):
        delivery, event = signing.identity(request.headers, "x-github-delivery", "x-github-event")
        signing.check_github_form(request.headers)
    if not request.headers.get("content-type", "").startswith("application/json"):
        raise Problem(415, "The webhook's content type must be application/json.", slug="not-json")
    body = await request.body()
    with _verifying(request):
        await to_thread.run_sync(signing.verify_github, secrets, request.headers, body)
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
    with _verifying(request):
        (delivery,) = signing.identity(request.headers, "webhook-id")
        signing.check_form(request.headers)
    body = await request.body()
    with _verifying(request):
        await to_thread.run_sync(signing.verify, secrets, request.headers, body)
    payload = await to_thread.run_sync(json_bodies.parse, body)
    await to_thread.run_sync(from_ci, payload)  # the sender's developer learns what is wrong
    kind = str(payload["type"])[: signing.MAX_ID]
    event = kind if kind.isprintable() else "unknown"
    return await _store(context, HookSource.ci, delivery, event, body)


@router.get(
    "/hooks/deliveries/{incoming_id}", summary="Show an incoming webhook", response_model=DETAILS
)
def show(context: Ctx, _who: Admin, incoming_id: str) -> Any:
    """Show a delivery with its payload, which may name private repositories.

    Payloads are deleted after 30 days.
    """
    with context.reading() as session:
        row = require(stored.get(session, incoming_id), "delivery", incoming_id)
        body, payload = stored.body_of(row), None
        with suppress(ValueError):
            payload = None if body is None else decode(body)
        return values(DETAILS, row, payload=without_secrets(payload))


@router.post(
    "/hooks/deliveries/{incoming_id}:replay",
    status_code=202,
    summary="Process an incoming webhook again",
    response_model=DELIVERY,
)
def replay(context: Ctx, who: Admin, incoming_id: str) -> IncomingDeliveryRow:
    """Process a delivery again by the current rules.

    A delivery that started something can't be processed again, so that nothing starts twice.
    """
    with context.session() as session:
        row = IncomingDeliveryRow.locked(session, incoming_id, ended=True)
        row = require(row, "delivery", incoming_id)
        if row.state == IncomingState.started:
            reason = "has started something already; submit or resubmit that"
            raise BadField("state", row.state, reason, limit="ignored or failed")
        if row.body is None:
            limit = f"{stored.KEEP_BODIES.days} days"
            raise BadField("payload", None, "was deleted", limit=limit)
        if row.due_at is None:
            row.repeat()
        audit.record(session, actor=who.actor, action="hook.replayed", subject=incoming_id)
        return row


@ANSWERS.router.post(
    "/github/answers/{commit_check}:again",
    status_code=202,
    summary="Send an answer to GitHub again",
    response_model=ANSWER,
)
def send_again(context: Ctx, who: Admin, commit_check: str) -> AnswerRow:
    """Send the complete answer as of now, with acknowledged flags and rejudged jobs."""
    with context.session() as session:
        row = answers.again(session, commit_check)
        if row is None:
            raise missing("answer", commit_check)
        audit.record(session, actor=who.actor, action="answer.again", subject=commit_check)
        return row


def _secrets(setting: SecretStr | None, name: str) -> list[str]:
    secrets = signing.listed(setting)
    if not secrets:
        detail = f"This service accepts no such deliveries: {name} is not set."
        raise Problem(403, detail, slug="no-secret")
    return secrets


@contextmanager
def _verifying(request: Request) -> Iterator[None]:
    """Turn Unverified into a 401. Raises Problem 429 after too many failures from an address."""
    try:
        yield
    except Unverified as problem:
        state = request.scope["state"]
        state["limits"].rejected_signature(state["visit"].client)
        detail = f"The signature is not valid: {problem}."
        raise Problem(401, detail, slug="signature") from None


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
