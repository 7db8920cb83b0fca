"""Sends messages to subscriptions.

Each receiver with messages has its own thread, so that a slow one delays nobody else. Delivery is
at least once: a process that is killed between the answer and its commit sends the message again,
with the same `webhook-id`.
"""

from __future__ import annotations

import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache, partial
from typing import Any, Self

import httpx
import structlog
from sqlalchemy.orm import Session

from gonogo_service.kit.background_context import AWAY, BackgroundContext
from gonogo_service.kit.database.encoding import encode, utcnow
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.webhooks import addresses, deliveries, messages, people, schedule, secrets
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.addresses import Network, Refused, Resolve
from gonogo_service.webhooks.deliveries import Message, Try
from gonogo_service.webhooks.signatures import signatures
from gonogo_service.webhooks.store import SigningWebhook

log = structlog.get_logger("gonogo.webhooks")

MAX_RECEIVERS = 8
CONNECT_S, ANSWER_S = 5.0, 15.0
TURN_S = 30.0
"""Maximum time for a receiver; then its other messages wait, so that the next one gets a turn."""
MAX_ANSWER_BYTES = 4096
MAX_ERROR_CHARS = 500
AGENT = "GoNoGo-Webhooks/1"


def fan_out(session: Session, reference: Mapping[str, Any], *, type_: str, url: str | None) -> None:
    """Store a message for each subscription to an event, in the caller's transaction.

    `reference` is the outbox payload, `url` the address of this service.
    """
    subscriptions = webhooks.subscribed(session, type_)
    if subscriptions:
        deliveries.add(
            session,
            [subscription.id for subscription in subscriptions],
            messages.event_of(type_, reference),
            type_,
            messages.payload(session, type_, reference, url),
        )


@dataclass
class Sender:
    """Starts a thread for each receiver with due messages.

    Tests may replace `resolver` and `chance`.
    """

    context: BackgroundContext
    box: secrets.Box
    resolver: Resolve = addresses.resolve
    chance: random.Random = field(default_factory=random.Random)
    _busy: dict[str, threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run_once(self) -> int:
        """Start sending the due messages; return the number of active receivers."""
        with self._lock:
            busy = set(self._busy)
        due = self.context.reading(partial(deliveries.due, without=busy))
        by_receiver: dict[str, list[Message]] = {}
        for delivery in due:
            by_receiver.setdefault(delivery.webhook, []).append(delivery)
        with self._lock:
            for webhook_id, waiting in by_receiver.items():
                if webhook_id in self._busy or len(self._busy) >= MAX_RECEIVERS:
                    continue
                # daemon: a receiver that does not answer must not block the process's end
                thread = threading.Thread(
                    target=self._send_all,
                    args=(webhook_id, waiting),
                    name=f"webhook-{webhook_id}",
                    daemon=True,
                )
                self._busy[webhook_id] = thread
                thread.start()
            return len(self._busy)

    def _send_all(self, webhook_id: str, waiting: Sequence[Message]) -> None:
        until = time.monotonic() + TURN_S
        try:
            for delivery in waiting:
                if (
                    self.context.stop.is_set()
                    or not self._send(webhook_id, delivery)
                    or time.monotonic() > until
                ):
                    return
        except AWAY as problem:
            log.warning(
                "database unavailable; webhooks wait",
                webhook=webhook_id,
                error=str(problem).splitlines()[0],
            )
        except Exception:
            log.exception("a webhook could not be sent", webhook=webhook_id)
        finally:
            with self._lock:
                del self._busy[webhook_id]

    def _send(self, webhook_id: str, delivery: Message) -> bool:
        """Try to send one message; return whether the receiver may get more now."""
        webhook = self.context.reading(lambda session: webhooks.signing(session, webhook_id))
        if webhook is None or webhook.state is not WebhookState.active:
            return False
        began, moment = time.perf_counter(), utcnow()
        answer = _Answer()
        try:
            answer = self._deliver(webhook, delivery, moment)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, Refused) as problem:
            answer = _Answer.failed(problem)
        except Exception as problem:  # a bug is a failed try, too: it must not stall other messages
            log.exception("a webhook could not be sent", webhook=webhook_id, delivery=delivery.id)
            answer = _Answer.failed(problem)
        outcome = Try(
            moment,
            round((time.perf_counter() - began) * 1e3, 3),
            answer.status,
            answer.error,
            answer.text,
        )
        follows = schedule.after(
            delivery.tries + 1, answer.status, answer.retry_after, utcnow(), self.chance
        )
        self.context.session(
            partial(_record, webhook=webhook, delivery=delivery, outcome=outcome, follows=follows)
        )
        log.info(
            "webhook",
            webhook=webhook_id,
            delivery=delivery.id,
            status=answer.status,
            error=answer.error,
            state=follows.state.value,
        )
        return follows.state is DeliveryState.delivered

    def _deliver(self, webhook: SigningWebhook, delivery: Message, moment: datetime) -> _Answer:
        """Send a message. Raises httpx.HTTPError, OSError, Refused, ValueError."""
        keys = self._secrets(webhook, moment)
        if webhook.kind == "message":
            error = people.send(
                keys[0],
                messages.for_people(delivery.payload),
                self.context.settings.webhook_private,
            )
            return _Answer(status=200 if error is None else None, error=error)
        text = encode(delivery.payload)
        headers = {
            "webhook-id": delivery.id,
            "webhook-timestamp": str(int(moment.timestamp())),
            "webhook-signature": signatures(keys, delivery.id, moment, text),
        }
        return post(webhook.url, text.encode(), headers, self._allowed(), self.resolver)

    def _secrets(self, webhook: SigningWebhook, moment: datetime) -> list[str]:
        encrypted = [webhook.secret]
        if webhook.old_secret_until is not None and moment < webhook.old_secret_until:
            encrypted.append(webhook.old_secret)
        return [self.box.open(secret) for secret in encrypted if secret is not None]

    def _allowed(self) -> tuple[Network, ...]:
        return addresses.networks(self.context.settings.webhook_private)


@dataclass(frozen=True)
class _Answer:
    status: int | None = None
    error: str | None = None
    text: str | None = None
    retry_after: str | None = None

    @classmethod
    def failed(cls, problem: Exception) -> Self:
        """Return the answer of a try that got none."""
        return cls(error=f"{type(problem).__name__}: {problem}"[:MAX_ERROR_CHARS])


def post(
    url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network], resolver: Resolve
) -> _Answer:
    """POST to the checked address, without redirects; read only the answer's beginning.

    Raises httpx.HTTPError, OSError, Refused.
    """
    pinned = addresses.pin(url, allowed, resolver)
    all_headers = {
        "content-type": "application/json",
        "user-agent": AGENT,
        "host": pinned.host,
        **headers,
    }
    timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
    # trust_env=False: a proxy of the environment would resolve the name again
    with (
        httpx.Client(
            verify=_tls(), follow_redirects=False, timeout=timeout, trust_env=False
        ) as client,
        Deadline(CONNECT_S + ANSWER_S) as deadline,
    ):
        extensions: dict[str, Any] = {"sni_hostname": pinned.name, "trace": deadline.trace}
        try:
            with client.stream(
                "POST", pinned.url, content=body, headers=all_headers, extensions=extensions
            ) as answer:
                text = _beginning(answer)
        except httpx.HTTPError as problem:
            if deadline.passed:
                raise TimeoutError(f"no answer within {deadline.seconds:.0f} s") from problem
            raise
    error = (
        f"redirects to {answer.headers.get('location', '?')[:200]}, which is not followed"
        if answer.is_redirect
        else None
    )
    return _Answer(
        answer.status_code,
        error,
        text[:MAX_ANSWER_BYTES].decode("utf-8", "replace"),
        answer.headers.get("retry-after"),
    )


@cache
def _tls() -> ssl.SSLContext:
    """Return the trusted certificates: reading them takes longer than a delivery."""
    return httpx.create_ssl_context(trust_env=False)


def _beginning(answer: httpx.Response) -> bytes:
    """Return the part of the body that the log stores.

    Only the status counts, so an incomplete body is not a failure.
    """
    text = b""
    try:
        for part in answer.iter_raw():
            text += part
            if len(text) >= MAX_ANSWER_BYTES:
                break
    except httpx.HTTPError:
        pass
    return text


class Deadline:
    """Limits the total time of a connection.

    httpx limits only each read, and a receiver may send one byte at a time.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds, self.passed = seconds, False
        self._stream: Any = None
        self._timer = threading.Timer(seconds, self._end)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """Remember the connected stream, which httpx reports in its trace."""
        if name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = info["return_value"]

    def _end(self) -> None:
        self.passed = True
        try:
            with socket.socket(
                fileno=os.dup(self._stream.get_extra_info("socket").fileno())
            ) as duplicate:
                # unlike a close, a shutdown wakes the thread that reads
                duplicate.shutdown(socket.SHUT_RDWR)
        except (OSError, AttributeError):  # not connected, or just closed
            pass


def _record(
    session: Session,
    webhook: SigningWebhook,
    delivery: Message,
    outcome: Try,
    follows: schedule.Next,
) -> None:
    deliveries.tried(session, delivery.id, outcome, state=follows.state, again_at=follows.again_at)
    if follows.disable:
        gone = {
            "state": WebhookState.disabled.value,
            "reason": "the receiver answered 410 (gone)",
        }
        webhooks.change(session, webhook.id, gone)
