"""A message that was given up is sent again from its page, with a login, and the page follows
it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

import stored_webhooks
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import DeliveryState
from gonogo_service.webhooks import store as webhooks
from gonogo_service.webhooks.model import DeliveryTryRow


def test_a_message_is_sent_again_with_a_click_and_a_form_adds_a_webhook(
    guarded, page: Page, login, watch
) -> None:
    with guarded.writing() as session:
        fields = {
            "kind": "standard",
            "url": "https://ci.example/hook",
            "events": ["job.finished"],
            "description": "",
        }
        hook = webhooks.create(session, **fields, secret=None, actor="ada")
        stored_webhooks.store_tried(session, hook.id, DeliveryState.failed, answer="broken")
    login(page, guarded, "admin", "/webhooks")
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
    page.goto(f"{guarded.url}/webhooks/new")
    page.get_by_label("address").fill("ftp://ci.example")
    expect(page.locator("#e-url")).to_contain_text("must be an absolute address")
    watch.mean("422")
    page.get_by_label("address").fill("https://ci.example/second")
    expect(page.locator("#checked")).to_have_text("Every check passed.")
    page.get_by_role("button", name="Create the webhook").click()
    expect(page.locator("#result")).to_contain_text("whsec_")
    page.get_by_role("link", name="Open the webhook").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("https://ci.example/second")
    with guarded.reading() as session:
        (again,) = webhooks.list_deliveries(session, hook.id, limit=50).items
    assert again.state == "waiting"


def test_the_page_counts_how_messages_ended_that_were_sent_again(server, page: Page, watch) -> None:
    def attempt(delivery_id: str, delivered: bool) -> None:
        state = DeliveryState.delivered if delivered else DeliveryState.failed
        status = 200 if delivered else 500
        answer = DeliveryTryRow(at=utcnow(), duration_ms=12.5, status=status)
        with server.writing() as session:
            webhooks.tried(session, delivery_id, answer, ended=state)

    with server.writing() as session:
        hook_id = stored_webhooks.with_messages(session, 13)
        messages = [item.id for item in webhooks.list_deliveries(session, hook_id, limit=50).items]
    for message in messages:
        attempt(message, delivered=False)
    page.goto(f"{server.url}/webhooks/{hook_id}?state=failed")
    outcome = page.locator("#sent-again")
    expect(page.locator("#deliveries tbody tr")).to_have_count(13)
    expect(outcome).to_be_empty()
    page.get_by_role("button", name="Send all of them again").click()
    expect(outcome).to_contain_text("0 of 13 delivered, 13 not sent yet")
    for number, message in enumerate(messages):
        attempt(message, delivered=number < 9)
    expect(outcome).to_contain_text("9 of 13 delivered, 4 failed")
    page.reload()  # it is seen later, too
    outcome.get_by_role("link", name="4 messages were given up").click()
    expect(page.locator("#deliveries tbody tr")).to_have_count(4)
