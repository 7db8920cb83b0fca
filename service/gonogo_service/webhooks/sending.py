"""Sends messages to subscriptions.

Delivery is at least once: a process that is killed between the answer and its commit sends the
message again, with the same `webhook-id`.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache

import httpx
import structlog
from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import BackgroundContext
from gonogo_service.kit.database.encoding import encode, utcnow
from gonogo_service.kit.database.states import DeliveryState, WebhookKind, WebhookState
from gonogo_service.webhooks import addresses, messages, people, store
from gonogo_service.webhooks.addresses import Network, Resolve
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow, WebhookRow
from gonogo_service.webhooks.secrets import Box
from gonogo_service.webhooks.signing import signatures

log = structlog.get_logger("gonogo.webhooks")

CONNECT_S, ANSWER_S = 5.0, 15.0
MAX_RETRY_AFTER = timedelta(days=1)
MAX_ANSWER_BYTES = 4096
MAX_ERROR_CHARS = 500
AGENT = "GoNoGo-Webhooks/1"
GONE = 410


def fan_out(session: Session, type_: str, reference: Mapping[str, object], url: str | None) -> None:
    """Store a message for each subscription to an event, in the caller's transaction.

    `reference` is the outbox payload, `url` the address of this service.
    """
    subscribed = [webhook.id for webhook in store.subscribed(session, type_)]
    if subscribed:
        event = messages.event_of(type_, reference)
        payload = messages.payload(session, type_, reference, url)
        store.send(session, subscribed, event, type_, payload)


@dataclass(frozen=True)
class Answer:
    """A receiver's answer, or the error of a try that got none."""

    status: int | None = None
    error: str | None = None
    text: str | None = None
    retry_after: str | None = None


@dataclass
class Sender:
    """Sends one message at a time; tests may replace `resolver`."""

    context: BackgroundContext
    box: Box
    resolver: Resolve = addresses.resolve

    def send(self, delivery_id: str) -> bool:
        """Try to send a message; return whether the receiver may get more now."""
        due = self.context.reading(lambda session: _with_webhook(session, delivery_id))
        if due is None:
            return False
        webhook, delivery = due
        began, moment = time.perf_counter(), utcnow()
        try:
            answer = self._deliver(webhook, delivery, moment)
        except Exception as problem:  # a bug is a failed try, too: it must not stall other messages
            if not isinstance(problem, httpx.HTTPError | OSError | ValueError | addresses.Refused):
                log.exception(
                    "a webhook could not be sent", webhook=webhook.id, delivery=delivery_id
                )
            answer = Answer(error=f"{type(problem).__name__}: {problem}"[:MAX_ERROR_CHARS])
        took_ms = round((time.perf_counter() - began) * 1e3, 3)
        facts = {"status": answer.status, "error": answer.error}
        outcome = DeliveryTryRow(at=moment, duration_ms=took_ms, answer=answer.text, **facts)

        def record(session: Session) -> str | None:
            ended, gone = None, answer.status == GONE
            if answer.status is not None and (gone or 200 <= answer.status < 300):
                ended = DeliveryState.failed if gone else DeliveryState.delivered
            at_least = requested_delay(answer.retry_after, utcnow())
            row = store.tried(session, delivery_id, outcome, ended=ended, at_least=at_least)
            if gone:
                store.disable(session, webhook.id, "the receiver answered 410 (gone)")
            return None if row is None else row.state

        state = self.context.session(record)
        log.info("webhook", webhook=webhook.id, delivery=delivery_id, state=state, **facts)
        return state == DeliveryState.delivered

    def _deliver(self, webhook: WebhookRow, delivery: DeliveryRow, moment: datetime) -> Answer:
        keys = self.secrets(webhook, moment)
        private = self.context.settings.webhook_private
        if webhook.kind is WebhookKind.message:
            error = people.send(keys[0], messages.for_people(delivery.payload), private)
            return Answer(status=200 if error is None else None, error=error)
        text = encode(delivery.payload)
        headers = {
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": signatures(keys, delivery.id, moment, text),
        }
        return post(webhook.url, text.encode(), headers, addresses.networks(private), self.resolver)

    def secrets(self, webhook: WebhookRow, moment: datetime) -> list[str]:
        """Return the keys that sign now: for a day after a rotation the old one, too."""
        encrypted = [webhook.secret]
        if webhook.old_secret_until is not None and moment < webhook.old_secret_until:
            encrypted.append(webhook.old_secret)
        return [self.box.open(secret) for secret in encrypted if secret is not None]


def _with_webhook(session: Session, delivery_id: str) -> tuple[WebhookRow, DeliveryRow] | None:
    delivery = session.get(DeliveryRow, delivery_id)
    if delivery is None or delivery.due_at is None:
        return None
    webhook = session.get(WebhookRow, delivery.webhook)
    return None if webhook is None or webhook.state != WebhookState.active else (webhook, delivery)


def post(
    url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network], resolver: Resolve
) -> Answer:
    """POST to the checked address, without redirects; read only the answer's beginning.

    Raises httpx.HTTPError, OSError, Refused.
    """
    pinned = addresses.pin(url, allowed, resolver)
    usual = {"content-type": "application/json", "user-agent": AGENT, "host": pinned.host}
    # on a thread of its own: the caller's may run a loop
    with ThreadPoolExecutor(1) as thread:
        sent = thread.submit(asyncio.run, _post(pinned, body, {**usual, **headers}))
        return sent.result()


async def _post(pinned: addresses.Pinned, body: bytes, headers: Mapping[str, str]) -> Answer:
    whole_s = CONNECT_S + ANSWER_S  # httpx limits each read, and a receiver may send byte by byte
    answer, text = None, b""
    try:
        # trust_env=False: a proxy of the environment would resolve the name again
        async with (
            asyncio.timeout(whole_s),
            httpx.AsyncClient(
                verify=_tls(), timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S), trust_env=False
            ) as client,
            client.stream(
                "POST",
                pinned.url,
                content=body,
                headers=headers,
                extensions={"sni_hostname": pinned.name},
            ) as answer,
        ):
            async for part in answer.aiter_raw():
                text += part
                if len(text) >= MAX_ANSWER_BYTES:
                    break
    except (httpx.HTTPError, TimeoutError) as problem:
        if answer is None:  # else the status says all there is to know
            if isinstance(problem, TimeoutError):
                raise TimeoutError(f"no answer within {whole_s:.0f} s") from problem
            raise
    place = answer.headers.get("location", "?")[:200]
    return Answer(
        answer.status_code,
        f"redirects to {place}, which is not followed" if answer.is_redirect else None,
        text[:MAX_ANSWER_BYTES].decode("utf-8", "replace"),
        answer.headers.get("retry-after"),
    )


@cache
def _tls() -> ssl.SSLContext:
    """Return the trusted certificates: reading them takes longer than a delivery."""
    return httpx.create_ssl_context(trust_env=False)


def requested_delay(retry_after: str | None, now: datetime) -> timedelta | None:
    """Return the delay of the header Retry-After (seconds or a date), at most a day.

    Returns None for anything else.
    """
    text = (retry_after or "").strip()
    if text.isascii() and text.isdigit():
        return min(timedelta(seconds=int(text[:9])), MAX_RETRY_AFTER)
    try:
        moment = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):  # a year of twenty digits
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), MAX_RETRY_AFTER)
