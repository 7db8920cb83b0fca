"""Read models of the pages of webhooks: webhooks, their deliveries, and every attempt."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit.list_view import ListView, list_view
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.webhooks import store
from gonogo_service.webhooks.api import DELIVERY_FIELDS
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow, WebhookRow

_RECENT = 50
"""Deliveries among which the newest one that was tried, and those given up, are looked for."""
SENT_AGAIN = timedelta(hours=1)
"""For how long the page says how messages ended that were sent again: several tries of each."""
DELIVERY_LINE: Any = rows.extended_answer(
    DeliveryRow,
    "DeliveryLine",
    **DELIVERY_FIELDS,
    replay=(str | None, "Where it is sent again; null where its webhook is disabled"),
    answered=(str, "The receiver's last response code or the last error"),
)
WEBHOOK_LINE: Any = rows.extended_answer(
    WebhookRow,
    "WebhookLine",
    waiting=int,
    given_up=(int, f"Among the last {_RECENT} deliveries"),
    last=dict[str, Any] | None,
    standing=(str, "Whether messages arrive"),
    mark=str,
)


@dataclass(frozen=True)
class SentAgain:
    """How the messages ended that were sent again in the last hour, in words."""

    words: str
    given_up: int
    retried: int


@dataclass(frozen=True)
class WebhookView(ListView):
    """A webhook with a page of its deliveries, newest first."""

    webhook: Mapping[str, Any]
    sent_again: SentAgain | None
    """None where none was."""


@dataclass(frozen=True)
class DeliveryView:
    """A delivery: its payload as JSON text, and every attempt."""

    webhook: WebhookRow
    delivery: Mapping[str, Any]
    payload: str
    tries: Sequence[DeliveryTryRow]
    at: str | None


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
    address = partial(urls.webhook, webhook_id)
    listed = list_view(page, lambda item: _delivery(item, row), address, now, given)
    return WebhookView(
        **vars(listed), webhook=line(session, row), sent_again=_sent_again(session, row.id, now)
    )


def delivery(
    session: Session, webhook_id: str, delivery_id: str, now: datetime
) -> DeliveryView | None:
    """Return a delivery; None where the webhook has no such delivery."""
    row = store.get(session, webhook_id)
    message = store.get_delivery(session, webhook_id, delivery_id)
    if row is None or message is None:
        return None
    payload = json.dumps(message.payload, indent=2, ensure_ascii=False)
    return DeliveryView(row, _delivery(message, row), payload, message.log, timestamp(now))


def line(session: Session, row: WebhookRow) -> dict[str, Any]:
    """Return a webhook as a line of a list."""
    newest = store.list_deliveries(session, row.id, limit=_RECENT).items
    standing, mark = _standing(row, next((item for item in newest if item.tries), None))
    return rows.values(
        WEBHOOK_LINE,
        row,
        waiting=store.waiting(session, row.id),
        given_up=sum(item.state == DeliveryState.failed for item in newest),
        last=_delivery(newest[0], row) if newest else None,
        standing=standing,
        mark=mark,
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
    return SentAgain(", ".join(parts), counts["given_up"], counts["retried"])


def _standing(row: WebhookRow, tried: DeliveryRow | None) -> tuple[str, Verdict]:
    """Return whether messages arrive, by its state and the newest delivery that was tried."""
    if row.state is not WebhookState.active:
        return "Disabled", Verdict.not_judged
    if tried is None:
        return "Active, nothing sent yet", Verdict.inconclusive
    if tried.state == DeliveryState.delivered:
        return "Active", Verdict.pass_
    return "Failing", Verdict.fail


def _delivery(item: DeliveryRow, webhook: WebhookRow) -> dict[str, Any]:
    answered, last = "", item.last_try
    if last is not None:
        answered = (last.error or "") if last.status is None else f"HTTP {last.status}"
    replay = urls.replay(webhook.id, item.id) if webhook.state is WebhookState.active else None
    return rows.values(DELIVERY_LINE, item, replay=replay, answered=answered)
