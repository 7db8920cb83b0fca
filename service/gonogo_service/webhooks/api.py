"""Outgoing webhooks: subscriptions, the log of every delivery, and resending."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field

from gonogo_service.kit import audit
from gonogo_service.kit.answers import Cursor, Limit, make_router, missing
from gonogo_service.kit.database.encoding import timestamp, utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_service.people.context import Admin, Context, Ctx
from gonogo_service.webhooks import addresses, deliveries, messages, people, secrets
from gonogo_service.webhooks import store as stored
from gonogo_service.webhooks.deliveries import Delivery, DeliveryDetails
from gonogo_service.webhooks.store import Kind, Webhook

router = make_router("webhooks")

OLD_SECRET_LIFE = timedelta(hours=24)
MAX_EVENTS = 20

Event = Literal[
    "job.finished",
    "run.finished",
    "flag.opened",
    "flag.resolved",
    "bisection.finished",
    "device.health_changed",
    "*",
]
Events = Annotated[list[Event], Field(min_length=1, max_length=MAX_EVENTS)]
Target = Annotated[str, Field(min_length=1, max_length=addresses.MAX_CHARS)]
Description = Annotated[str, Field(max_length=500)]


class WebhookIn(Strict):
    """A subscription to create."""

    url: Target = Field(
        description="http(s) address that gets a POST per event; for `message` an apprise URL"
    )
    events: Events = Field(description="Types of events; `*` means all")
    kind: Kind = Field(
        "standard",
        description="`standard`: Standard Webhooks, for programs; `message`: a line to people",
    )
    secret: str | None = Field(
        None, max_length=200, description="Your `whsec_...` secret; omitted: a new one"
    )
    description: Description = ""


class WebhookChange(Strict):
    """The fields to change; omitted fields stay."""

    url: Target | None = None
    events: Events | None = None
    description: Description | None = None
    state: WebhookState | None = Field(
        None, description="`disabled` cancels the waiting messages", strict=False
    )


@dataclass(frozen=True)
class WebhookCreated(Webhook):
    """A subscription with its secret, which can't be shown again."""

    secret: str | None


@router.get(
    "/webhooks",
    summary="List subscriptions, newest first",
)
def list_webhooks(
    context: Ctx, _who: Admin, limit: Limit = 50, cursor: Cursor = None
) -> Page[Webhook]:
    """List subscriptions, including disabled ones, without secrets."""
    with context.reading() as session:
        return stored.list_(session, limit=limit, cursor=cursor)


@router.post(
    "/webhooks",
    status_code=201,
    summary="Create a subscription",
)
def subscribe(context: Ctx, who: Admin, body: WebhookIn) -> WebhookCreated:
    """Create a subscription.

    The answer has the secret that signs the messages; it can't be shown again. The URL of a message
    to people is never shown.
    """
    if body.kind == "message":
        if body.secret is not None:
            raise BadField("secret", "…", "is not used by kind message", limit="kind standard")
        url, secret = people.check(body.url), None
    else:
        url = addresses.check(body.url)
        secret = secrets.make() if body.secret is None else secrets.check(body.secret)
    encrypted = _box(context).close(body.url if secret is None else secret)
    with context.session() as session:
        webhook = stored.create(
            session,
            kind=body.kind,
            url=url,
            events=list(dict.fromkeys(body.events)),
            description=body.description,
            secret=encrypted,
            actor=who.actor,
        )
        detail = {"kind": body.kind, "url": url, "events": webhook.events}
        audit.record(
            session, actor=who.actor, action="webhook.created", subject=webhook.id, detail=detail
        )
    return from_object(WebhookCreated, webhook, secret=secret)


@router.get(
    "/webhooks/{webhook_id}",
    summary="Show a subscription",
)
def look(context: Ctx, _who: Admin, webhook_id: str) -> Webhook:
    """Show a subscription without its secret."""
    with context.reading() as session:
        return _require(stored.get(session, webhook_id), webhook_id)


@router.patch(
    "/webhooks/{webhook_id}",
    summary="Change a subscription",
)
def change(context: Ctx, who: Admin, webhook_id: str, body: WebhookChange) -> Webhook:
    """Change any of url, events, description, state."""
    fields = {
        name: value
        for name, value in body.model_dump(mode="json", exclude_unset=True).items()
        if value is not None
    }
    if not fields:
        raise BadField(
            "body", {}, "nothing to change", limit="any of url, events, description, state"
        )
    with context.session() as session:
        before = _require(stored.get(session, webhook_id), webhook_id)
        hidden: dict[str, Any] = {}
        if body.url is not None and before.kind == "message":
            fields["url"] = people.check(body.url)
            hidden["secret"] = _box(context).close(body.url)
        elif body.url is not None:
            addresses.check(body.url)
        if body.state is not None:
            disabled = body.state is WebhookState.disabled
            hidden["reason"] = f"disabled by {who.actor}" if disabled else None
        after = _require(stored.change(session, webhook_id, fields | hidden), webhook_id)
        audit.record(
            session, actor=who.actor, action="webhook.changed", subject=webhook_id, detail=fields
        )
    return after


@router.delete(
    "/webhooks/{webhook_id}",
    summary="Delete a subscription",
)
def unsubscribe(context: Ctx, who: Admin, webhook_id: str) -> Webhook:
    """Delete a subscription with its deliveries and their log."""
    with context.session() as session:
        deleted = _require(stored.delete(session, webhook_id), webhook_id)
        audit.record(
            session,
            actor=who.actor,
            action="webhook.deleted",
            subject=webhook_id,
            detail={"url": deleted.url},
        )
    return deleted


@router.post(
    "/webhooks/{webhook_id}:rotate",
    summary="Create a new secret",
)
def rotate(context: Ctx, who: Admin, webhook_id: str) -> WebhookCreated:
    """Create a new secret; for a day both secrets sign, so that the receiver can switch."""
    secret = secrets.make()
    with context.session() as session:
        before = stored.signing(session, webhook_id)
        if before is None:
            raise missing("webhook", webhook_id)
        if before.kind != "standard":
            raise BadField("kind", before.kind, "signs nothing", limit="standard")
        values = {
            "secret": _box(context).close(secret),
            "old_secret": before.secret,
            "old_secret_until": utcnow() + OLD_SECRET_LIFE,
        }
        after = _require(stored.change(session, webhook_id, values), webhook_id)
        audit.record(session, actor=who.actor, action="webhook.rotated", subject=webhook_id)
    return from_object(WebhookCreated, after, secret=secret)


@router.post(
    "/webhooks/{webhook_id}:test",
    status_code=202,
    summary="Send a test message",
)
def test(context: Ctx, who: Admin, webhook_id: str) -> Delivery:
    """Send a message of type `webhook.test`, which is delivered like any other."""
    number = new_id()
    message = {
        "type": messages.TEST,
        "timestamp": timestamp(utcnow()),
        "data": {"id": number, "version": 1, "sent_by": who.actor},
    }
    with context.session() as session:
        webhook = _require(stored.get(session, webhook_id), webhook_id)
        if webhook.state is not WebhookState.active:
            raise BadField(
                "state", webhook.state.value, "gets no messages", limit="an active subscription"
            )
        deliveries.add(session, [webhook_id], f"{messages.TEST}:{number}", messages.TEST, message)
        (sent,) = deliveries.list_(session, webhook_id, limit=1).items
        audit.record(session, actor=who.actor, action="webhook.tested", subject=webhook_id)
    return sent


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    summary="List deliveries, newest first",
)
def list_deliveries(
    context: Ctx,
    _who: Admin,
    webhook_id: str,
    state: DeliveryState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Page[Delivery]:
    """List sent, waiting and failed deliveries."""
    with context.reading() as session:
        _require(stored.get(session, webhook_id), webhook_id)
        return deliveries.list_(session, webhook_id, state=state, limit=limit, cursor=cursor)


@router.get(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}",
    summary="Show a delivery",
)
def show_delivery(context: Ctx, _who: Admin, webhook_id: str, delivery_id: str) -> DeliveryDetails:
    """Show a delivery with its payload and every try."""
    with context.reading() as session:
        delivery = deliveries.look(session, webhook_id, delivery_id)
    if delivery is None:
        raise missing("delivery", delivery_id)
    return delivery


@router.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}:replay",
    status_code=202,
    summary="Send a delivery again",
)
def replay(context: Ctx, who: Admin, webhook_id: str, delivery_id: str) -> Delivery:
    """Send a delivery again with the same `webhook-id`, so that receivers can detect repeats."""
    with context.session() as session:
        webhook = _require(stored.get(session, webhook_id), webhook_id)
        if webhook.state is not WebhookState.active:
            raise BadField(
                "state", webhook.state.value, "gets no messages", limit="an active subscription"
            )
        again = deliveries.replay(session, webhook_id, delivery_id)
        if again is None:
            raise missing("delivery", delivery_id)
        audit.record(session, actor=who.actor, action="delivery.replayed", subject=delivery_id)
    return again


def _require(webhook: Webhook | None, webhook_id: str) -> Webhook:
    if webhook is None:
        raise missing("webhook", webhook_id)
    return webhook


def _box(context: Context) -> secrets.Box:
    return secrets.Box(context.keys)
