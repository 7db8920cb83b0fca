"""A message that was given up is sent again from its page, with a login, and the page follows
it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from gonogo_service.access.issuing import issue_token
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.states import DeliveryState
from gonogo_storage.messages import deliveries, webhooks
from gonogo_storage.messages.deliveries import Try


def test_a_message_is_sent_again_with_a_click(guarded, page: Page) -> None:
    with guarded.writing() as session:
        token = issue_token(session, "ada", ["admin"], keys=guarded.app.state.context.keys)
        fields = {
            "kind": "standard",
            "url": "https://ci.example/hook",
            "events": ["job.finished"],
            "description": "",
        }
        hook = webhooks.create(session, **fields, secret=None, actor="ada")
        deliveries.add(
            session, [hook.id], "job.finished:1", "job.finished", {"type": "job.finished"}
        )
        (message,) = deliveries.list_(session, hook.id).items
        deliveries.tried(
            session,
            message.id,
            Try(utcnow(), 12.5, 500, None, "broken"),
            state=DeliveryState.failed,
            again_at=None,
        )
    page.goto(f"{guarded.url}/login?next=/webhooks")
    page.get_by_label("token").fill(token)
    page.get_by_role("button", name="log in").click()
    page.get_by_role("link", name="https://ci.example/hook").click()
    row = page.locator("#deliveries tbody tr")
    expect(row).to_contain_text("Gave up")
    page.evaluate("window.here = true")
    row.get_by_role("button", name="send again").click()
    expect(row).to_contain_text("Not delivered yet")
    expect(row.get_by_role("button", name="try now")).to_be_visible()
    assert page.evaluate("window.here")  # not loaded anew
    row.get_by_role("link", name="job.finished").click()
    expect(page.locator("#tries tbody tr")).to_contain_text("500")
    with guarded.reading() as session:
        (again,) = deliveries.list_(session, hook.id).items
    assert again.state == "waiting"
