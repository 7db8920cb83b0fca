"""The sender's edges, without the API: turns, threads, secrets, deadlines, and the log's length."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from pydantic import SecretStr
from sqlalchemy import select
from sqlalchemy.orm import Session

from api import SECRET
from gonogo.settings import Settings
from gonogo_service.background import deliver
from gonogo_service.background.deliver import Deliver
from gonogo_service.kit.background_context import open_background_context
from gonogo_service.kit.database.states import DeliveryState, WebhookKind
from gonogo_service.kit.principals import Keys
from gonogo_service.webhooks import addresses, messages, sending, store
from gonogo_service.webhooks.model import DeliveryRow, DeliveryTryRow, WebhookRow
from gonogo_service.webhooks.secrets import Box, new_secret
from gonogo_service.webhooks.sending import Sender
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
    yield Sender(context, Box(Keys(SECRET)))
    context.close()


@pytest.fixture
def loop(sender: Sender) -> Deliver:
    return Deliver(sender.context, {DeliveryRow: sender.send})


def subscribe(sender: Sender, url: str, sent: int = 1) -> WebhookRow:
    """Store a subscription with some messages that are due."""

    def begin(session: Session) -> WebhookRow:
        webhook = store.create(
            session,
            kind=WebhookKind.standard,
            url=url,
            events=["*"],
            description="",
            secret=sender.box.close(new_secret()),
            actor="test",
        )
        for number in range(sent):
            store.send(session, [webhook.id], f"e{number}", messages.TEST, {"data": {}})
        return webhook

    return sender.context.session(begin)


def waiting(sender: Sender) -> list[DeliveryRow]:
    return sender.context.reading(lambda session: list(session.scalars(DeliveryRow.due())))


def test_no_more_receivers_are_served_at_once_than_there_may_be_threads(
    sender: Sender, loop: Deliver, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "MAX_RECEIVERS", 2)
    gate = threading.Event()
    receiver.replies = [Reply(gate=gate)] * 2
    for _ in range(3):
        subscribe(sender, receiver.url)
    assert loop.run_once() == 2
    assert loop.run_once() == 2
    # a receiver that does not answer must not hold up the end of the process
    assert {thread.daemon for thread in loop._busy.values()} == {True}
    gate.set()
    wait_for_senders()
    assert loop.run_once() == 1
    wait_for_senders()
    assert len(receiver.got) == 3


def test_a_receiver_whose_turn_is_over_gets_the_rest_in_its_next_one(
    sender: Sender, loop: Deliver, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "TURN_S", 0.0)
    subscribe(sender, receiver.url, sent=3)
    for sent in (1, 2, 3):
        loop.run_once()
        wait_for_senders()
        assert len(receiver.got) == sent


def test_a_receiver_that_was_disabled_or_deleted_meanwhile_gets_nothing(
    sender: Sender, receiver: Receiver
) -> None:
    disabled, deleted = subscribe(sender, receiver.url), subscribe(sender, receiver.url)
    due = {row.webhook: row.id for row in waiting(sender)}
    sender.context.session(lambda session: store.disable(session, disabled.id, "by hand"))

    def delete(session: Session) -> None:
        store.remove(session, session.get_one(WebhookRow, deleted.id))

    sender.context.session(delete)
    for webhook in (disabled, deleted):
        assert not sender.send(due[webhook.id])
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
    assert sending.post(receiver.url, b"{}", {}, local, addresses.resolve).status == 204


def test_the_text_of_an_error_is_cut(sender: Sender) -> None:
    webhook = subscribe(sender, "http://receiver.example/")

    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError("x" * 2 * sending.MAX_ERROR_CHARS)

    sender.resolver = resolve
    (delivery,) = waiting(sender)
    assert not sender.send(delivery.id)
    with sender.context.engine.connect() as connection:
        (error,) = connection.scalars(select(DeliveryTryRow.error))
    assert error == f"OSError: {'x' * (sending.MAX_ERROR_CHARS - 9)}"
    (delivery,) = sender.context.reading(
        lambda session: store.list_deliveries(session, webhook.id).items
    )
    assert (delivery.state, delivery.tries) == (DeliveryState.waiting, 1)


def test_no_more_of_an_answer_is_kept_than_the_log_stores(receiver: Receiver) -> None:
    receiver.replies = [Reply(200, body=b"x" * (2 * sending.MAX_ANSWER_BYTES))]
    local = addresses.networks(LOCAL)
    answer = sending.post(receiver.url, b"{}", {}, local, addresses.resolve)
    assert answer.text == "x" * sending.MAX_ANSWER_BYTES
