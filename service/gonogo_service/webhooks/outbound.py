"""Sends what subscriptions wait for. Each receiver has a thread of its own while it has messages: a
slow one delays nobody else.

At least once: a process killed between the answer and its commit sends the message again, under the
same `webhook-id`.
"""

from __future__ import annotations

import os
import random
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Self

import httpx
import structlog
from sqlalchemy.orm import Session

from gonogo_service.access.principals import Keys
from gonogo_service.kit.background_context import AWAY, BackgroundContext
from gonogo_service.webhooks import addresses, mail, messages, schedule, secrets
from gonogo_service.webhooks.addresses import Network, Refused, Resolve
from gonogo_service.webhooks.signatures import signatures
from gonogo_storage.db.encoding import encode, utcnow
from gonogo_storage.db.states import WebhookState
from gonogo_storage.messages import deliveries, webhooks
from gonogo_storage.messages.deliveries import Delivery, Try
from gonogo_storage.messages.webhooks import Webhook

log = structlog.get_logger("gonogo.webhooks")

MOST_RECEIVERS = 8
CONNECT_S, ANSWER_S = 5.0, 15.0
TURN_S = 30.0
"""After so long a receiver that takes its time makes room for the next one; what it still has to
get waits for its next turn."""
MOST_ANSWER_BYTES = 4096
AGENT = "GoNoGo-Webhooks/1"


def fan_out(context: BackgroundContext, type_: str, letter: Mapping[str, Any]) -> None:
    """A letter of the outbox becomes a message for each subscription to its type."""

    def work(session: Session) -> None:
        wanted = webhooks.subscribed(session, type_)
        if wanted:
            message = messages.payload(session, type_, letter, context.settings.url)
            deliveries.add(
                session,
                [each.id for each in wanted],
                messages.event_of(type_, letter),
                type_,
                message,
            )

    context.session(work)


@dataclass
class Sender:
    """Gives each receiver with due messages a thread. `resolver` and `chance` are the world's, or a
    test's.
    """

    context: BackgroundContext
    box: secrets.Box
    resolver: Resolve = addresses.resolve
    chance: random.Random = field(default_factory=random.Random)
    _busy: dict[str, threading.Thread] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run_once(self) -> int:
        """Start what is due; the number of receivers that are being told something."""
        with self._lock:
            busy = set(self._busy)
        found = self.context.reading(partial(deliveries.due, without=busy))
        by_receiver: dict[str, list[Delivery]] = {}
        for each in found:
            by_receiver.setdefault(each.webhook_id, []).append(each)
        with self._lock:
            for webhook_id, waiting in by_receiver.items():
                if webhook_id in self._busy or len(self._busy) >= MOST_RECEIVERS:
                    continue
                # daemon: a receiver that does not answer must not hold the process when it stops
                thread = threading.Thread(
                    target=self._tell,
                    args=(webhook_id, waiting),
                    name=f"webhook-{webhook_id}",
                    daemon=True,
                )
                self._busy[webhook_id] = thread
                thread.start()
            return len(self._busy)

    def join(self, timeout_s: float) -> None:
        """Wait for those that are under way."""
        until = time.monotonic() + timeout_s
        with self._lock:
            threads = list(self._busy.values())
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _tell(self, webhook_id: str, waiting: Sequence[Delivery]) -> None:
        until = time.monotonic() + TURN_S
        try:
            for each in waiting:
                if (
                    self.context.stop.is_set()
                    or not self._send(webhook_id, each)
                    or time.monotonic() > until
                ):
                    return
        except AWAY as problem:
            log.warning(
                "away; webhooks wait", webhook=webhook_id, error=str(problem).splitlines()[0]
            )
        except Exception:
            log.exception("a webhook could not be sent", webhook=webhook_id)
        finally:
            with self._lock:
                del self._busy[webhook_id]

    def _send(self, webhook_id: str, delivery: Delivery) -> bool:
        """One try; whether the receiver may be told more now."""
        webhook = self.context.reading(lambda session: webhooks.get(session, webhook_id))
        if webhook is None or webhook.state is not WebhookState.active:
            return False
        began, moment = time.perf_counter(), utcnow()
        asked = _Answer()
        try:
            asked = self._ask(webhook, delivery, moment)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, Refused) as problem:
            asked = _Answer(error=f"{type(problem).__name__}: {problem}"[:500])
        outcome = Try(
            moment,
            round((time.perf_counter() - began) * 1e3, 3),
            asked.status,
            asked.error,
            asked.text,
        )
        follows = schedule.after(
            delivery.tries + 1, asked.status, asked.retry_after, utcnow(), self.chance
        )
        self.context.session(
            partial(_book, webhook=webhook, delivery=delivery, outcome=outcome, follows=follows)
        )
        log.info(
            "webhook",
            webhook=webhook_id,
            delivery=delivery.id,
            status=asked.status,
            error=asked.error,
            state=follows.state.value,
        )
        return asked.status is not None and asked.status < 300

    def _ask(self, webhook: Webhook, delivery: Delivery, moment: datetime) -> _Answer:
        """Raises httpx.HTTPError, OSError, Refused, ValueError."""
        if webhook.kind == "email":
            return _Answer(
                status=mail.send(
                    self.context.settings,
                    webhook.target,
                    messages.sentence(delivery.payload),
                    delivery,
                )
            )
        if webhook.kind == "slack":
            body, headers = encode({"text": messages.for_slack(delivery.payload)}).encode(), {}
        else:
            body = encode(delivery.payload).encode()
            headers = {
                "webhook-id": delivery.id,
                "webhook-timestamp": str(int(moment.timestamp())),
                "webhook-signature": signatures(
                    self._secrets(webhook, moment), delivery.id, int(moment.timestamp()), body
                ),
            }
        return post(webhook.target, body, headers, self._allowed(), self.resolver)

    def _secrets(self, webhook: Webhook, moment: datetime) -> list[str]:
        sealed = [webhook.secret]
        if webhook.old_until is not None and moment < webhook.old_until:
            sealed.append(webhook.old_secret)
        return [self.box.open(each) for each in sealed if each is not None]

    def _allowed(self) -> tuple[Network, ...]:
        return addresses.networks(self.context.settings.webhook_private)


@dataclass(frozen=True)
class _Answer:
    status: int | None = None
    error: str | None = None
    text: str | None = None
    retry_after: str | None = None


def post(
    url: str, body: bytes, headers: Mapping[str, str], allowed: Sequence[Network], resolver: Resolve
) -> _Answer:
    """POST to the address that was checked; no redirects, only the answer's beginning. Raises
    httpx.HTTPError, OSError, Refused.
    """
    pinned = addresses.pin(url, allowed, resolver)
    told = {"content-type": "application/json", "user-agent": AGENT, "host": pinned.host, **headers}
    timeout = httpx.Timeout(ANSWER_S, connect=CONNECT_S)
    # trust_env: a proxy of the environment would connect to whatever the name is by then
    with (
        httpx.Client(follow_redirects=False, timeout=timeout, trust_env=False) as client,
        Deadline(CONNECT_S + ANSWER_S) as deadline,
    ):
        extensions: dict[str, Any] = {"sni_hostname": pinned.name, "trace": deadline.trace}
        try:
            with client.stream(
                "POST", pinned.url, content=body, headers=told, extensions=extensions
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
        text[:MOST_ANSWER_BYTES].decode("utf-8", "replace"),
        answer.headers.get("retry-after"),
    )


def _beginning(answer: httpx.Response) -> bytes:
    """Of its body: as much as the log keeps. The status is what counts, so that a body that breaks
    off is no failure.
    """
    text = b""
    try:
        for part in answer.iter_raw():
            text += part
            if len(text) >= MOST_ANSWER_BYTES:
                break
    except httpx.HTTPError:
        pass
    return text


class Deadline:
    """Ends a connection that takes too long as a whole: httpx limits each read alone, and a
    receiver may send a byte now and then.
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
        """Httpx tells of each step: what was connected is what is to be ended."""
        if name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = info["return_value"]

    def _end(self) -> None:
        self.passed = True
        try:
            with socket.socket(
                fileno=os.dup(self._stream.get_extra_info("socket").fileno())
            ) as same:
                same.shutdown(socket.SHUT_RDWR)  # wakes whoever reads, which closing would not
        except (OSError, AttributeError):  # never connected, or over in this moment
            pass


def _book(
    session: Session, webhook: Webhook, delivery: Delivery, outcome: Try, follows: schedule.Next
) -> None:
    deliveries.tried(session, delivery.id, outcome, state=follows.state, again_at=follows.again_at)
    if follows.disable:
        gone = {
            "state": WebhookState.disabled.value,
            "reason": "the receiver answered 410: it is gone",
        }
        webhooks.change(session, webhook.id, gone)


class Cleaner:
    """Forgets deliveries that ended long ago, now and then."""

    EVERY = timedelta(hours=1)

    def __init__(self, context: BackgroundContext, now: Callable[[], datetime] = utcnow) -> None:
        self._context, self._now, self._at = context, now, now()

    def run_once(self) -> int:
        """The number of deliveries forgotten."""
        if self._now() < self._at:
            return 0
        self._at = self._now() + self.EVERY
        return self._context.session(deliveries.purge)


def make(context: BackgroundContext) -> Sender | None:
    """The sender of this process; None without GONOGO_SECRET_KEY, under which secrets are kept."""
    key = context.settings.secret_key
    return None if key is None else Sender(context, secrets.Box(Keys(key.get_secret_value())))
