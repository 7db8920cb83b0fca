"""Charts in a real browser: the wheel scrolls the page, a switch keeps the reader's place, and what
is hollow looks hollow."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, ViewportSize, expect

import nightly_history
import stored_jobs
from populated_database import House

DRAWN = """() => [...document.querySelectorAll('[data-chart]:not([data-marks])')].every(
    (chart) => !chart.checkVisibility()
        || !document.getElementById(chart.dataset.chart)?.textContent)"""


def masked(house: House) -> str:
    """The page of the test with many builds."""
    return next(path for path in house.addresses["/tests/{name}"] if "branch=main" in path)


LOW, LOW_PHONE = {"width": 1280, "height": 500}, {"width": 390, "height": 500}
CHARTED = (
    *("/jobs/{job_id}", "/gauges/{gauge_id}", "/bisections/{bisection_id}"),
    "/devices/{device_id}",
)


@pytest.mark.parametrize("size", [LOW, LOW_PHONE], ids=["desktop", "phone"])
def test_the_wheel_over_a_chart_scrolls_the_page(populated, page: Page, size: ViewportSize) -> None:
    server, house = populated
    page.set_viewport_size(size)
    for path in (masked(house), *(house.addresses[route][0] for route in CHARTED)):
        page.goto(server.url + path)
        drawn = 0
        page.wait_for_function(DRAWN)
        for chart in page.locator(".canvas:has(canvas)").filter(visible=True).all():
            chart.evaluate("(chart) => chart.scrollIntoView({ block: 'center' })")
            box = chart.bounding_box()
            assert box is not None
            before = page.evaluate("scrollY")
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.mouse.wheel(0, -40)
            page.wait_for_function("(before) => scrollY !== before", arg=before)
            drawn += 1
        assert drawn, f"no chart on {path}"


@pytest.mark.parametrize("size", [LOW, LOW_PHONE], ids=["desktop", "phone"])
def test_a_switch_of_a_chart_keeps_the_readers_place(
    populated, page: Page, size: ViewportSize
) -> None:
    server, house = populated
    page.set_viewport_size(size)
    page.goto(server.url + masked(house))
    if size is LOW_PHONE:
        page.get_by_role("button", name="Show: Error over builds").click()
    for label, name in (("over", "by day"), ("statistic", "error ÷ rounding"), ("output", "dbeta")):
        switches = page.get_by_role("navigation", name=label, exact=True)
        switches.evaluate("(nav) => scrollBy(0, nav.getBoundingClientRect().top - 200)")
        switches.get_by_role("link", name=name, exact=True).click()
        chosen = switches.get_by_role("link", name=name, exact=True)
        expect(chosen).to_have_attribute("aria-current", "true")
        expect(chosen).to_be_focused()
        page.wait_for_function(
            "(label) => Math.abs(document.querySelector(`nav[aria-label=${label}]`)"
            ".getBoundingClientRect().top - 200) < 3",
            arg=label,
        )


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
