"""Charts in a real browser: the wheel scrolls the page, a switch keeps the reader's place, and what
is hollow looks hollow."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from populated_database import House

DRAWN = """() => [...document.querySelectorAll('[data-chart]:not([data-marks])')].every(
    (chart) => !chart.checkVisibility()
        || !document.getElementById(chart.dataset.chart)?.textContent)"""


def masked(house: House) -> str:
    """The page of the test with many builds."""
    return next(path for path in house.addresses["/tests/{name}"] if "branch=main" in path)


DESKTOP, PHONE = {"width": 1280, "height": 500}, {"width": 390, "height": 500}
CHARTED = (
    "/tests/{name}",
    "/jobs/{job_id}",
    "/gauges/{gauge_id}",
    "/bisections/{bisection_id}",
    "/devices/{device_id}",
)


@pytest.mark.parametrize(
    ("route", "size"), [*((route, DESKTOP) for route in CHARTED), ("/jobs/{job_id}", PHONE)]
)
def test_the_wheel_over_a_chart_scrolls_the_page(
    populated, page: Page, route: str, size: ViewportSize
) -> None:
    server, house = populated
    page.set_viewport_size(size)
    drawn = 0
    paths = house.addresses[route]
    for path in [masked(house)] if route == "/tests/{name}" else paths[:2]:
        page.goto(server.url + path)
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
    assert drawn, f"no chart on {paths}"


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_a_switch_of_a_chart_keeps_the_readers_place(
    populated, page: Page, size: ViewportSize
) -> None:
    server, house = populated
    page.set_viewport_size(size)
    page.goto(server.url + masked(house))
    if size is PHONE:
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


def test_a_hollow_build_is_no_plain_green_dot(populated, page: Page) -> None:
    server, house = populated
    page.goto(server.url + masked(house))
    key = page.locator("#curve-about .key")
    expect(key).to_contain_text("Hollow pass")
    options = page.locator("#chart-curve").text_content()
    assert options is not None
    assert '"$pass_by_tolerance"' in options
