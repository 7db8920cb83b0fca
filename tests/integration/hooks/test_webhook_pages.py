"""The pages of webhooks, for administrators only: subscriptions, messages with their tries, and
sending one again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from api import Api, in_process
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.webhooks import store as webhooks
from stored_webhooks import store_tried

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def api(migrated_sqlite_url: str) -> Iterator[Api]:
    """A service that is not embedded."""
    with in_process(migrated_sqlite_url, embedded=False) as service:
        yield service


def store_message(
    api: Api, state: DeliveryState = DeliveryState.failed, **changes: Any
) -> tuple[str, str]:
    """Store a subscription with one message that was tried once; return their ids."""
    fields = {
        "kind": "standard",
        "url": "https://ci.example/hook?key=1",
        "events": ["job.finished"],
        "description": HOSTILE,
    }
    with api.context.session() as session:
        hook = webhooks.create(session, **{**fields, **changes}, secret=None, actor="test")
        payload = {"type": "job.finished", "data": {"words": HOSTILE}}
        answer = f"{HOSTILE} is broken"
        message = store_tried(session, hook.id, state, payload=payload, answer=answer)
    return hook.id, message


def test_a_message_is_found_looked_at_and_sent_again_from_its_page(api: Api) -> None:
    hook, message = store_message(api)
    admin, csrf = api.browser("admin")
    listed = admin.get("/webhooks.json").json()["items"][0]
    assert (listed["id"], listed["waiting"], listed["last"]["state"]) == (hook, 0, "failed")
    of_hook = f"/webhooks/{hook}"
    paths = ("/webhooks", of_hook, f"{of_hook}?state=failed", f"{of_hook}/deliveries/{message}")
    for path in paths:
        page = admin.get(path)
        assert page.status_code == 200, page.text
        assert HOSTILE not in page.text
        assert "https://ci.example/hook" in page.text
        assert "key=1" not in page.text
    assert "is broken" in page.text
    line = admin.get(f"/webhooks/{hook}.json?state=failed").json()["items"][0]
    assert f'data-post="{line["replay"]}"' in page.text
    assert admin.post(line["replay"], json={}).status_code == 403  # the page's token is missing
    answer = admin.post(line["replay"], json={}, headers=csrf)
    assert (answer.status_code, answer.json()["state"]) == (202, "waiting")
    assert admin.get(f"/webhooks/{hook}.json?state=failed").json()["items"] == []
    whole = admin.get(f"/webhooks/{hook}/deliveries/{message}.json").json()
    assert (
        whole["delivery"]["state"],
        whole["tries"][0]["status"],
    ) == ("waiting", 500)
    assert "Try now" in admin.get(f"/webhooks/{hook}/deliveries/{message}").text
    sent = admin.post(f"/api/v1{of_hook}:test", json={}, headers=csrf).json()
    assert (
        admin.get(f"/webhooks/{hook}/deliveries/{sent['id']}.json").json()["delivery"]["type"]
        == "webhook.test"
    )


def test_a_disabled_webhook_is_told_nothing(
    api: Api,
) -> None:
    hook, message = store_message(api, kind="message", url="slack://…")
    with api.context.session() as session:
        webhooks.disable(session, hook, "the receiver answered 410 (gone)")
    admin, _ = api.browser("admin")
    for path in ("/webhooks", f"/webhooks/{hook}", f"/webhooks/{hook}/deliveries/{message}"):
        page = admin.get(path).text
        assert "slack://…" in page
        assert "data-post" not in page
    assert "410 (gone)" in admin.get("/webhooks").text


def test_pages_of_webhooks_are_closed_to_others_and_say_what_is_not_there(api: Api) -> None:
    hook, message = store_message(api)
    reader, _ = api.browser("submit")
    for path in ("/webhooks", f"/webhooks/{hook}", f"/webhooks/{hook}/deliveries/{message}"):
        for url in (path, path + ".json"):
            answer = reader.get(url)
            assert answer.status_code == 403
            assert "ci.example" not in answer.text
    admin, _ = api.browser("admin")
    for path, status in (
        (f"/webhooks/{new_id()}", 404),
        ("/webhooks/x", 404),
        (f"/webhooks/{hook}/deliveries/{new_id()}", 404),
    ):
        assert admin.get(path).status_code == admin.get(path + ".json").status_code == status
    assert admin.get("/webhooks?cursor=x").status_code == 400
    assert (
        admin.get("/webhooks.json?cursor=x").headers["content-type"] == "application/problem+json"
    )


def test_messages_given_up_and_those_that_wait_for_another_attempt_are_sent_again_at_once(
    api: Api,
) -> None:
    hook, _ = store_message(api)
    with api.context.session() as session:
        for state in (DeliveryState.waiting, DeliveryState.delivered):
            store_tried(session, hook, state, payload={"n": 1})
    admin, _ = api.browser("admin")
    view = admin.get(f"/webhooks/{hook}.json").json()
    late = [item["replay"] for item in view["items"] if item["state"] != "delivered"]
    page = admin.get(f"/webhooks/{hook}").text
    assert f'data-post-all="{late[1]} {late[0]}"' in page
    assert "1 message was given up, 1 message waits for another attempt." in page
    assert view["webhook"]["standing"] == "Active"
    for path in ("/webhooks", f"/webhooks/{hook}"):  # active again, and one is lost all the same
        assert f'<a href="/webhooks/{hook}?state=failed">1 message given up</a>' in (
            admin.get(path).text
        )
