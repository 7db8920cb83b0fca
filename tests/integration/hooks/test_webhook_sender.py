"""The sender's edges, without the API: turns, threads, secrets, deadlines, and the log's length."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import httpx
import pytest
from pydantic import SecretStr
from sqlalchemy.orm import Session

from api import SECRET
from gonogo.settings import Settings
from gonogo_service.kit.background_context import open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import DeliveryState, WebhookState
from gonogo_service.kit.principals import Keys
from gonogo_service.webhooks import addresses, deliveries, messages, outbound, secrets
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.outbound import Deadline, Sender
from gonogo_service.webhooks.store import Webhook
from webhook_receiver import Receiver, Reply, wait_for_senders

LOCAL = ("127.0.0.0/8",)


@pytest.fixture
def sender(migrated_sqlite_url: str) -> Iterator[Sender]:
    settings = Settings(
        database_url=migrated_sqlite_url,
        broker_url="redis://127.0.0.1:1/0",
        secret_key=SecretStr(SECRET),
        webhook_private=LOCAL,
    )
    context = open_background_context(settings, threading.Event())
    yield Sender(context, secrets.Box(Keys(SECRET)), chance=random.Random(1))
    context.close()


def subscribe(sender: Sender, url: str, sent: int = 1) -> Webhook:
    """Store a subscription with some messages that are due."""

    def store(session: Session) -> Webhook:
        webhook = webhooks.create(
            session,
            kind="standard",
            url=url,
            events=["*"],
            description="",
            secret=sender.box.close(secrets.make()),
            actor="test",
        )
        for number in range(sent):
            deliveries.add(session, [webhook.id], f"e{number}", messages.TEST, {"data": {}})
        return webhook

    return sender.context.session(store)


def tried(sender: Sender, webhook: Webhook) -> list[deliveries.DeliveryDetails]:
    """Return the deliveries of a subscription with their tries, the oldest first."""

    def read(session: Session) -> list[deliveries.DeliveryDetails]:
        ids = [item.id for item in deliveries.list_(session, webhook.id).items]
        rows = [deliveries.look(session, webhook.id, key) for key in reversed(ids)]
        return [row for row in rows if row is not None]

    return sender.context.reading(read)


def test_no_more_receivers_are_served_at_once_than_there_may_be_threads(
    sender: Sender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "MAX_RECEIVERS", 2)
    gate = threading.Event()
    receiver.replies = [Reply(gate=gate)] * 2
    for _ in range(3):
        subscribe(sender, receiver.url)
    assert sender.run_once() == 2
    assert sender.run_once() == 2
    # a receiver that does not answer must not hold up the end of the process
    assert {thread.daemon for thread in sender._busy.values()} == {True}
    gate.set()
    wait_for_senders()
    assert sender.run_once() == 1
    wait_for_senders()
    assert len(receiver.got) == 3


def test_a_receiver_whose_turn_is_over_gets_the_rest_in_its_next_one(
    sender: Sender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbound, "TURN_S", 0.0)
    subscribe(sender, receiver.url, sent=3)
    for sent in (1, 2, 3):
        sender.run_once()
        wait_for_senders()
        assert len(receiver.got) == sent


def test_a_receiver_that_was_disabled_or_deleted_meanwhile_gets_nothing(
    sender: Sender, receiver: Receiver
) -> None:
    disabled, deleted = subscribe(sender, receiver.url), subscribe(sender, receiver.url)
    due = {message.webhook: message for message in sender.context.reading(deliveries.due)}
    state = {"state": WebhookState.disabled.value}
    sender.context.session(lambda session: webhooks.change(session, disabled.id, state))
    sender.context.session(lambda session: webhooks.delete(session, deleted.id))
    for webhook in (disabled, deleted):
        assert not sender._send(webhook.id, due[webhook.id])
    assert receiver.got == []


def test_the_environment_s_proxy_is_not_used(
    sender: Sender, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would resolve the name again, perhaps to an address that nobody checked."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    local = addresses.networks(LOCAL)
    assert outbound.post(receiver.url, b"{}", {}, local, addresses.resolve).status == 204


def test_the_text_of_an_error_is_cut(sender: Sender) -> None:
    webhook = subscribe(sender, "http://receiver.example/")

    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError("x" * 2 * outbound.MAX_ERROR_CHARS)

    sender.resolver = resolve
    sender.run_once()
    wait_for_senders()
    (delivery,) = tried(sender, webhook)
    (entry,) = delivery.log
    assert entry.error == f"OSError: {'x' * (outbound.MAX_ERROR_CHARS - 9)}"
    assert (delivery.state, delivery.tries) == (DeliveryState.waiting, 1)


def test_an_old_secret_signs_until_its_end_and_not_at_it(sender: Sender) -> None:
    until = utcnow()
    old, new = (sender.box.close(text) for text in ("whsec_old", "whsec_new"))
    stored = sender.context.reading(
        lambda session: webhooks.signing(session, subscribe(sender, "http://x/").id)
    )
    assert stored is not None
    both = replace(stored, secret=new, old_secret=old, old_secret_until=until)
    assert sender._secrets(both, until - timedelta(microseconds=1)) == ["whsec_new", "whsec_old"]
    assert sender._secrets(both, until) == ["whsec_new"]
    assert sender._secrets(replace(both, old_secret_until=None), until) == ["whsec_new"]


def test_no_more_of_an_answer_is_read_than_the_log_stores() -> None:
    def parts() -> Iterator[bytes]:
        yield b"x" * (outbound.MAX_ANSWER_BYTES - 1)
        yield b"y"
        raise AssertionError("nothing more is read")

    text = outbound._beginning(httpx.Response(200, content=parts()))
    assert text == b"x" * (outbound.MAX_ANSWER_BYTES - 1) + b"y"


def test_a_connection_that_ends_in_time_leaves_no_timer() -> None:
    with Deadline(60.0) as deadline:
        assert deadline._timer.daemon  # nor does an open one hold up the end of the process
        assert not deadline._timer.finished.is_set()
    assert deadline._timer.finished.is_set()
    assert not deadline.passed
