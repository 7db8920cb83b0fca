"""An open page in a real browser when something does not come: its pictures, its next reading, the
answer to what one types."""

from __future__ import annotations

from typing import Any

import numpy as np
from playwright.sync_api import Page, Route, expect

import stored_jobs
from gonogo.judging.error_maps import error_map
from gonogo_service.jobs import artifacts
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from pending_requests import PendingRequests


def test_a_picture_that_does_not_come_says_so_and_is_asked_for_again(
    server, page: Page, watch
) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=1)
        stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=True)])
        content = error_map(np.zeros((256, 512)), np.ones((256, 512))).to_json()
        items = [{"kind": "error_map", "seed": 0, "repeat": 0, "output": "dx", "content": content}]
        artifacts.add(session, job.id, new_id(), items, now=utcnow())
        stored_jobs.finish(session, job.id)
    away: list[str] = ["**/static/charts-*.js"]
    page.route("**/static/charts-*.js", lambda route: _answer(route, away, "**/static/charts-*.js"))
    page.route("**/artifacts/*", lambda route: _answer(route, away, "**/artifacts/*"))
    page.goto(f"{server.url}/jobs/{job.id}")
    seeds, signed = (
        page.locator("[data-chart=chart-seeds]"),
        page.locator("[data-chart=chart-map-signed]"),
    )
    expect(seeds.get_by_role("alert")).to_contain_text(
        "This chart is missing: its script did not load."
    )
    expect(seeds.locator("figcaption")).to_contain_text("dx: 1 seed")  # the words are there
    away[:] = ["**/artifacts/*"]
    seeds.get_by_role("button", name="try again").click()  # reads the page anew
    expect(seeds).to_have_attribute("data-marks", "1")
    expect(signed.get_by_role("alert")).to_contain_text(
        "This chart is missing: the server answered 503."
    )
    away.clear()
    signed.get_by_role("button", name="try again").click()
    expect(signed).to_have_attribute("data-marks", "128")
    expect(page.locator("#map").get_by_role("alert")).to_have_count(0)
    expect(signed.locator("canvas").first).to_be_visible()
    watch.mean("Failed to load resource")


def _answer(route: Route, away: list[str], name: str) -> Any:
    return route.fulfill(status=503, body="away") if name in away else route.continue_()


def test_a_page_says_why_it_is_not_up_to_date_any_more(guarded, page: Page, login, watch) -> None:
    with guarded.writing() as session:
        stored_jobs.submit(session)
    login(page, guarded, "submit", "/jobs")
    expect(page.get_by_role("heading", name="Jobs", exact=True)).to_be_visible()
    line = page.locator("#connection")
    again = "() => document.dispatchEvent(new Event('gonogo:ask'))"
    page.route("**/jobs", lambda route: route.fulfill(status=500, body="away"))
    page.evaluate(again)
    expect(line).to_have_text("The server answered 500. This page is out of date.")
    page.unroute("**/jobs")
    expect(line).to_be_hidden()
    page.context.clear_cookies()
    page.evaluate(again)
    expect(line).to_have_text("Your login has expired. Reload it.")
    watch.mean("Failed to load resource")


def test_the_form_says_that_its_estimate_is_on_its_way_or_that_nobody_answers(
    server, page: Page, watch
) -> None:
    page.goto(f"{server.url}/jobs/new")
    estimate, shape = page.locator("#estimate"), page.get_by_label("shape")
    expect(estimate).to_contain_text("8 results")
    expect(estimate).not_to_have_attribute("aria-busy", "true")
    pending = PendingRequests(page, "**/jobs:validate")
    shape.fill("64, 96")
    expect(estimate).to_have_attribute("aria-busy", "true")
    expect(estimate).to_contain_text("8 results")  # the earlier text, faint
    pending.take().abort()
    expect(page.locator("#said")).to_have_text("The server does not answer")
    expect(estimate).to_have_text("Not checked.")
    page.unroute("**/jobs:validate")
    shape.fill("64, 128")
    expect(estimate).to_contain_text("8 results")
    expect(page.locator("#said")).to_have_text("")
    watch.mean("ERR_FAILED")
