"""The pages of webhooks, for administrators only: subscriptions, messages with their tries, and
sending one again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api import Api, in_process
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.model import DeliveryTryRow
from stored_jobs import finished
from stored_webhooks import store_tried

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    """A service that is not embedded."""
    with in_process(migrated_sqlite_url, embedded=False) as service:
        yield service


def store_message(api: Api, **changes: Any) -> tuple[str, str]:
    """Store a subscription with a message that was given up after one try; return their ids."""
    fields: dict[str, Any] = {"kind": "standard", "url": "https://ci.example/hook?key=1"}
    fields |= {"events": ["job.finished"], "description": HOSTILE, **changes}
    payload = {"type": "job.finished", "data": {"words": HOSTILE}}
    message = {"payload": payload, "answer": f"{HOSTILE} is broken"}
    with api.context.session() as session:
        hook = webhooks.create(session, **fields, secret=None, actor="test").id
        return hook, store_tried(session, hook, DeliveryState.failed, **message)


def test_a_message_is_found_looked_at_and_sent_again_from_its_page(api: Api) -> None:
    hook, message = store_message(api)
    admin, csrf = api.browser("admin")
    listed = admin.get("/webhooks.json").json()["items"][0]
    assert (listed["id"], listed["waiting"], listed["last"]["state"]) == (hook, 0, "failed")
    of_hook, of_message = f"/webhooks/{hook}", f"/webhooks/{hook}/deliveries/{message}"
    for path in ("/webhooks", of_hook, f"{of_hook}?state=failed", of_message):
        page = admin.get(path)
        assert page.status_code == 200, page.text
        assert HOSTILE not in page.text
        assert "https://ci.example/hook" in page.text
        assert "key=1" not in page.text
    assert "is broken" in page.text
    (line,) = admin.get(f"{of_hook}.json?state=failed").json()["items"]
    assert f'data-post="{line["replay"]}"' in page.text
    assert admin.post(line["replay"], json={}).status_code == 403  # the page's token is missing
    answer = admin.post(line["replay"], json={}, headers=csrf)
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
    assert admin.get(f"{of_hook}.json?state=failed").json()["items"] == []
    whole = admin.get(f"{of_message}.json").json()
    assert (whole["delivery"]["state"], whole["tries"][0]["status"]) == ("waiting", 500)
    assert "Try now" in admin.get(of_message).text
    sent = admin.post(f"/api/v1{of_hook}:test", json={}, headers=csrf).json()
    tested = admin.get(f"{of_hook}/deliveries/{sent['id']}.json").json()
    assert tested["delivery"]["type"] == "webhook.test"


def test_a_failing_webhook_needs_somebody_until_it_is_disabled_and_told_nothing(api: Api) -> None:
    hook, message = store_message(api, kind="message", url="slack://…")
    admin, _ = api.browser("admin")
    with api.context.session() as session:
        finished(session)  # an empty service has another first page
    need = f'<a class="need v-error" href="/webhooks/{hook}">'
    assert need in admin.get("/").text
    with api.context.session() as session:
        webhooks.disable(session, hook, "the receiver answered 410 (gone)")
    assert need not in admin.get("/").text
    for path in ("/webhooks", f"/webhooks/{hook}", f"/webhooks/{hook}/deliveries/{message}"):
        page = admin.get(path).text
        assert "slack://…" in page
        assert "data-post" not in page
    assert "410 (gone)" in admin.get("/webhooks").text


def test_pages_of_webhooks_are_closed_to_others_and_say_what_is_not_there(api: Api) -> None:
    hook, message = store_message(api)
    reader, _ = api.browser("submit")
    admin, _ = api.browser("admin")
    for path in ("/webhooks", f"/webhooks/{hook}", f"/webhooks/{hook}/deliveries/{message}"):
        for url in (path, f"{path}.json"):
            answer = reader.get(url)
            assert (answer.status_code, "ci.example" in answer.text) == (403, False)
    for path in (f"/webhooks/{new_id()}", "/webhooks/x", f"/webhooks/{hook}/deliveries/{new_id()}"):
        assert admin.get(path).status_code == admin.get(f"{path}.json").status_code == 404
    assert admin.get("/webhooks?cursor=x").status_code == 400
    refused = admin.get("/webhooks.json?cursor=x").headers["content-type"]
    assert refused == "application/problem+json"


def test_messages_given_up_and_those_that_wait_for_another_attempt_are_sent_again_at_once(
    api: Api,
) -> None:
    hook, _ = store_message(api)
    with api.context.session() as session:
        for state in (DeliveryState.waiting, DeliveryState.delivered):
            store_tried(session, hook, state, payload={"n": 1})
    admin, csrf = api.browser("admin")
    view = admin.get(f"/webhooks/{hook}.json").json()
    assert view["webhook"]["standing"] == "Active"
    late = [item["replay"] for item in view["items"] if item["state"] != "delivered"]
    page = admin.get(f"/webhooks/{hook}").text
    assert f'data-post-all="{late[1]} {late[0]}"' in page
    assert "1 message was given up, 1 message waits for another attempt." in page
    for path in ("/webhooks", f"/webhooks/{hook}"):  # active again, and one is lost all the same
        given_up = f'<a href="/webhooks/{hook}?state=failed">1 message given up</a>'
        assert given_up in admin.get(path).text
    for replay in late:
        assert admin.post(replay, json={}, headers=csrf).status_code == 202
    again = admin.get(f"/webhooks/{hook}.json").json()["sent_again"]
    assert again["words"] == "0 of 2 delivered, 2 not sent yet"
    with api.context.session() as session:
        for replay, ended in zip(late, (None, DeliveryState.failed), strict=True):
            delivery = replay.rpartition("/")[2].removesuffix(":replay")
            failed = DeliveryTryRow(at=utcnow(), duration_ms=1.0, status=500)
            webhooks.tried(session, delivery, failed, ended=ended)
    again = admin.get(f"/webhooks/{hook}.json").json()["sent_again"]
    assert again == {"words": "0 of 2 delivered, 2 failed", "given_up": 1, "retried": 1}
