"""Charts in a real browser: the wheel scrolls the page, a switch keeps the reader's place, and what
is hollow looks hollow."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from populated_database import House


def masked(house: House) -> str:
    """The page of the test with many builds."""
    return next(path for path in house.addresses["/tests/{name}"] if "branch=main" in path)


@pytest.mark.parametrize("route", ["/tests/{name}", "/jobs/{job_id}"])
def test_the_wheel_over_a_chart_scrolls_the_page(furnished, page: Page, route: str) -> None:
    server, house = furnished
    page.set_viewport_size({"width": 1280, "height": 500})
    tests = route == "/tests/{name}"
    page.goto(server.url + (masked(house) if tests else house.addresses[route][0]))
    charts = page.locator(".canvas:has(canvas)")
    expect(charts.first).to_be_visible()
    for chart in charts.all():
        chart.evaluate("(chart) => chart.scrollIntoView({ block: 'center' })")
        box = chart.bounding_box()
        assert box is not None
        before = page.evaluate("scrollY")
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.wheel(0, -40)
        page.wait_for_function("(before) => scrollY !== before", arg=before)


def test_a_switch_of_a_chart_keeps_the_readers_place(furnished, page: Page) -> None:
    server, house = furnished
    page.goto(server.url + masked(house))
    for label, name in (("over", "by day"), ("statistic", "chi"), ("output", "dbeta")):
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


def test_a_hollow_build_is_no_plain_green_dot(furnished, page: Page) -> None:
    server, house = furnished
    page.goto(server.url + masked(house))
    key = page.locator("#curve-about .key")
    expect(key).to_contain_text("Hollow pass")
    options = page.locator("#chart-curve").text_content()
    assert options is not None
    assert '"$pass_by_tolerance"' in options
