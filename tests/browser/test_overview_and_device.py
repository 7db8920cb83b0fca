"""The overview and a device's page in a real browser: what needs someone, by keyboard and live;
spans that have a text; gaps that stay gaps."""

from __future__ import annotations

import json
import re

from playwright.sync_api import Page, expect

import device_month
import stored_jobs
from gonogo_service.devices import changes
from gonogo_service.kit.database.encoding import utcnow


def test_the_overview_answers_at_a_glance_and_leads_on_by_keyboard(server, page: Page) -> None:
    with server.writing() as session:
        stored_jobs.finished(session, seeds=2)
        machines = stored_jobs.fleet(session, stored_jobs.submit(session))
        waits = stored_jobs.submit(session)
    page.goto(server.url)
    assert page.locator("#days-words").evaluate(
        "(words) => words.parentElement.clientWidth > 0.9 * words.closest('section').clientWidth"
    )
    needs = page.locator(".needs a")
    expect(needs).to_have_text(["1stuck queue"])
    numbers = page.locator(".numbers a")
    expect(numbers).to_have_text(["1 Hollow", "0 Red", "0 Flaky", "2 Devices in trouble"])
    expect(page.locator(".flag-rows:not(.news-rows)")).to_contain_text(stored_jobs.FAULT)
    expect(page.locator(".daily g rect.v-pass_by_tolerance")).to_have_count(1)
    bars, panel = (
        page.locator(".daily > svg").bounding_box(),
        page.locator("section[aria-labelledby=days]").bounding_box(),
    )
    assert bars is not None
    assert panel is not None
    assert bars["width"] > 0.9 * panel["width"], "the days' bars fill their panel"
    assert [link.get_attribute("href") for link in page.locator(".rates3 a").all()] == [
        "/jobs?state=running",
        "/devices",
        "/devices",
    ]
    fleet = page.locator("section[aria-labelledby=fleet]")
    expect(fleet.locator(".machine > a:first-child")).to_have_count(2)
    expect(fleet).to_contain_text("it hung")
    sick = fleet.get_by_role("link", name="lab-1/wormhole:3")  # once: it has no cell
    sick.focus()
    with (
        server.writing() as session
    ):  # the page is brought up to date; whoever uses the keyboard stays where they are
        stored_jobs.report(
            session, waits.id, [stored_jobs.row(seed, wrong=False) for seed in range(8)]
        )
        stored_jobs.finish(session, waits.id)
    expect(needs).to_have_count(0)
    expect(page.locator(".daily g rect.v-pass")).to_have_count(1)
    expect(sick).to_be_focused()
    unnamed = page.locator(".flag-rows:not(.news-rows) .name")  # without an id
    unnamed.focus()
    with server.writing() as session:
        stored_jobs.submit(session)
    expect(needs).to_have_count(1)
    expect(unnamed).to_be_focused()
    sick.focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/devices/{machines['wormhole:3']}")


def test_a_device_s_weeks_are_seen_heard_and_read(server, page: Page) -> None:
    with server.writing() as session:
        device_month.month(session, utcnow(), days=7, working=lambda hour: hour % 3 == 0)
    page.goto(f"{server.url}/devices")
    page.get_by_role("link", name="7 days").click()
    expect(page.locator("#devices tbody tr")).to_contain_text("of 7 days")
    expect(page.locator("#devices tbody tr .over")).to_contain_text("in 7 days")
    page.get_by_role("link", name=device_month.DEVICE).click()
    health = page.locator("#health-table")
    health.locator("summary").click()
    spans = health.locator("tbody tr")
    expect(spans).to_have_count(7)
    expect(spans.first).to_contain_text("Good")
    expect(spans.nth(1)).to_contain_text("9 of 10 tests fail here only")
    expect(spans.nth(5)).to_contain_text("2 h 59 min")
    charts = page.locator("main [data-chart]")
    expect(charts).to_have_count(6)
    for place in range(6):
        expect(charts.nth(place).locator("canvas")).to_be_visible()
    drawn = json.loads(page.locator("#chart-temperature_c").text_content() or "")
    line = next(series for series in drawn["series"] if series["type"] == "line")["data"]
    assert None in [point[1] for point in line]
    expect(page.locator("#recovery")).to_be_visible()
    expect(page.locator("table.recovery tbody tr")).to_have_count(2)


def test_the_list_says_how_each_device_is_and_what_it_runs(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session)
        stored_jobs.fleet(session, job)
    page.goto(server.url)
    page.get_by_role("navigation", name="main").get_by_role("link", name="Devices").click()
    expect(page).to_have_url(f"{server.url}/devices")
    rows = page.locator("table.devices tbody tr")
    expect(rows).to_have_count(4)
    busy, idle, stray, bad = (rows.nth(number) for number in range(4))
    for text in (
        "lab-1/wormhole:0",
        "wormhole · n150",
        "0100018611902010",
        "Good",
        "Busy",
        "18.3.0.0",
        "45.2 °C",
        "1,000 MHz",
        "31 W",
    ):
        expect(busy).to_contain_text(text)
    expect(busy.get_by_role("link", name=re.compile("layernorm_bw"))).to_have_attribute(
        "href", f"/jobs/{job.id}"
    )
    expect(busy).to_contain_text("same bits as on other devices")
    expect(idle).to_contain_text("Idle")
    differs = "Its canary's bits differ from those of lab-1/wormhole:0"
    for text in ("Suspect", "for a few seconds", differs, "bits differ from the golden ones"):
        expect(stray).to_contain_text(text)
    expect(bad).to_contain_text("tt-smi -r did not help")


def test_a_device_s_page_shows_what_happened_and_follows_it(server, page: Page) -> None:
    with server.writing() as session:
        machines = stored_jobs.fleet(session, stored_jobs.submit(session))
    page.goto(f"{server.url}/devices")
    page.get_by_role("link", name="lab-1/wormhole:3").click()
    expect(page.get_by_role("heading", name="lab-1/wormhole:3")).to_be_visible()
    history = page.locator("table.devices tbody tr")
    expect(history).to_have_count(2)
    expect(history.first).to_contain_text("good → bad")
    history.first.locator("summary").click()
    expect(history.first).to_contain_text("reset_device")
    with server.writing() as session:
        changes.patch(
            session,
            machines["wormhole:3"],
            {"health": "maintenance", "reason": "a new fan"},
            actor="ada",
            now=utcnow(),
        )
    expect(history).to_have_count(3)
    expect(page.locator(".device-now")).to_contain_text("A new fan")
