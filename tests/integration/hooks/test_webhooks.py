"""Webhooks from the API to a real receiver: each due message once, signed, logged, and tried again
as the contract says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from standardwebhooks import Webhook

from api import refusal
from database_params import BOTH
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.webhooks import sending
from sent_webhooks import Webhooks
from stored_jobs import finished
from webhook_receiver import MailServer, Receiver, Reply


@BOTH
def test_a_job_that_ends_is_told_once_signed_and_logged(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    webhook = webhooks.subscribe(receiver.url)
    webhooks.subscribe(receiver.url, events=["flag.resolved"])
    every = webhooks.subscribe(receiver.url.replace("a=1", "a=2"), events=["*"])
    with webhooks.api.context.session() as session:
        job = finished(session).id
    webhooks.fan_out()
    version = webhooks.api.get(f"/jobs/{job}")["version"]
    reference = {"job": job, "version": version}
    for _ in range(2):  # the same event again: no second message
        with webhooks.api.context.session() as session:
            sending.fan_out(session, "job.finished", reference, "https://gonogo.example")
    webhooks.send()
    webhooks.send()
    got, other = sorted(receiver.got, key=lambda one: one.path)
    assert (got.path, other.path) == ("/hook?a=1", "/hook?a=2")
    assert got.headers["host"].startswith("127.0.0.1:")
    message: Any = Webhook(webhook["secret"]).verify(got.body, dict(got.headers))
    assert message == Webhook(every["secret"]).verify(other.body, dict(other.headers))
    url = f"https://gonogo.example/jobs/{job}"
    assert message["type"] == "job.finished"
    assert {"id": job, "url": url, "version": version}.items() <= message["data"].items()
    (delivery,) = webhooks.deliveries(webhook)
    assert (delivery["state"], delivery["tries"]) == ("delivered", 1)
    assert delivery["id"] == got.headers["webhook-id"]
    whole = webhooks.whole(webhook, delivery)
    assert whole["payload"] == message
    assert [entry["status"] for entry in whole["log"]] == [204]


def test_a_day_of_failures_loses_nothing_and_then_gives_up(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    webhook = webhooks.subscribe(receiver.url)
    receiver.replies = [Reply(500)] * 10
    with time_machine.travel(utcnow(), tick=False) as clock:
        webhooks.test(webhook)
        for wait in (0, 5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400):
            before = len(receiver.got)
            clock.shift(timedelta(seconds=0.9 * wait))
            webhooks.send()
            assert len(receiver.got) == before + (wait == 0)
            clock.shift(timedelta(seconds=0.21 * wait))
            webhooks.send()
            assert len(receiver.got) == before + 1
        (sent,) = webhooks.deliveries(webhook)
        assert (sent["state"], sent["tries"], sent["due_at"]) == ("failed", 10, None)
        path = f"/api/v1/webhooks/{webhook['id']}/deliveries/{sent['id']}:replay"
        assert webhooks.api.client.post(path).status_code == 202
        webhooks.send()
        (sent,) = webhooks.deliveries(webhook)
    assert (sent["state"], sent["tries"]) == ("delivered", 11)
    assert len({got.headers["webhook-id"] for got in receiver.got}) == 1
    assert len({got.headers["webhook-timestamp"] for got in receiver.got}) == 10


def test_a_receiver_gets_all_its_messages_in_one_turn_until_it_refuses_one(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    webhooks.test(*[webhooks.subscribe(receiver.url)] * 6)
    receiver.replies = [Reply(204), Reply(204), Reply(500)]
    webhooks.send()
    assert len(receiver.got) == 3
    webhooks.send()  # the one that was refused waits for its next try
    assert len(receiver.got) == 6


def test_what_receivers_do_wrong(webhooks: Webhooks, receiver: Receiver) -> None:
    webhook = webhooks.subscribe(receiver.url)
    elsewhere = Reply(302, {"location": "http://127.0.0.1:1/"})
    receiver.replies = [elsewhere, Reply(429, {"retry-after": "3600"}), Reply(410)]
    with time_machine.travel(utcnow(), tick=False) as clock:
        webhooks.test(webhook)
        for seconds in (0, 6, 3500):
            clock.shift(timedelta(seconds=seconds))
            webhooks.send()
        assert len(receiver.got) == 2  # Retry-After is later than the schedule
        webhooks.test(webhook)  # due before the first is tried again
        clock.shift(timedelta(seconds=110))
        webhooks.send()
    second, first = webhooks.deliveries(webhook)
    log = webhooks.whole(webhook, first)["log"]
    assert [entry["status"] for entry in log] == [302, 429]
    assert "not followed" in log[0]["error"]
    # 410 ends the subscription and cancels its waiting messages
    assert (second["state"], first["state"]) == ("failed", "cancelled")
    gone = webhooks.api.get(f"/webhooks/{webhook['id']}")
    assert (gone["state"], gone["reason"]) == ("disabled", "the receiver answered 410 (gone)")
    path = f"/api/v1/webhooks/{webhook['id']}:test"
    assert webhooks.api.client.post(path).status_code == 422


def test_both_secrets_sign_for_a_day_after_a_rotation(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    webhook = webhooks.subscribe(receiver.url)
    new = webhooks.api.client.post(f"/api/v1/webhooks/{webhook['id']}:rotate").json()
    webhooks.test(webhook)
    webhooks.send()
    for secret in (webhook["secret"], new["secret"]):
        Webhook(secret).verify(receiver.got[0].body, dict(receiver.got[0].headers))
    with time_machine.travel(utcnow() + timedelta(hours=25), tick=False):
        webhooks.test(webhook)
        webhooks.send()
    assert receiver.got[1].headers["webhook-signature"].count("v1,") == 1


TOKEN = "abcdefghijklmnopqrstuvwxyz"
"""The secret part of a chat's apprise URL."""


def chat(receiver: Receiver) -> str:
    """Return the apprise URL of a Mattermost that the receiver plays."""
    return f"mmost://{receiver.url.split('/')[2]}/{TOKEN}"


def test_people_get_a_line_in_a_chat_and_by_mail_and_the_address_stays_secret(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    server, api = MailServer(), webhooks.api
    mail = f"mailto://{server.host}/?from=gonogo@lab.example&to=me@lab.example"
    hooks = [webhooks.subscribe(url, kind="message") for url in ("slack://a/b/c", mail)]
    path = f"/api/v1/webhooks/{hooks[0]['id']}"
    assert api.client.patch(path, json={"url": chat(receiver)}).json()["url"] == "mmost://…"
    shown = [(hook["url"], hook["secret"]) for hook in hooks]
    assert shown == [("slack://…", None), ("mailto://…", None)]
    assert api.client.post(f"{path}:rotate").status_code == 422
    with api.context.session() as session:
        link = f"https://gonogo.example/jobs/{finished(session).id}"
    webhooks.fan_out()
    receiver.replies = [Reply(200)]
    webhooks.send()
    server.close()
    (got,), (sent,) = receiver.got, server.got
    assert got.path.endswith(TOKEN)
    assert "webhook-signature" not in got.headers
    assert link in got.message["text"]
    assert link in sent.replace("=\r\n", "")
    for header in ("To: me@lab.example", "Subject: GoNoGo: layernorm_bw on"):
        assert header in sent
    for hook in hooks:
        (delivery,) = webhooks.deliveries(hook)
        assert (delivery["state"], delivery["tries"]) == ("delivered", 1)
    lists = ("/webhooks.json", f"/webhooks/{hooks[0]['id']}.json", "/api/v1/webhooks")
    for address in (*lists, "/webhooks", "/webhooks.csv", "/api/v1/audit", path):
        text = api.client.get(address).text
        assert TOKEN not in text
        assert "me@lab.example" not in text


def test_a_message_to_people_is_tried_again_and_its_error_keeps_the_secret(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    webhook = webhooks.subscribe(chat(receiver), kind="message")
    receiver.replies = [Reply(302, {"location": receiver.url})]
    with time_machine.travel(utcnow(), tick=False):  # what failed is not due again meanwhile
        for sender in (webhooks, webhooks.strict()):
            sender.test(webhook)
            sender.send()
    assert len(receiver.got) == 1  # no redirect was followed, no private address connected to
    sent = webhooks.deliveries(webhook)
    assert [(one["state"], one["tries"]) for one in sent] == [("waiting", 1)] * 2
    refused, redirected = (webhooks.whole(webhook, one)["log"][0]["error"] for one in sent)
    assert "error=302" in redirected
    assert "not a public address" in refused
    assert TOKEN not in redirected + refused


def test_private_addresses_need_a_word_of_the_settings(
    webhooks: Webhooks, receiver: Receiver
) -> None:
    webhook = webhooks.subscribe(receiver.url)
    webhooks.test(webhook)
    webhooks.strict().send()
    assert receiver.got == []
    (delivery,) = webhooks.deliveries(webhook)
    assert "not a public address" in webhooks.whole(webhook, delivery)["log"][0]["error"]


def test_subscriptions_are_changed_and_deleted(webhooks: Webhooks, receiver: Receiver) -> None:
    webhook = webhooks.subscribe(receiver.url, description="ours")
    client, path = webhooks.api.client, f"/api/v1/webhooks/{webhook['id']}"
    assert webhook["secret"] not in client.get(path).text
    disabled = client.patch(path, json={"state": "disabled"}).json()
    assert disabled["reason"] == "disabled by local"
    changed = client.patch(path, json={"state": "active", "events": ["*"]}).json()
    expected = {"state": "active", "reason": None, "events": ["*"], "version": 3}
    assert expected.items() <= changed.items()
    assert client.delete(path).status_code == 200
    assert client.get(path).status_code == 404


MESSAGE = {"url": "slack://a/b/c", "kind": "message"}


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"url": "ftp://x/"}, "url"),
        ({"url": None}, "url"),
        ({"events": []}, "events"),
        ({"events": ["job.started"]}, "events.0"),
        ({"secret": "short"}, "secret"),
        ({**MESSAGE, "secret": "whsec_" + "A" * 40}, "secret"),
        ({**MESSAGE, "url": "https://example.org/"}, "url"),
        ({**MESSAGE, "url": "json://example.org/"}, "url"),
        ({**MESSAGE, "url": "file:///tmp/x"}, "url"),
        ({**MESSAGE, "url": "slack://a/b/c?template=/etc/hosts"}, "url"),
        ({**MESSAGE, "url": "mailto://x.org/?to=me@x.org;pgpkey=/etc/hosts"}, "url"),
    ],
)
def test_a_bad_subscription_stores_nothing(
    webhooks: Webhooks, changes: dict[str, Any], field: str
) -> None:
    before = webhooks.api.rows()
    body = {"url": "https://example.org/", "events": ["*"], **changes}
    answer = webhooks.api.client.post("/api/v1/webhooks", json=body)
    assert refusal(answer) == (422, field)
    assert webhooks.api.rows() == before
