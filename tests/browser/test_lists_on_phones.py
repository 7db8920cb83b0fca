"""Lists and strips in a real browser: numbers with their names, words that stay whole, and cells
that say what they are."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

import nightly_history
import stored_jobs
from populated_database import House

PHONE = {"width": 390, "height": 844}
LINES = """(element) => {
    const range = document.createRange();
    range.selectNodeContents(element);
    return new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size;
}"""


def test_a_cell_of_a_strip_says_what_it_is_under_the_pointer(server, page: Page) -> None:
    with server.writing() as session:
        nightly_history.night(session, "b1", 1, range(3))
        nightly_history.night(session, "b2", 2, range(4), wrong=True)
    page.goto(f"{server.url}/tests")
    cells = page.locator("#tests svg.builds use")
    expect(cells).to_have_count(2)
    cells.last.hover()
    expect(cells.last.locator("title")).to_have_text("b2: 4 hollow pass")
    expect(cells.first.locator("title")).to_have_count(0)


def test_the_filters_of_the_tests_say_how_many_they_leave(server, page: Page) -> None:
    with server.writing() as session:
        nightly_history.night(session, "b1", 1, range(4), wrong=True, red=range(4))
    page.goto(f"{server.url}/tests")
    expect(page.locator("#chips").get_by_role("link", name="Red 1")).to_be_visible()
    expect(page.locator("#chips").get_by_role("link", name="Blunt 0")).to_be_visible()
    page.get_by_role("link", name="Red 1").click()
    expect(page.locator("#tests tbody tr")).to_have_count(1)


@pytest.mark.parametrize("path", ["/runs", "/search?q=layer"])
def test_a_name_in_a_list_stays_whole_on_a_phone(
    populated: tuple[Any, House], page: Page, path: str
) -> None:
    server, _ = populated
    page.set_viewport_size(PHONE)
    page.goto(server.url + path)
    name = page.locator("main tbody tr").first.locator("a").first
    assert name.evaluate(LINES) == 1


def test_a_device_s_queue_and_serial_number_stay_whole(server, page: Page) -> None:
    with server.writing() as session:
        devices = stored_jobs.fleet(session, stored_jobs.submit(session))
    page.goto(f"{server.url}/devices/{devices['wormhole:3']}")
    facts = page.locator("dl.device-now")
    for name in ("Serial", "Queues"):
        value = facts.locator("dt", has_text=name).locator("xpath=following-sibling::dd[1]")
        assert value.evaluate(LINES) == 1, value.inner_text()


def test_the_matrix_of_a_phone_is_on_the_first_screen(
    populated: tuple[Any, House], page: Page
) -> None:
    server, _ = populated
    page.set_viewport_size(PHONE)
    page.goto(f"{server.url}/matrix")
    row = page.locator("table.matrix tbody tr").nth(2)
    expect(row).to_be_visible()
    assert row.evaluate("(row) => row.getBoundingClientRect().bottom") < PHONE["height"]
    branch = page.locator('select[name="branch"]')
    expect(branch).to_be_hidden()
    page.get_by_role("button", name="Show: Filters").click()
    expect(branch).to_be_visible()
    page.set_viewport_size({"width": 1280, "height": 800})
    expect(branch).to_be_visible()
    expect(page.get_by_role("heading", name="Filters")).to_be_hidden()
