"""Webhooks from the API to a real receiver: each due message once, signed, logged, and tried again
as the contract says."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import time_machine
from pydantic import SecretStr
from sqlalchemy.orm import Session
from standardwebhooks import Webhook

from api import JOB, SECRET, Api, in_process, refusal
from database_params import BOTH
from gonogo_service.background.deliver import Deliver, events
from gonogo_service.devices import store as devices
from gonogo_service.flags.api import FLAGS
from gonogo_service.kit.background_context import BackgroundContext, open_background_context
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox.model import OutboxRow
from gonogo_service.kit.principals import Keys
from gonogo_service.webhooks import addresses, messages, sending, store
from gonogo_service.webhooks.model import DeliveryRow
from gonogo_service.webhooks.secrets import Box
from gonogo_service.webhooks.sending import Sender
from running_service import until
from stored_jobs import device, finished
from webhook_receiver import MailServer, Receiver, Reply, wait_for_senders

NOWHERE = "redis://127.0.0.1:1/0"


@pytest.fixture
def api(lite_database_url: str) -> Iterator[Api]:
    with in_process(lite_database_url, url="https://gonogo.example") as service:
        yield service


@pytest.fixture
def core(api: Api) -> Iterator[BackgroundContext]:
    """The background's context, on the API's database."""
    changes = {
        "broker_url": NOWHERE,
        "secret_key": SecretStr(SECRET),
        "webhook_private": ("127.0.0.0/8",),
    }
    context = open_background_context(api.settings.model_copy(update=changes), threading.Event())
    yield context
    context.close()


@pytest.fixture
def sender(core: BackgroundContext) -> Deliver:
    return sender_of(core)


def sender_of(core: BackgroundContext) -> Deliver:
    return Deliver(core, {DeliveryRow: Sender(core, Box(Keys(SECRET))).send})


def fan_out(core: BackgroundContext) -> None:
    """Deliver the outbox: store a message for each subscription to a job's end."""

    def tell(session: Session, reference: Mapping[str, Any]) -> None:
        sending.fan_out(session, "job.finished", reference, core.settings.url)

    Deliver(core, {OutboxRow: events(core, {"job.finished": tell})}).run_once()
    wait_for_senders()


def subscribe(api: Api, url: str, **changes: Any) -> dict[str, Any]:
    answer = api.client.post(
        "/api/v1/webhooks", json={"url": url, "events": ["job.finished"], **changes}
    )
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def send(sender: Deliver) -> None:
    """Send every message that is due now."""
    sender.run_once()
    wait_for_senders()


def deliveries(api: Api, webhook: dict[str, Any]) -> list[dict[str, Any]]:
    return list(api.get(f"/webhooks/{webhook['id']}/deliveries")["items"])


@BOTH
def test_a_job_that_ends_is_told_once_signed_and_logged(
    api: Api, core: BackgroundContext, sender: Deliver, receiver: Receiver
) -> None:
    webhook = subscribe(api, receiver.url)
    subscribe(api, receiver.url, events=["flag.resolved"])
    with api.context.session() as session:
        job = finished(session).id
    fan_out(core)
    reference = {"job": job, "version": api.get(f"/jobs/{job}")["version"]}
    for _ in range(2):  # the same event again: no second message
        with api.context.session() as session:
            sending.fan_out(session, "job.finished", reference, core.settings.url)
    send(sender)
    send(sender)
    (got,) = receiver.got
    assert got.path == "/hook?a=1"
    assert got.headers["host"].startswith("127.0.0.1:")
    message: Any = Webhook(webhook["secret"]).verify(got.body, dict(got.headers))
    assert message["type"] == "job.finished"
    assert message["data"]["id"] == job
    assert message["data"]["url"] == f"https://gonogo.example/jobs/{job}"
    assert message["data"]["version"] == api.get(f"/jobs/{job}")["version"]
    (webhook_delivery,) = deliveries(api, webhook)
    assert (webhook_delivery["state"], webhook_delivery["tries"], webhook_delivery["id"]) == (
        "delivered",
        1,
        got.headers["webhook-id"],
    )
    whole = api.get(f"/webhooks/{webhook['id']}/deliveries/{webhook_delivery['id']}")
    assert whole["payload"] == message
    assert [entry["status"] for entry in whole["log"]] == [204]


def test_a_day_of_failures_loses_nothing_and_then_gives_up(
    api: Api, sender: Deliver, receiver: Receiver
) -> None:
    webhook = subscribe(api, receiver.url)
    receiver.replies = [Reply(500)] * 10
    with time_machine.travel(utcnow(), tick=False) as clock:
        assert api.client.post(f"/api/v1/webhooks/{webhook['id']}:test").status_code == 202
        for wait in (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400):
            before = len(receiver.got)
            clock.shift(timedelta(seconds=0.9 * wait))
            send(sender)
            assert len(receiver.got) == before + (wait == 0)
            clock.shift(timedelta(seconds=0.21 * wait))
            send(sender)
            assert len(receiver.got) == before + 1
        (sent,) = deliveries(api, webhook)
        assert (sent["state"], sent["tries"], sent["due_at"]) == ("failed", 10, None)
        path = f"/api/v1/webhooks/{webhook['id']}/deliveries/{sent['id']}:replay"
        assert api.client.post(path).status_code == 202
        send(sender)
        (sent,) = deliveries(api, webhook)
    assert (sent["state"], sent["tries"]) == ("delivered", 11)
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    assert len({got.headers["webhook-timestamp"] for got in receiver.got}) == 10


def test_a_receiver_gets_all_its_messages_in_one_turn_until_it_refuses_one(
    api: Api, sender: Deliver, receiver: Receiver
) -> None:
    webhook = subscribe(api, receiver.url)
    for _ in range(6):
        api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
    receiver.replies = [Reply(204), Reply(204), Reply(500)]
    send(sender)
    assert len(receiver.got) == 3
    send(sender)  # the one that was refused waits for its next try
    assert len(receiver.got) == 6


def test_what_receivers_do_wrong(api: Api, sender: Deliver, receiver: Receiver) -> None:
    webhook = subscribe(api, receiver.url)
    receiver.replies = [
        Reply(302, {"location": "http://127.0.0.1:1/"}),
        Reply(429, {"retry-after": "3600"}),
        Reply(410),
    ]
    with time_machine.travel(utcnow(), tick=False) as clock:
        api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
        send(sender)
        clock.shift(timedelta(seconds=6))
        send(sender)
        clock.shift(timedelta(seconds=3500))
        send(sender)
        assert len(receiver.got) == 2  # Retry-After is later than the schedule
        # due before the first is tried again
        api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
        clock.shift(timedelta(seconds=110))
        send(sender)
        second, first = deliveries(api, webhook)
    log = api.get(f"/webhooks/{webhook['id']}/deliveries/{first['id']}")["log"]
    assert [entry["status"] for entry in log] == [302, 429]
    assert "not followed" in log[0]["error"]
    # 410 ends the subscription and cancels its waiting messages
    assert (second["state"], first["state"]) == ("failed", "cancelled")
    gone = api.get(f"/webhooks/{webhook['id']}")
    assert (gone["state"], gone["reason"]) == ("disabled", "the receiver answered 410 (gone)")
    assert api.client.post(f"/api/v1/webhooks/{webhook['id']}:test").status_code == 422


def test_a_slow_receiver_delays_nobody_and_a_dead_one_is_tried_again(
    api: Api, sender: Deliver, receiver: Receiver
) -> None:
    slow, dead = Receiver(), Receiver()
    dead.close()
    gate = threading.Event()
    slow.replies = [Reply(200, gate=gate)]
    hooks = [subscribe(api, server.url) for server in (slow, dead, receiver)]
    for hook in hooks:
        api.client.post(f"/api/v1/webhooks/{hook['id']}:test")
    before = time.perf_counter()
    sender.run_once()
    while not (slow.got and receiver.got) or deliveries(api, hooks[1])[0]["tries"] == 0:
        pass
    asked_at = time.perf_counter()
    assert deliveries(api, hooks[0])[0]["tries"] == 0
    sender.run_once()  # the slow one gets one request at a time
    least_ms = 1000 * (time.perf_counter() - asked_at)
    gate.set()
    wait_for_senders()
    most_ms = 1000 * (time.perf_counter() - before)
    assert [deliveries(api, hook)[0]["state"] for hook in hooks] == [
        "delivered",
        "waiting",
        "delivered",
    ]
    assert len(slow.got) == 1
    answered, refused = (
        api.get(f"/webhooks/{hook['id']}/deliveries/{deliveries(api, hook)[0]['id']}")["log"][0]
        for hook in hooks[:2]
    )
    assert least_ms <= answered["duration_ms"] <= most_ms
    assert refused["status"] is None
    assert "ConnectError" in refused["error"]
    slow.close()


def test_a_receiver_that_sends_a_byte_now_and_then_is_not_listened_to_for_ever(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "ANSWER_S", 1.0)
    monkeypatch.setattr(sending, "CONNECT_S", 1.0)
    gate = threading.Event()
    receiver.replies = [Reply(200, gate=gate, drips="head"), Reply(200, gate=gate, drips="body")]
    local = addresses.networks(["127.0.0.0/8"])
    with pytest.raises(TimeoutError, match="no answer within"):
        sending.post(receiver.url, b"{}", {}, local, addresses.resolve)
    # the status says all there is to know
    answer = sending.post(receiver.url, b"{}", {}, local, addresses.resolve)
    assert (answer.status, answer.error) == (200, None)
    gate.set()


@pytest.mark.slow
def test_a_receiver_with_a_thousand_messages_does_not_hide_the_others(
    api: Api, sender: Deliver, receiver: Receiver
) -> None:
    gate = threading.Event()
    receiver.replies = [Reply(200, gate=gate)]
    busy, other = subscribe(api, receiver.url), subscribe(api, receiver.url)
    with api.context.session() as session:
        for number in range(201):
            store.send(
                session,
                [busy["id"]],
                f"e{number}",
                "webhook.test",
                {"type": "webhook.test", "data": {}},
            )
        store.send(
            session, [other["id"]], "e", "webhook.test", {"type": "webhook.test", "data": {}}
        )
    sender.run_once()
    until(lambda: receiver.got, what="the first of a thousand")
    sender.run_once()
    until(
        lambda: deliveries(api, other)[0]["state"] == "delivered",
        what="the other receiver's message",
    )
    assert len(receiver.got) == 2
    sender.context.stop.set()
    gate.set()
    wait_for_senders()


def test_a_message_that_can_t_be_written_is_a_failed_try_and_stalls_no_other(
    api: Api, sender: Deliver, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    webhook = subscribe(api, receiver.url)
    for _ in range(2):
        api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")

    def signatures(*_: Any) -> str:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(sending, "signatures", signatures)
        send(sender)
    send(sender)  # the first waits for its next try, so the second has its turn
    second, first = deliveries(api, webhook)
    assert [(item["state"], item["tries"]) for item in (first, second)] == [
        ("waiting", 1),
        ("delivered", 1),
    ]
    log = api.get(f"/webhooks/{webhook['id']}/deliveries/{first['id']}")["log"]
    assert log[0]["error"] == "KeyError: 'a bug'"


def test_private_addresses_need_a_word_of_the_settings(
    api: Api, core: BackgroundContext, receiver: Receiver
) -> None:
    webhook = subscribe(api, receiver.url)
    api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
    strict = core.settings.model_copy(update={"webhook_private": ()})
    send(sender_of(replace(core, settings=strict)))
    assert receiver.got == []
    log = api.get(f"/webhooks/{webhook['id']}/deliveries/{deliveries(api, webhook)[0]['id']}")[
        "log"
    ]
    assert "not a public address" in log[0]["error"]


def test_both_secrets_sign_for_a_day_after_a_rotation(
    api: Api, sender: Deliver, receiver: Receiver
) -> None:
    webhook = subscribe(api, receiver.url)
    new = api.client.post(f"/api/v1/webhooks/{webhook['id']}:rotate").json()
    api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
    send(sender)
    for secret in (webhook["secret"], new["secret"]):
        Webhook(secret).verify(receiver.got[0].body, dict(receiver.got[0].headers))
    with time_machine.travel(utcnow() + timedelta(hours=25), tick=False):
        api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
        send(sender)
    assert receiver.got[1].headers["webhook-signature"].count("v1,") == 1


TOKEN = "abcdefghijklmnopqrstuvwxyz"
"""The secret part of a chat's apprise URL."""


def chat(receiver: Receiver) -> str:
    """Return the apprise URL of a Mattermost that the receiver plays."""
    return f"mmost://{receiver.url.split('/')[2]}/{TOKEN}"


def test_people_get_a_line_in_a_chat_and_by_mail_and_the_address_stays_secret(
    api: Api, core: BackgroundContext, sender: Deliver, receiver: Receiver
) -> None:
    server = MailServer()
    mail = f"mailto://{server.host}/?from=gonogo@lab.example&to=me@lab.example"
    hooks = [subscribe(api, url, kind="message") for url in ("slack://a/b/c", mail)]
    path = f"/api/v1/webhooks/{hooks[0]['id']}"
    assert api.client.patch(path, json={"url": chat(receiver)}).json()["url"] == "mmost://…"
    assert [(hook["url"], hook["secret"]) for hook in hooks] == [
        ("slack://…", None),
        ("mailto://…", None),
    ]
    assert api.client.post(f"{path}:rotate").status_code == 422
    with api.context.session() as session:
        job = finished(session).id
    fan_out(core)
    receiver.replies = [Reply(200)]
    send(sender)
    server.close()
    (got,), (sent,) = receiver.got, server.got
    link = f"https://gonogo.example/jobs/{job}"
    assert got.path.endswith(TOKEN)
    assert "webhook-signature" not in got.headers
    assert link in got.message["text"]
    assert "To: me@lab.example" in sent
    assert "Subject: GoNoGo: layernorm_bw on" in sent
    assert link in sent.replace("=\r\n", "")
    for hook in hooks:
        (delivery,) = deliveries(api, hook)
        assert (delivery["state"], delivery["tries"]) == ("delivered", 1)
    shown = ["/webhooks.json", f"/webhooks/{hooks[0]['id']}.json", "/api/v1/webhooks"]
    for address in (*shown, "/webhooks", "/webhooks.csv", "/api/v1/audit", path):
        text = api.client.get(address).text
        assert TOKEN not in text
        assert "me@lab.example" not in text


def test_a_message_to_people_is_tried_again_and_its_error_keeps_the_secret(
    api: Api, core: BackgroundContext, sender: Deliver, receiver: Receiver
) -> None:
    webhook = subscribe(api, chat(receiver), kind="message")
    receiver.replies = [Reply(302, {"location": receiver.url})]
    strict = core.settings.model_copy(update={"webhook_private": ()})
    refusing = sender_of(replace(core, settings=strict))
    with time_machine.travel(utcnow(), tick=False):  # what failed is not due again meanwhile
        for attempted in (sender, refusing):
            api.client.post(f"/api/v1/webhooks/{webhook['id']}:test")
            send(attempted)
    assert len(receiver.got) == 1  # no redirect was followed, no private address connected to
    logged = deliveries(api, webhook)
    assert [(item["state"], item["tries"]) for item in logged] == [("waiting", 1)] * 2
    refused, redirected = (
        api.client.get(f"/api/v1/webhooks/{webhook['id']}/deliveries/{item['id']}").json()["log"][0]
        for item in logged
    )
    assert "error=302" in redirected["error"]
    assert "not a public address" in refused["error"]
    assert TOKEN not in redirected["error"] + refused["error"]


def test_every_kind_of_event_is_told_in_words(migrated_sqlite_url: str) -> None:
    with in_process(migrated_sqlite_url) as api:
        suite = {
            "name": "nightly",
            "entries": [{"name": "tiny", "test": JOB["test"], "seeds": {"start": 0, "count": 1}}],
        }
        run = api.client.post("/api/v1/runs", json={"suite": suite, "builds": ["tt-train-2025"]})
        assert run.status_code == 202, run.text
        with api.context.session() as session:
            finished(session)
            (flag,) = FLAGS.page(session).items
            device(session)
            (stored_device,) = devices.list_(session, now=utcnow())
            of_flag = {"flag": flag.id}
            payloads = {
                "run.finished": {"run": run.json()["id"]},
                "flag.opened": of_flag,
                "flag.resolved": of_flag,
                "device.health_changed": {"device": stored_device.id},
            }
            for type_, payload in payloads.items():
                message = messages.payload(session, type_, payload, "https://gonogo.example/")
                assert message["data"]["version"] >= 1
                assert message["data"]["id"] in message["data"]["url"]
                assert messages.sentence(message).endswith(message["data"]["url"])
                if type_.startswith("flag."):
                    words = flag.evidence["diagnosis"] or flag.evidence["sentence"]
                    assert message["data"]["sentence"] == words
            assert messages.payload(session, "job.finished", {"job": flag.id}, None)["data"] == {
                "job": flag.id
            }  # there is no such job
            of_run = messages.payload(session, "run.finished", payloads["run.finished"], None)
            assert (
                messages.sentence(of_run)
                == f"suite nightly on tt-train-2025: running /runs/{run.json()['id']}"
            )


def test_subscriptions_are_changed_and_deleted(api: Api, receiver: Receiver) -> None:
    webhook = subscribe(api, receiver.url, description="ours")
    path = f"/api/v1/webhooks/{webhook['id']}"
    assert webhook["secret"] not in api.client.get(path).text
    disabled = api.client.patch(path, json={"state": "disabled"}).json()
    assert disabled["reason"] == "disabled by local"
    changed = api.client.patch(path, json={"state": "active", "events": ["*"]}).json()
    expected = {"state": "active", "reason": None, "events": ["*"], "version": 3}
    assert {name: changed[name] for name in expected} == expected
    assert api.client.delete(path).status_code == 200
    assert api.client.get(path).status_code == 404


BAD: list[tuple[dict[str, Any], str]] = [
    ({"url": "ftp://x/", "events": ["*"]}, "url"),
    ({"url": "https://example.org/", "events": []}, "events"),
    ({"url": "https://example.org/", "events": ["job.started"]}, "events.0"),
    ({"url": "https://example.org/", "events": ["*"], "secret": "short"}, "secret"),
    (
        {
            "url": "slack://a/b/c",
            "events": ["*"],
            "kind": "message",
            "secret": "whsec_" + "A" * 40,
        },
        "secret",
    ),
    *(
        ({"url": url, "events": ["*"], "kind": "message"}, "url")
        for url in (
            "https://example.org/",
            "json://example.org/",
            "file:///tmp/x",
            "slack://a/b/c?template=/etc/hosts",
            "mailto://example.org/?to=me@example.org;pgpkey=/etc/hosts",
        )
    ),
    ({"events": ["*"]}, "url"),
]


def test_bad_subscriptions_store_nothing(api: Api) -> None:
    before = api.rows()
    for body, field in BAD:
        answer = api.client.post("/api/v1/webhooks", json=body)
        assert refusal(answer) == (422, field), body
    assert api.rows() == before
