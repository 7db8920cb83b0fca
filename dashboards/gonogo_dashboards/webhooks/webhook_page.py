"""Read models of the pages of webhooks: webhooks, their deliveries, and every attempt."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.webhooks import store
from gonogo_service.webhooks.api import WEBHOOKS
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow, WebhookRow

_RECENT = 50
"""Deliveries among which the newest one that was tried, and those given up, are looked for."""
SENT_AGAIN = timedelta(hours=1)
"""For how long the page says how messages ended that were sent again: several tries of each."""


@dataclass(frozen=True)
class Standing:
    """A state's label, and the verdict whose shape and color it takes."""

    words: str
    verdict: str


@dataclass(frozen=True)
class DeliveryLine:
    """A delivery in a list; `replay` is null where its webhook is disabled."""

    id: str
    url: str
    type: str
    state: str
    state_words: str
    verdict: str
    tries: int
    created_at: str
    age: str
    due_at: str | None
    due_words: str
    replay: str | None
    answered: str
    """The receiver's last response code or the last error; "" where it was never tried."""


@dataclass(frozen=True)
class WebhookLine:
    """A webhook: its address, its events, its state, its waiting deliveries, and the last one."""

    id: str
    url: str
    kind: str
    target: str
    events: tuple[str, ...]
    description: str
    state: str
    active: bool
    reason: str | None
    created_by: str
    created_at: str | None
    old_secret_until: str | None
    waiting: int
    given_up: int
    """Among the last _RECENT deliveries."""
    given_up_url: str
    last: DeliveryLine | None
    standing: Standing
    """Whether messages arrive: by the state, and the newest delivery that was tried."""
    test: str


@dataclass(frozen=True)
class SentAgain:
    """How the messages ended that were sent again in the last hour, in words."""

    words: str
    given_up: int
    retried: int
    given_up_url: str
    retried_url: str


@dataclass(frozen=True)
class WebhookView(ListView):
    """A webhook with a page of its deliveries, newest first."""

    webhook: WebhookLine
    sent_again: SentAgain | None
    """None where none was."""


@dataclass(frozen=True)
class TryLine:
    """One attempt: its time, its duration, and the receiver's answer or an error."""

    number: int
    at: str
    age: str
    status: int | None
    error: str | None
    answer: str | None
    duration: str
    accepted: bool


@dataclass(frozen=True)
class DeliveryView:
    """A delivery: its payload as JSON text, and every attempt."""

    webhook: WebhookLine
    delivery: DeliveryLine
    payload: str
    tries: tuple[TryLine, ...]
    at: str | None


def webhooks(
    session: Session, _: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> ListView:
    """Return a page of webhooks. Raises BadCursor."""
    page = WEBHOOKS.page(session, limit=limit, cursor=cursor or None)
    return list_view(page, lambda row: _webhook(session, row, now), urls.webhooks, now)


def webhook(
    session: Session,
    webhook_id: str,
    filters: Mapping[str, str],
    cursor: str | None,
    limit: int,
    now: datetime,
) -> WebhookView | None:
    """Return a webhook with its deliveries; None where there is no such webhook.

    Raises BadCursor.
    """
    row = store.get(session, webhook_id)
    if row is None:
        return None
    state = filters.get("state", "")
    given = {"state": state} if state in set(DeliveryState) else {}
    page = store.list_deliveries(session, webhook_id, **given, limit=limit, cursor=cursor or None)
    tries = store.last_tries(session, [item.id for item in page.items])
    listed = list_view(
        page,
        lambda item: _delivery(item, row, now, tries.get(item.id)),
        partial(urls.webhook, webhook_id),
        now,
        given,
    )
    return WebhookView(
        **vars(listed),
        webhook=_webhook(session, row, now),
        sent_again=_sent_again(session, webhook_id, now),
    )


def delivery(
    session: Session, webhook_id: str, delivery_id: str, now: datetime
) -> DeliveryView | None:
    """Return a delivery; None where the webhook has no such delivery."""
    row = store.get(session, webhook_id)
    message = store.get_delivery(session, webhook_id, delivery_id)
    if row is None or message is None:
        return None
    return DeliveryView(
        webhook=_webhook(session, row, now),
        delivery=_delivery(message, row, now),
        payload=json.dumps(message.payload, indent=2, ensure_ascii=False),
        tries=tuple(_try(attempt, now) for attempt in store.tries(session, delivery_id)),
        at=timestamp(now),
    )


def _webhook(session: Session, row: WebhookRow, now: datetime) -> WebhookLine:
    newest = store.list_deliveries(session, row.id, limit=_RECENT).items
    last = store.last_tries(session, [newest[0].id]) if newest else {}
    tried = next((item for item in newest if item.tries), None)
    until = row.old_secret_until
    return from_object(
        WebhookLine,
        row,
        url=urls.webhook(row.id),
        target=row.url.split("?")[0],
        events=tuple(row.events),
        active=row.state is WebhookState.active,
        created_at=timestamp(row.created_at),
        old_secret_until=timestamp(until) if until is not None and until > now else None,
        waiting=store.waiting(session, row.id),
        given_up=sum(item.state == DeliveryState.failed for item in newest),
        given_up_url=urls.webhook(row.id, {"state": DeliveryState.failed.value}),
        last=_delivery(newest[0], row, now, last.get(newest[0].id)) if newest else None,
        standing=_standing(row, tried),
        test=urls.test_webhook(row.id),
    )


def _sent_again(session: Session, webhook_id: str, now: datetime) -> SentAgain | None:
    counts = store.replays(session, webhook_id, now - SENT_AGAIN)
    if not counts:
        return None
    parts = [f"{counts['delivered']:,} of {counts.total():,} delivered"]
    if failed := counts["given_up"] + counts["retried"]:
        parts.append(f"{failed:,} failed")
    if counts["waiting"]:
        parts.append(f"{counts['waiting']:,} not sent yet")
    given_up, retried = (
        urls.webhook(webhook_id, {"state": state.value})
        for state in (DeliveryState.failed, DeliveryState.waiting)
    )
    return SentAgain(", ".join(parts), counts["given_up"], counts["retried"], given_up, retried)


def _standing(row: WebhookRow, tried: DeliveryRow | None) -> Standing:
    if row.state is not WebhookState.active:
        return Standing("Disabled", Verdict.not_judged)
    if tried is None:
        return Standing("Active, nothing sent yet", Verdict.inconclusive)
    if tried.state == DeliveryState.delivered:
        return Standing("Active", Verdict.pass_)
    return Standing("Failing", Verdict.fail)


def _delivery(
    item: DeliveryRow, webhook: WebhookRow, now: datetime, last: DeliveryTryRow | None = None
) -> DeliveryLine:
    state = DeliveryState(item.state)
    retried = state is DeliveryState.waiting and item.tries
    answered = ""
    if last is not None:
        answered = (last.error or "") if last.status is None else f"HTTP {last.status}"
    return from_object(
        DeliveryLine,
        item,
        url=urls.webhook_delivery(webhook.id, item.id),
        state_words="Not delivered yet" if retried else state.label,
        verdict=Verdict.error if retried else state.mark,
        created_at=timestamp(item.created_at),
        age=words.since(item.created_at, now),
        due_at=timestamp(item.due_at),
        due_words=words.until(item.due_at, now),
        replay=urls.replay(webhook.id, item.id) if webhook.state is WebhookState.active else None,
        answered=answered,
    )


def _try(item: DeliveryTryRow, now: datetime) -> TryLine:
    return from_object(
        TryLine,
        item,
        at=timestamp(item.at),
        age=words.since(item.at, now),
        duration=words.duration(item.duration_ms / 1000),
        accepted=item.status is not None and 200 <= item.status < 300,
    )
