"""The build matrix and the strip plot in a real browser: walked by keyboard, counted against the
API, dark and at a phone's width."""

from __future__ import annotations

import json
import math
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, Position, expect

import nightly_history
import stored_jobs

PHONE = {"width": 390, "height": 844}
TIGHT = {**stored_jobs.NIGHTLY, "tolerance": {"rtol": 1e-3, "atol": 0.25}}


def place(figure: Locator, options: dict[str, Any], row: list[Any]) -> Position:
    """Return where a mark of the strip plot is on its canvas."""
    box, grid, (across, up) = (
        figure.locator(".canvas").bounding_box(),
        options["grid"],
        (options["xAxis"], options["yAxis"]),
    )
    assert box is not None
    right = (row[0] - across["min"]) / (across["max"] - across["min"])
    high = math.log(row[1] / up["min"]) / math.log(up["max"] / up["min"])
    width, height = (
        box["width"] - grid["left"] - grid["right"],
        box["height"] - grid["top"] - grid["bottom"],
    )
    return {"x": grid["left"] + right * width, "y": grid["top"] + (1 - high) * height}


def test_a_hollow_cell_leads_by_keyboard_to_the_strip_that_shows_the_gap(
    server, page: Page
) -> None:
    with server.writing() as session:
        nightly_history.night(session, "b747edd158", 2, range(2), test=TIGHT)
        key = nightly_history.masked(session)
    page.goto(server.url)
    page.get_by_role("link", name="Matrix", exact=True).click()
    expect(page.locator("#matrix-words")).to_contain_text(
        "On fixed-4c1e, the newest that ran: 0 hollow passes and 0 red of 1 test."
    )
    page.locator("#cell-0-0").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    hollow = page.locator("td.hollow a")
    expect(hollow).to_be_focused()
    expect(hollow).to_have_accessible_name("b0304ff7a5: 5 hollow pass")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")  # to the other test, over what did not run
    expect(page.locator("#cell-1-3")).to_be_focused()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    expect(page).to_have_url(
        f"{server.url}/tests/{key}?branch=main&arch=wormhole&board=n150&build=b0304ff7a5"
    )
    # every seed that the API knows is a mark
    figure = page.locator("figure[data-chart=chart-strip]")
    jobs = httpx.get(f"{server.url}/api/v1/jobs?test={key}").json()["items"]
    stored = sum(
        len(httpx.get(f"{server.url}/api/v1/jobs/{job['id']}/results").json()["items"])
        for job in jobs
    )
    expect(figure).to_have_attribute("data-marks", str(stored))
    expect(figure.locator("figcaption")).to_contain_text(
        "green and not explained by rounding: 1 build (b0304ff7a5)"
    )
    page.locator("#strip-table summary").click()
    expect(page.locator("#strip-table tbody tr")).to_have_count(4)
    # and leads to its seed
    options = json.loads(page.locator("#chart-strip").text_content() or "")
    [hollow_ones] = [
        series["data"] for series in options["series"] if series["name"] == "Hollow pass"
    ]
    job, seed = options["links"][hollow_ones[2][4]], hollow_ones[2][2]
    figure.locator(".canvas").click(position=place(figure, options, hollow_ones[2]))
    expect(page).to_have_url(f"{server.url}{job}&seed={seed}")
    expect(page.locator("#seed-title")).to_have_text(f"Seed {seed}")
    page.go_back()
    for url in (page.url, f"{server.url}/matrix"):
        page.set_viewport_size(PHONE)
        page.emulate_media(color_scheme="dark")
        page.goto(url)
        page.wait_for_function(
            "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        )
