"""Outgoing webhooks: subscriptions, the log of every delivery, and resending."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from sqlalchemy.orm import Session

from gonogo_service.kit.answers import Cursor, Limit, require
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import Documented
from gonogo_service.kit.database.states import DeliveryState, WebhookKind, WebhookState
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.resource import Act, Checked, Resource, set_values, undone
from gonogo_service.kit.rows import extended_answer, values
from gonogo_service.people.context import Admin, Context, Ctx
from gonogo_service.webhooks import addresses, messages, noun, people, store
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow, WebhookRow
from gonogo_service.webhooks.noun import WebhookIn
from gonogo_service.webhooks.secrets import Box, check_secret, new_secret

OLD_SECRET_LIFE = timedelta(hours=24)
WEBHOOKS = Resource(noun.WEBHOOKS, WebhookRow)
router = WEBHOOKS.router


@dataclass(frozen=True)
class EventMessage:
    """The payload of a message, as it was sent and signed."""

    type: str
    timestamp: str
    data: dict[str, Any]
    """The object as it was then; which fields it has depends on the type (docs/webhooks.md)"""


CREATED = extended_answer(
    WebhookRow, "WebhookCreated", secret=(str | None, "The secret, which can't be shown again")
)
DELIVERY_FIELDS: dict[str, Any] = {"without": ("state",), "type": str, "state": DeliveryState}
DELIVERY: Any = extended_answer(DeliveryRow, "Delivery", **DELIVERY_FIELDS)
TRY: Any = extended_answer(DeliveryTryRow, "LoggedTry", without=("delivery_id",))
DETAILS = extended_answer(
    DeliveryRow,
    "DeliveryDetails",
    **DELIVERY_FIELDS,
    payload=Annotated[dict[str, Any], Documented(EventMessage)],
    log=(list[TRY], "Every try, the first one first"),
)


@router.post("/webhooks", status_code=201, summary="Create a subscription", response_model=CREATED)
def subscribe(context: Ctx, who: Admin, body: WebhookIn) -> Any:
    """Create a subscription.

    The answer has the secret that signs the messages; it can't be shown again. The URL of a message
    to people is never shown.
    """
    with context.session() as session:
        webhook, secret = _create(Act(context, session, who), body)
    return values(CREATED, webhook, secret=secret)


@router.post("/webhooks:validate", summary="Check a subscription")
def validate(context: Ctx, who: Admin, body: WebhookIn) -> Checked:
    """Make all checks of `POST /webhooks` without creating a subscription."""
    with undone(context) as session:
        _create(Act(context, session, who), body)
    return Checked(valid=True)


def _create(act: Act, body: WebhookIn) -> tuple[WebhookRow, str | None]:
    """Store a subscription; return it and its secret."""
    url, secret = _checked(body.kind, body.url), None
    if body.kind is WebhookKind.standard:
        secret = new_secret() if body.secret is None else check_secret(body.secret)
    elif body.secret is not None:
        raise BadField("secret", "…", "is not used by kind message", limit="kind standard")
    webhook = store.create(
        act.session,
        kind=body.kind,
        url=url,
        events=list(dict.fromkeys(body.events)),
        description=body.description,
        secret=_box(act.context).close(secret or body.url),
        actor=act.who.actor,
    )
    detail = {"kind": body.kind, "url": url, "events": webhook.events}
    act.audit("webhook.created", webhook.id, detail)
    return webhook, secret


def _checked(kind: WebhookKind, url: str) -> str:
    """Return the part of an address that may be shown. Raises BadField for a wrong one."""
    secret = kind is WebhookKind.message
    problem = (people if secret else addresses).problem_of(url)
    if problem is not None:
        raise BadField("url", "…" if secret else url, problem[0], limit=problem[1])
    return people.shown(url) if secret else url


@WEBHOOKS.on_change
def change(act: Act, webhook: WebhookRow, given: dict[str, Any]) -> dict[str, Any]:
    """Change any of url, events, description, state."""
    fields = {name: value for name, value in given.items() if value is not None}
    if (url := fields.get("url")) is not None:
        fields["url"] = _checked(webhook.kind, url)
        if webhook.kind is WebhookKind.message:
            fields["secret"] = _box(act.context).close(url)
    if (state := fields.get("state")) is not None:
        disabled = state is WebhookState.disabled
        fields["reason"] = f"disabled by {act.who.actor}" if disabled else None
        if disabled:
            store.cancel_waiting(act.session, webhook)
    return fields


@WEBHOOKS.on_remove
def remove(act: Act, webhook: WebhookRow) -> dict[str, Any]:
    """Delete a subscription with its deliveries and their log."""
    store.remove(act.session, webhook)
    return {"url": webhook.url}


@router.post("/webhooks/{webhook_id}:rotate", summary="Create a new secret", response_model=CREATED)
def rotate(context: Ctx, who: Admin, webhook_id: str) -> Any:
    """Create a new secret; for a day both secrets sign, so that the receiver can switch."""
    secret = new_secret()
    with context.session() as session:
        before = WEBHOOKS.require(session, who, webhook_id, lock=True)
        if before.kind is not WebhookKind.standard:
            raise BadField("kind", before.kind.value, "signs nothing", limit="standard")
        fresh = {"secret": _box(context).close(secret), "old_secret": before.secret}
        until = {"old_secret_until": utcnow() + OLD_SECRET_LIFE}
        set_values(before, fresh | until)
        Act(context, session, who).audit("webhook.rotated", webhook_id)
    return values(CREATED, before, secret=secret)


@router.post(
    "/webhooks/{webhook_id}:test",
    status_code=202,
    summary="Send a test message",
    response_model=DELIVERY,
)
def test(context: Ctx, who: Admin, webhook_id: str) -> DeliveryRow:
    """Send a message of type `webhook.test`, which is delivered like any other."""
    number = new_id()
    data = {"id": number, "version": 1, "sent_by": who.actor}
    message = {"type": messages.TEST, "timestamp": timestamp(utcnow()), "data": data}
    with context.session() as session:
        _require_active(session, who, webhook_id)
        event = f"{messages.TEST}:{number}"
        (sent,) = store.send(session, [webhook_id], event, messages.TEST, message)
        Act(context, session, who).audit("webhook.tested", webhook_id)
        return session.get_one(DeliveryRow, sent)


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    summary="List deliveries, newest first",
    response_model=Page[DELIVERY],
)
def list_deliveries(
    context: Ctx,
    who: Admin,
    webhook_id: str,
    state: DeliveryState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Any:
    """List sent, waiting and failed deliveries."""
    with context.reading() as session:
        WEBHOOKS.require(session, who, webhook_id)
        page = store.list_deliveries(session, webhook_id, state=state, limit=limit, cursor=cursor)
        return vars(page)


@router.get(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}",
    summary="Show a delivery",
    response_model=DETAILS,
)
def show_delivery(context: Ctx, _who: Admin, webhook_id: str, delivery_id: str) -> Any:
    """Show a delivery with its payload and every try."""
    with context.reading() as session:
        row = require(store.get_delivery(session, webhook_id, delivery_id), "delivery", delivery_id)
        return values(DETAILS, row)


@router.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}:replay",
    status_code=202,
    summary="Send a delivery again",
    response_model=DELIVERY,
)
def replay(context: Ctx, who: Admin, webhook_id: str, delivery_id: str) -> DeliveryRow:
    """Send a delivery again with the same `webhook-id`, so that receivers can detect repeats."""
    with context.session() as session:
        _require_active(session, who, webhook_id)
        row = store.get_delivery(session, webhook_id, delivery_id, locked=True)
        row = require(row, "delivery", delivery_id)
        row.repeat()
        Act(context, session, who).audit(store.REPLAYED, delivery_id)
        return row


def _require_active(session: Session, who: Admin, webhook_id: str) -> None:
    webhook = WEBHOOKS.require(session, who, webhook_id)
    if webhook.state is not WebhookState.active:
        state = webhook.state.value
        raise BadField("state", state, "gets no messages", limit="an active subscription")


def _box(context: Context) -> Box:
    return Box(context.keys)
