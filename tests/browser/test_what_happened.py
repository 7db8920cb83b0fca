"""After each action the page says what happened, and Undo takes back what can be taken back."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from populated_database import House
from watched_pages import Watch

DEVICE_ACTIONS = [
    ("Drain", "takes no more work", "drained"),
    ("Maintenance", "until it is marked as good", "health"),
]


def undo(page: Page) -> None:
    """Press the button, and wait for the page that says so."""
    page.locator("#result").get_by_role("button", name="Undo").click()
    expect(page.locator("#result")).to_have_text("Restored what was there before. ")


def good_device(url: str) -> dict[str, Any]:
    """Return a good device, as the API answers it."""
    items = httpx.get(f"{url}/devices.json").json()["items"]
    return next(item["device"] for item in items if item["device"]["health"] == "good")


@pytest.mark.parametrize(("button", "words", "field"), DEVICE_ACTIONS)
def test_a_device_s_action_says_what_it_does_and_is_undone(
    populated: tuple[Any, House], page: Page, button: str, words: str, field: str
) -> None:
    server, _ = populated
    device = good_device(server.url)
    address = f"{server.url}/devices/{device['id']}"
    page.goto(address)
    page.get_by_label("Reason").fill("a new fan")
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator("#result")).to_contain_text(words)
    changed = httpx.get(f"{address}.json").json()["device"][field]
    assert changed != device[field]
    undo(page)
    assert httpx.get(f"{address}.json").json()["device"][field] == device[field]


def test_a_resubmitted_and_a_new_job_can_be_taken_back(
    populated: tuple[Any, House], page: Page
) -> None:
    server, house = populated
    for path, button, words in (
        (house.addresses["/jobs/{job_id}"][0], "Resubmit", "Submitted again."),
        ("/jobs/new", "Submit", "The job was submitted."),
    ):
        page.goto(server.url + path)
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator("#result")).to_contain_text(words)
        expect(page).to_have_url(re.compile("/jobs/[0-9a-f-]{36}$"))
        page.locator("#result").get_by_role("button", name="Undo").click()
        expect(page.locator("#result")).to_contain_text("is canceled.")
        expect(page.locator("#banner")).to_contain_text("Canceled")


def test_a_second_tab_does_not_overwrite_what_the_first_one_changed(
    populated: tuple[Any, House], page: Page, watch: Watch
) -> None:
    server, _ = populated
    flag = httpx.get(f"{server.url}/flags.json").json()["items"][-1]
    page.goto(f"{server.url}/flags/{flag['id']}")
    body = {"state": "acknowledged", "reason": "ticket 13"}
    address = f"{server.url}/api/v1/flags/{flag['id']}"
    assert httpx.patch(address, json=body).status_code == 200  # the first tab
    page.get_by_role("button", name="Resolve", exact=True).click()
    expect(page.locator("#said")).to_have_text(
        re.compile("Not saved: .*local set it to acknowledged at .*: ticket 13")
    )
    watch.mean("409")
    assert httpx.get(address).json()["state"] == "acknowledged"
    httpx.patch(address, json={"state": "open", "owner": None, "reason": None})


def test_what_has_ended_is_not_said_to_be_canceled(
    populated: tuple[Any, House], page: Page
) -> None:
    """The job ends between the request and its answer, or before the next page opens."""
    server, house = populated
    path, _, waiting = house.addresses["/jobs/{job_id}"][:3]
    ended = httpx.post(f"{server.url}/api/v1{path}:cancel").json()
    assert ended["state"] == "finished"

    def answer(route: Route) -> None:
        route.fulfill(status=202, json=ended)

    page.route(re.compile(":(cancel|resubmit)$"), answer)
    page.goto(server.url + waiting)
    page.get_by_role("button", name="Cancel", exact=True).click()
    expect(page.locator("#result")).to_contain_text(
        "Nothing was canceled: it had ended before (finished)."
    )
    page.goto(server.url + path)
    page.get_by_role("button", name="Resubmit", exact=True).click()
    expect(page.locator("#result")).to_contain_text("Submitted again.")
    expect(page.locator("#result").get_by_role("button", name="Undo")).to_have_count(0)
