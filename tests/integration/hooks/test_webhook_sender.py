"""The sender with receivers that are slow, dead, endless or gone: each costs only its own turn."""

from __future__ import annotations

import threading
import time

import pytest

from gonogo_service.background import deliver
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.webhooks import addresses, sending
from running_service import until
from sent_webhooks import LOCAL, Webhooks
from webhook_receiver import Receiver, Reply, wait_for_senders


def post(receiver: Receiver) -> sending.Answer:
    return sending.post(receiver.url, b"{}", {}, addresses.networks(LOCAL), addresses.resolve)


def test_a_slow_receiver_delays_nobody_and_a_dead_one_is_tried_again(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    slow, dead = Receiver(), Receiver()
    dead.close()
    gate = threading.Event()
    slow.replies = [Reply(200, gate=gate)]
    hooks = [webhooks.subscribe(server.url) for server in (slow, dead, receiver)]
    webhooks.test(*hooks)
    before = time.perf_counter()
    webhooks.loop.run_once()
    until(lambda: slow.got and receiver.got and webhooks.deliveries(hooks[1])[0]["tries"])
    asked_at = time.perf_counter()
    assert webhooks.deliveries(hooks[0])[0]["tries"] == 0
    webhooks.loop.run_once()  # the slow one gets one request at a time
    least_ms = 1000 * (time.perf_counter() - asked_at)
    gate.set()
    wait_for_senders()
    most_ms = 1000 * (time.perf_counter() - before)
    deliveries = [webhooks.deliveries(hook)[0] for hook in hooks]
    assert [one["state"] for one in deliveries] == ["delivered", "waiting", "delivered"]
    assert len(slow.got) == 1
    answered, refused, _ = map(webhooks.whole, hooks, deliveries)
    assert least_ms <= answered["log"][0]["duration_ms"] <= most_ms
    assert refused["log"][0]["status"] is None
    assert "ConnectError" in refused["log"][0]["error"]
    slow.close()


def test_a_receiver_that_sends_a_byte_now_and_then_is_not_listened_to_for_ever(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 1.0)
    monkeypatch.setattr(sending, "CONNECT_S", 1.0)
    gate = threading.Event()
    receiver.replies = [Reply(200, gate=gate, drips="head"), Reply(200, gate=gate, drips="body")]
    with pytest.raises(TimeoutError, match="no answer within"):
        post(receiver)
    answer = post(receiver)  # the status says all there is to know
    assert (answer.status, answer.error) == (200, None)
    gate.set()


def test_a_receiver_with_more_messages_than_are_read_at_once_hides_no_other(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "MAX_DUE", 3)
    gate, slow = threading.Event(), Receiver()
    slow.replies = [Reply(200, gate=gate)]
    busy, other = webhooks.subscribe(slow.url), webhooks.subscribe(receiver.url)
    webhooks.test(*[busy] * 4, other)
    webhooks.loop.run_once()
    until(lambda: slow.got, what="the first of many")
    assert receiver.got == []
    webhooks.loop.run_once()
    until(lambda: webhooks.deliveries(other)[0]["state"] == "delivered", what="the other's message")
    assert len(slow.got) == 1
    webhooks.core.stop.set()
    gate.set()
    wait_for_senders()
    slow.close()


def test_no_more_receivers_are_served_at_once_than_there_may_be_threads(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "MAX_RECEIVERS", 2)
    gate = threading.Event()
    receiver.replies = [Reply(gate=gate)] * 2
    webhooks.test(*(webhooks.subscribe(receiver.url) for _ in range(3)))
    for _ in range(2):
        assert webhooks.loop.run_once() == 2
    # a receiver that does not answer must not hold up the end of the process
    assert {thread.daemon for thread in webhooks.loop._busy.values()} == {True}
    gate.set()
    wait_for_senders()
    assert webhooks.loop.run_once() == 1
    wait_for_senders()
    assert len(receiver.got) == 3


def test_a_receiver_whose_turn_is_over_gets_the_rest_in_its_next_one(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliver, "TURN_S", 0.0)
    webhooks.test(*[webhooks.subscribe(receiver.url)] * 3)
    for sent in (1, 2, 3):
        webhooks.send()
        assert len(receiver.got) == sent


def test_a_message_that_can_t_be_written_is_a_failed_try_and_stalls_no_other(
    webhooks: Webhooks, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = webhooks.subscribe(receiver.url)
    webhooks.test(webhook, webhook)
    with monkeypatch.context() as patch:
        patch.delattr(sending, "signatures")
        webhooks.send()
    webhooks.send()  # the first waits for its next try, so the second has its turn
    second, first = webhooks.deliveries(webhook)
    states = [(one["state"], one["tries"]) for one in (first, second)]
    assert states == [("waiting", 1), ("delivered", 1)]
    log = webhooks.whole(webhook, first)["log"]
    assert log[0]["error"] == "NameError: name 'signatures' is not defined"


def test_a_receiver_that_was_disabled_or_deleted_meanwhile_gets_nothing(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    disabled, deleted = hooks = [webhooks.subscribe(receiver.url) for _ in range(2)]
    webhooks.test(*hooks)
    due = [webhooks.deliveries(hook)[0]["id"] for hook in hooks]
    path = "/api/v1/webhooks/"
    webhooks.api.client.patch(path + disabled["id"], json={"state": "disabled"})
    webhooks.api.client.delete(path + deleted["id"])
    assert [webhooks.sender.send(delivery) for delivery in due] == [False, False]
    assert receiver.got == []


def test_the_environment_s_proxy_is_not_used(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would resolve the name again, perhaps to an address that nobody checked."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    assert post(receiver).status == 204


def test_the_text_of_an_error_is_cut(webhooks: Webhooks) -> None:
    webhook = webhooks.subscribe("http://receiver.example/")

    def resolve(_host: str, _port: int) -> list[str]:
        raise OSError("x" * 2 * sending.MAX_ERROR_CHARS)

    webhooks.sender.resolver = resolve
    webhooks.test(webhook)
    webhooks.send()
    (delivery,) = webhooks.deliveries(webhook)
    assert (delivery["state"], delivery["tries"]) == (DeliveryState.waiting, 1)
    error = f"OSError: {'x' * (sending.MAX_ERROR_CHARS - 9)}"
    assert webhooks.whole(webhook, delivery)["log"][0]["error"] == error


def test_no_more_of_an_answer_is_kept_than_the_log_stores(receiver: Receiver) -> None:
    receiver.replies = [Reply(200, body=b"x" * (2 * sending.MAX_ANSWER_BYTES))]
    assert post(receiver).text == "x" * sending.MAX_ANSWER_BYTES
