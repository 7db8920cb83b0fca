"""Webhooks: who is told what happens here; the log of every delivery, and sending it again."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, Field

from gonogo_service.access.context import Admin, Context, Ctx
from gonogo_service.kit.answers import Cursor, Limit, answer, answer_page, make_router, missing
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_service.webhooks import addresses, messages, secrets
from gonogo_storage.access import audit
from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.ids import new_id
from gonogo_storage.db.states import DeliveryState, WebhookState
from gonogo_storage.messages import deliveries
from gonogo_storage.messages import webhooks as stored

router = make_router("webhooks")

OLD_SECRET_LIFE = timedelta(hours=24)
MOST_EVENTS = 20
MOST_ADDRESS_CHARS = 254

Kind = Literal["standard", "slack", "email"]
Event = Literal[
    "job.finished",
    "run.finished",
    "flag.opened",
    "flag.resolved",
    "bisection.finished",
    "device.health_changed",
    "*",
]
Events = Annotated[list[Event], Field(min_length=1, max_length=MOST_EVENTS)]
Target = Annotated[str, Field(min_length=1, max_length=addresses.MOST_CHARS)]
Description = Annotated[str, Field(max_length=500)]


class WebhookIn(Strict):
    """A subscription to make."""

    url: Target = Field(
        description="http(s) address that gets a POST per event; for `email` an e-mail address"
    )
    events: Events = Field(description="types of events; `*` is every one")
    kind: Kind = Field(
        "standard", description='`standard`: Standard Webhooks; `slack`: {"text": ...}; `email`'
    )
    secret: str | None = Field(
        None, max_length=200, description="`whsec_...` of yours; left out: one is made"
    )
    description: Description = ""


class WebhookChange(Strict):
    """What to change; what is left out stays."""

    url: Target | None = None
    events: Events | None = None
    description: Description | None = None
    state: WebhookState | None = Field(
        None, description="`disabled` cancels what still waits", strict=False
    )


class WebhookOut(BaseModel):
    """A subscription without its secret."""

    id: str
    kind: Kind
    url: str
    events: list[str]
    description: str
    state: WebhookState
    reason: str | None
    created_by: str
    created_at: str
    updated_at: str
    old_secret_until: str | None
    version: int


class WebhookMade(WebhookOut):
    """A subscription with its secret: the only time that anyone sees it."""

    secret: str | None


class WebhookPage(BaseModel):
    """A page of subscriptions, newest first."""

    items: list[WebhookOut]
    next: str | None


class DeliveryOut(BaseModel):
    """A message to a subscription; `id` is the header `webhook-id` of every try."""

    id: str
    webhook: str
    type: str
    state: DeliveryState
    tries: int
    due_at: str | None
    created_at: str
    ended_at: str | None


class TryOut(BaseModel):
    """One try: the receiver's status and the beginning of its answer, or the error that there was
    none.
    """

    number: int
    at: str
    status: int | None
    error: str | None
    answer: str | None
    duration_ms: float


class DeliveryWhole(DeliveryOut):
    """A message with what was sent, and every try."""

    payload: dict[str, Any]
    log: list[TryOut]


class DeliveryPage(BaseModel):
    """A page of deliveries, newest first."""

    items: list[DeliveryOut]
    next: str | None


@router.get(
    "/webhooks",
    responses={200: {"model": WebhookPage}},
    response_class=Response,
    summary="List subscriptions, newest first",
)
def list_webhooks(context: Ctx, _who: Admin, limit: Limit = 50, cursor: Cursor = None) -> Response:
    """Disabled ones included; secrets never."""
    with context.reading() as session:
        return answer_page(stored.list_(session, limit=limit, cursor=cursor), _shown)


@router.post(
    "/webhooks",
    status_code=201,
    responses={201: {"model": WebhookMade}},
    response_class=Response,
    summary="Subscribe",
)
def subscribe(context: Ctx, who: Admin, body: WebhookIn) -> Response:
    """The answer holds the secret that signs the messages; it can't be shown again."""
    _check_target(body.kind, body.url, context)
    if body.kind != "standard" and body.secret is not None:
        raise BadField("secret", "…", f"is not used by kind {body.kind}", limit="kind standard")
    secret = (
        None
        if body.kind != "standard"
        else secrets.make()
        if body.secret is None
        else secrets.check(body.secret)
    )
    sealed = None if secret is None else _box(context).close(secret)
    with context.session() as session:
        made = stored.create(
            session,
            kind=body.kind,
            target=body.url,
            events=list(dict.fromkeys(body.events)),
            description=body.description,
            secret=sealed,
            actor=who.actor,
        )
        detail = {"kind": body.kind, "url": body.url, "events": list(made.events)}
        audit.record(
            session, actor=who.actor, action="webhook.created", subject=made.id, detail=detail
        )
    return answer({**_shown(made), "secret": secret}, 201)


@router.get(
    "/webhooks/{webhook_id}",
    responses={200: {"model": WebhookOut}},
    response_class=Response,
    summary="Look at a subscription",
)
def look(context: Ctx, _who: Admin, webhook_id: str) -> Response:
    """Without its secret."""
    with context.reading() as session:
        return answer(_shown(_found(stored.get(session, webhook_id), webhook_id)))


@router.patch(
    "/webhooks/{webhook_id}",
    responses={200: {"model": WebhookOut}},
    response_class=Response,
    summary="Change a subscription",
)
def change(context: Ctx, who: Admin, webhook_id: str, body: WebhookChange) -> Response:
    """Any of url, events, description, state."""
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
        before = _found(stored.get(session, webhook_id), webhook_id)
        if body.url is not None:
            _check_target(before.kind, body.url, context)
        values = {("target" if name == "url" else name): value for name, value in fields.items()}
        if body.state is not None:
            values["reason"] = (
                f"disabled by {who.actor}" if body.state is WebhookState.disabled else None
            )
        after = _found(stored.change(session, webhook_id, values), webhook_id)
        audit.record(
            session, actor=who.actor, action="webhook.changed", subject=webhook_id, detail=fields
        )
    return answer(_shown(after))


@router.delete(
    "/webhooks/{webhook_id}",
    responses={200: {"model": WebhookOut}},
    response_class=Response,
    summary="Unsubscribe",
)
def unsubscribe(context: Ctx, who: Admin, webhook_id: str) -> Response:
    """Its deliveries and their log go with it."""
    with context.session() as session:
        gone = _found(stored.delete(session, webhook_id), webhook_id)
        audit.record(
            session,
            actor=who.actor,
            action="webhook.deleted",
            subject=webhook_id,
            detail={"url": gone.target},
        )
    return answer(_shown(gone))


@router.post(
    "/webhooks/{webhook_id}:rotate",
    responses={200: {"model": WebhookMade}},
    response_class=Response,
    summary="Make a new secret",
)
def rotate(context: Ctx, who: Admin, webhook_id: str) -> Response:
    """For a day both secrets sign, so that the receiver can change in between."""
    secret = secrets.make()
    with context.session() as session:
        before = _found(stored.get(session, webhook_id), webhook_id)
        if before.kind != "standard":
            raise BadField("kind", before.kind, "has no secret", limit="standard")
        values = {
            "secret": _box(context).close(secret),
            "old_secret": before.secret,
            "old_until": utcnow() + OLD_SECRET_LIFE,
        }
        after = _found(stored.change(session, webhook_id, values), webhook_id)
        audit.record(session, actor=who.actor, action="webhook.rotated", subject=webhook_id)
    return answer({**_shown(after), "secret": secret})


@router.post(
    "/webhooks/{webhook_id}:test",
    status_code=202,
    responses={202: {"model": DeliveryOut}},
    response_class=Response,
    summary="Send a test message",
)
def test(context: Ctx, who: Admin, webhook_id: str) -> Response:
    """A message of type `webhook.test`, delivered like any other."""
    number = new_id()
    message = {
        "type": messages.TEST,
        "timestamp": timestamp(utcnow()),
        "data": {"id": number, "version": 1, "sent_by": who.actor},
    }
    with context.session() as session:
        webhook = _found(stored.get(session, webhook_id), webhook_id)
        if webhook.state is not WebhookState.active:
            raise BadField(
                "state", webhook.state.value, "is told nothing", limit="an active subscription"
            )
        deliveries.add(session, [webhook_id], f"{messages.TEST}:{number}", messages.TEST, message)
        (sent,) = deliveries.list_(session, webhook_id, limit=1).items
    return answer(sent, 202)


@router.get(
    "/webhooks/{webhook_id}/deliveries",
    responses={200: {"model": DeliveryPage}},
    response_class=Response,
    summary="List deliveries, newest first",
)
def list_deliveries(
    context: Ctx,
    _who: Admin,
    webhook_id: str,
    state: DeliveryState | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """What was sent, what waits, what failed."""
    with context.reading() as session:
        _found(stored.get(session, webhook_id), webhook_id)
        return answer_page(
            deliveries.list_(session, webhook_id, state=state, limit=limit, cursor=cursor)
        )


@router.get(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}",
    responses={200: {"model": DeliveryWhole}},
    response_class=Response,
    summary="Look at a delivery",
)
def look_at_delivery(context: Ctx, _who: Admin, webhook_id: str, delivery_id: str) -> Response:
    """With its payload and every try."""
    with context.reading() as session:
        found = deliveries.look(session, webhook_id, delivery_id)
    if found is None:
        raise missing("delivery", delivery_id)
    return answer(found)


@router.post(
    "/webhooks/{webhook_id}/deliveries/{delivery_id}:replay",
    status_code=202,
    responses={202: {"model": DeliveryOut}},
    response_class=Response,
    summary="Send a delivery again",
)
def replay(context: Ctx, who: Admin, webhook_id: str, delivery_id: str) -> Response:
    """Under the same `webhook-id`, so that a receiver that had it can tell."""
    with context.session() as session:
        webhook = _found(stored.get(session, webhook_id), webhook_id)
        if webhook.state is not WebhookState.active:
            raise BadField(
                "state", webhook.state.value, "is told nothing", limit="an active subscription"
            )
        again = deliveries.replay(session, webhook_id, delivery_id)
        if again is None:
            raise missing("delivery", delivery_id)
        audit.record(session, actor=who.actor, action="delivery.replayed", subject=delivery_id)
    return answer(again, 202)


def _shown(webhook: stored.Webhook) -> dict[str, Any]:
    shown = webhook.to_json()
    shown["url"] = shown.pop("target")
    return shown


def _found(webhook: stored.Webhook | None, webhook_id: str) -> stored.Webhook:
    if webhook is None:
        raise missing("webhook", webhook_id)
    return webhook


def _box(context: Context) -> secrets.Box:
    return secrets.Box(context.keys)


def _check_target(kind: str, target: str, context: Context) -> None:
    """Raises BadField for an address that can never be told anything."""
    if kind != "email":
        addresses.check(target)
        return
    local, at, domain = target.rpartition("@")
    if (
        not at
        or not local
        or "." not in domain
        or not target.isascii()
        or not target.isprintable()
        or " " in target
        or "," in target
    ):
        raise BadField(
            "url",
            target,
            "is no e-mail address",
            limit=f"name@domain, at most {MOST_ADDRESS_CHARS} characters",
        )
    if context.settings.smtp_url is None or context.settings.mail_from is None:
        raise BadField(
            "kind", kind, "no mail server is set", limit="GONOGO_SMTP_URL and GONOGO_MAIL_FROM"
        )
