"""The pages of tests and flags in a real browser: what a reader sees of a masked fix, and how a
reader takes on a flag, with a login too."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from playwright.sync_api import Page, expect

import nightly_history

PHONE = {"width": 390, "height": 844}


def test_the_page_of_a_test_tells_a_masked_fix(server, page: Page) -> None:
    with server.writing() as session:
        key = nightly_history.masked(session)
    page.goto(server.url)
    page.get_by_role("link", name="Tests", exact=True).click()
    page.get_by_role("link", name=re.compile("layernorm_bw")).click()
    variant = "branch=main&arch=wormhole&board=n150"
    expect(page).to_have_url(f"{server.url}/tests/{key}?{variant}")
    figure = page.locator("figure[data-chart=chart-curve]")
    expect(figure).to_have_attribute("data-marks", "4")
    expect(figure).to_contain_text("smaller from fixed-4c1e on")
    page.locator("#builds").get_by_role("link", name="b0304ff7a5").click()
    expect(page.locator("#grade")).to_contain_text("Hollow pass")
    expect(page.locator("#steps li").first).to_contain_text("Fixed")
    masked = page.locator("#steps li").nth(1)
    expect(masked).to_contain_text("Masked, not fixed")
    expect(masked).to_contain_text("s1 is subtracted twice")
    page.get_by_role("link", name="error ÷ rounding").click()
    expect(figure).to_contain_text("error ÷ rounding of 4 builds")
    # a phone shows all of it without sideways scrolling
    page.set_viewport_size(PHONE)
    page.wait_for_function(
        "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )  # charts follow a moment later
    shown = httpx.get(
        f"{server.url}/tests/{key}.json?build=b0304ff7a5&metric=rounding_ratio"
    ).json()
    assert (shown["status"]["build"], shown["curve"]["metric"], len(shown["curve"]["points"])) == (
        "b0304ff7a5",
        "rounding_ratio",
        4,
    )


def test_a_flag_is_taken_on_and_resolved_on_its_page(guarded, page: Page, login, watch) -> None:
    with guarded.writing() as session:
        nightly_history.masked(session)
    login(page, guarded, "submit", "/flags?kind=passes_by_tolerance")
    page.locator(".triage li a").first.click()
    expect(page.locator("#banner")).to_contain_text("s1 is subtracted twice")
    expect(page.locator("code").filter(has_text="gonogo check")).to_contain_text(
        "--build b0304ff7a5"
    )
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("#said")).to_contain_text("reason: is required to acknowledge a flag")
    watch.mean("422")
    page.get_by_label("reason").fill("known since December")
    end = f"{datetime.now(UTC) + timedelta(days=30):%Y-%m-%d}"
    page.get_by_label("acknowledged until").fill(end)
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("#banner")).to_contain_text(f": known since December; until {end}")
    expect(page.locator("#effect")).to_contain_text(f"Until {end}, hollow passes of this test")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#result")).to_contain_text("Restored what was there before")
    expect(page.locator("#banner")).to_contain_text("Open")
    page.get_by_label("owner").fill("ada")
    page.get_by_label("reason").fill("known since December")
    page.get_by_role("button", name="Acknowledge").click()
    expect(page.locator("#banner")).to_contain_text("Acknowledged, owned by ada")
    page.get_by_label("acknowledged until").fill("2001-01-01")
    page.get_by_role("button", name="save").click()
    expect(page.locator("#said")).to_contain_text("expires: is past")
    watch.mean("422")
    page.reload()
    page.get_by_role("button", name="resolve").click()
    expect(page.locator("#banner")).to_contain_text("Resolved")
    page.get_by_role("link", name="Flags", exact=True).click()
    expect(page.get_by_role("heading", name="No open flags")).to_be_visible()
    page.goto(f"{guarded.url}/flags?kind=flaky")
    expect(page.get_by_role("heading", name="No flag matches")).to_be_visible()


FIRST_SCREEN = ("#grade .verdict", "#grade .words", "#gap .canvas canvas", "#advice a.button")
"""Verdict, reason, gap chart and what to do."""


@pytest.mark.parametrize("size", [PHONE, {"width": 1440, "height": 900}], ids=["phone", "desktop"])
@pytest.mark.parametrize("hollow", [True, False], ids=["hollow", "right"])
def test_the_first_screen_has_verdict_reason_gap_chart_and_what_to_do(
    populated, page: Page, size, hollow: bool
) -> None:
    server, house = populated
    page.set_viewport_size(size)
    path = next(path for path in house.addresses["/tests/{name}"] if "branch=main" in path)
    page.goto(server.url + (path.split("?")[0] + "?branch=main" if hollow else path))
    expect(page.locator("#gap figure[data-marks]")).to_be_visible()
    for part in FIRST_SCREEN if hollow else FIRST_SCREEN[:1] + FIRST_SCREEN[2:]:
        box = page.locator(part).first.bounding_box()
        assert box is not None, part
        assert box["y"] >= 0, part
        assert box["y"] + box["height"] <= size["height"], f"{part}: {box}"
