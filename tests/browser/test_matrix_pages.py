"""The build matrix and the strip plot in a real browser: walked by keyboard, counted against the
API, dark and at a phone's width."""

from __future__ import annotations

import json
import math
import re
from datetime import timedelta
from typing import Any

import httpx
from playwright.sync_api import Locator, Page, Position, expect

import gauge_results
import nightly_history
import stored_histories
import stored_jobs
from bisection_steps import answer
from gonogo_service.background import bisections as role
from gonogo_service.builds import store as builds
from gonogo_service.kit.database.encoding import utcnow

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
        commit = {"commit": "b747edd158c0ffee", "author": "Ada"}
        builds.add(session, name="b747edd158", executor="ttnn", branch="main", sequence=2, **commit)
    page.goto(server.url)
    page.get_by_role("link", name="Matrix", exact=True).click()
    page.get_by_role("link", name="b747edd158", exact=True).first.focus()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")
    today = f"{utcnow():%Y-%m-%d}"
    expect(page.locator("#glossary")).to_contain_text(f"b747edd158: {today}")
    expect(page.locator("#glossary")).to_contain_text("commit b747edd158c0, Ada")
    page.get_by_text("Date, commit and author of these builds").click()
    row = page.locator("#matrix-builds tr", has_text="b747edd158")
    expect(row).to_contain_text("b747edd158c0")
    expect(page.locator("#matrix-builds tr", has_text="fixed-4c1e")).to_contain_text("submitted by")
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


SERIES = {"test": gauge_results.TEST, "builds": ["correct"] * 8, "signal": "numbers"}


def test_the_curves_of_a_gauge_are_drawn_for_each_comparator(server, page: Page) -> None:
    gauge = httpx.post(
        f"{server.url}/api/v1/gauges",
        json={"test": gauge_results.TEST, "seeds": {"count": 2}, "search": False},
    ).json()
    with server.writing() as session:
        list(gauge_results.played(session, {"double-subtract": gauge_results.PASSES}))
    page.goto(f"{server.url}/gauges/{gauge['id']}")
    figure = page.locator("figure[data-chart=chart-curves]")
    turns = httpx.get(f"{server.url}/gauges/{gauge['id']}.json").json()["picture"]["turns"]
    expect(figure).to_have_attribute(
        "data-marks", str(sum(turn["tolerance"] is not None for turn in turns))
    )
    expect(figure).to_contain_text(
        "The window is 0.01 to 0.1. The declared tolerance, 0.5, fails 0 of"
    )
    figure.get_by_text("Show kernel by kernel").click()
    expect(page.get_by_role("row", name=re.compile("^double-subtract Mutant"))).to_contain_text(
        "0.1"
    )
    page.get_by_role("navigation", name="comparator").get_by_role("link", name="ulp").click()
    expect(figure).to_contain_text("One distance in ulps for all outputs")
    page.set_viewport_size({"width": 390, "height": 844})
    page.wait_for_function(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )


def test_the_posterior_moves_while_one_looks_on(server, page: Page) -> None:
    begun = httpx.post(f"{server.url}/api/v1/bisections", json=SERIES).json()["id"]
    settings = server.app.state.context.settings

    def go_on() -> None:
        with server.writing() as session:
            role.step(session, begun, settings, utcnow() + timedelta(seconds=1))
        with server.writing() as session:
            answer(session, begun, lambda place, seed: stored_histories.row(seed, wrong=place >= 5))

    go_on()
    page.goto(f"{server.url}/bisections/{begun}")
    expect(page.locator("#runs")).to_have_text("1 run")
    page.evaluate("window.here = true")
    for _ in range(10):
        go_on()
    moved = page.locator("figure[data-chart=moves-1]")
    expect(moved).to_contain_text("Likeliest: correct after")
    expect(page.locator("#answer-text")).to_contain_text("Broken at correct")
    runs = httpx.get(f"{server.url}/api/v1/bisections/{begun}").json()["runs"]
    expect(moved).to_have_attribute("data-marks", str(runs))
    assert page.evaluate("window.here")  # not loaded anew
    beside = page.locator("#quiet-2")  # one line tells what did not change
    expect(beside.locator(".canvas").first).to_be_hidden()
    beside.locator("summary").first.click()
    expect(beside.locator("figure[data-chart=chart-2] canvas")).to_be_visible()


def test_two_builds_of_the_matrix_are_compared_by_keyboard(server, page: Page) -> None:
    with server.writing() as session:
        nightly_history.masked(session)
    page.goto(f"{server.url}/matrix")
    form = page.get_by_role("form", name="compare two of these builds")
    form.get_by_label("compare").focus()
    page.keyboard.press("Tab")
    expect(form.get_by_label("with")).to_be_focused()
    page.keyboard.type("9ca")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/compare?head=fixed-4c1e&base=9ca166977b")
    expect(page.locator("#tests")).to_contain_text("Fixed")
    page.locator("#tests").get_by_role("link", name="base").click()
    expect(page.locator("#grade")).to_contain_text("Build 9ca166977b")
