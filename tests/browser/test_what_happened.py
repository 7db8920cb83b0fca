"""After each action the page says what happened, and Undo takes back what can be taken back."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

from populated_database import House

DEVICE_ACTIONS = [
    ("Drain", "takes no more work", "drained"),
    ("Maintenance", "until it is marked as good", "health"),
]
FLAG_ACTIONS = [("Acknowledge", "stays quiet until it expires"), ("Resolve", "reopens when")]


def undo(page: Page) -> None:
    """Press the button, and wait for the page that says so."""
    page.locator("#result").get_by_role("button", name="Undo").click()
    expect(page.locator("#result")).to_have_text("Restored what was there before. ")


def good_device(url: str) -> dict[str, Any]:
    """The address of a device's page, and its API."""
    items = httpx.get(f"{url}/devices.json").json()["items"]
    return next(item for item in items if item["health"] == "good")


@pytest.mark.parametrize(("button", "words", "field"), DEVICE_ACTIONS)
def test_a_device_s_action_says_what_it_does_and_is_undone(
    populated: tuple[Any, House], page: Page, button: str, words: str, field: str
) -> None:
    server, _ = populated
    device = good_device(server.url)
    page.goto(server.url + device["url"])
    page.get_by_label("Reason").fill("a new fan")
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator("#result")).to_contain_text(words)
    changed = httpx.get(f"{server.url}{device['url']}.json").json()["device"][field]
    assert changed != device[field]
    undo(page)
    assert httpx.get(f"{server.url}{device['url']}.json").json()["device"][field] == device[field]


@pytest.mark.parametrize(("button", "words"), FLAG_ACTIONS)
def test_a_flag_s_action_says_what_it_does_and_is_undone(
    populated: tuple[Any, House], page: Page, button: str, words: str
) -> None:
    server, _ = populated
    flag = httpx.get(f"{server.url}/flags.json").json()["items"][-1]
    page.goto(server.url + flag["url"])
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator("#result")).to_contain_text(words)
    undo(page)
    assert httpx.get(f"{server.url}{flag['url']}.json").json()["flag"]["state"] == flag["state"]


def test_a_resubmitted_and_a_new_job_can_be_taken_back(
    populated: tuple[Any, House], page: Page
) -> None:
    server, house = populated
    for path, button, words in (
        (house.addresses["/jobs/{job_id}"][0], "Resubmit", "Submitted again."),
        ("/jobs/new", "Submit", "The job is queued."),
    ):
        page.goto(server.url + path)
        page.get_by_role("button", name=button, exact=True).click()
        expect(page.locator("#result")).to_contain_text(words)
        expect(page).to_have_url(re.compile("/jobs/[0-9a-f-]{36}$"))
        page.locator("#result").get_by_role("button", name="Undo").click()
        expect(page.locator("#result")).to_contain_text("is canceled.")
        expect(page.locator("#banner")).to_contain_text("Canceled")
