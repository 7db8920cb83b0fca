"""The devices' pages in a real browser: how each device is and why, what runs on it, and what
happened to it."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import httpx
import pytest
from playwright.sync_api import Page, expect

import device_month
import stored_jobs
from gonogo_service.devices import changes
from gonogo_service.kit.database.encoding import utcnow


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


def test_an_offline_device_s_chart_shows_its_silence_and_says_when_it_began(
    server, page: Page
) -> None:
    with server.writing() as session:
        device_month.heard(session, utcnow() - timedelta(days=3))
    (line,) = httpx.get(f"{server.url}/devices.json").json()["items"]
    for days, marks in ((7, 1), (30, 1)):
        page.goto(f"{server.url}/devices/{line['device']['id']}?range={days}d")
        silence = page.locator("#health-silence")
        expect(silence).to_have_text(re.compile(r"The last heartbeat came on .* UTC, 3 d ago"))
        expect(page.locator(".timeline canvas")).to_be_visible()
        drawn = json.loads(page.locator("#chart-health").text_content() or "")
        (silent,) = (series for series in drawn["series"] if series["name"] == "offline")
        (span,) = silent["data"]
        assert span[1] - span[0] == pytest.approx(3 * 24 * 3600 * 1000, abs=1e5)
        heard = [series for series in drawn["series"] if series["name"] == "last heartbeat"]
        assert len(heard) == marks


def test_the_twins_say_the_same_and_what_is_not_there_is_said(server, page: Page, watch) -> None:
    page.goto(f"{server.url}/devices")
    expect(page.get_by_role("heading", name="No devices yet")).to_be_visible()
    with server.writing() as session:
        machines = stored_jobs.fleet(session, stored_jobs.submit(session))
    items = httpx.get(f"{server.url}/devices.json").json()["items"]
    assert [(line["device"]["name"], line["device"]["health"]) for line in items] == [
        ("wormhole:0", "good"),
        ("wormhole:1", "good"),
        ("wormhole:2", "suspect"),
        ("wormhole:3", "bad"),
    ]
    assert items[2]["device"]["canary"]["outputs"]["dx"] == "badbadbadbad"
    one = httpx.get(f"{server.url}/devices/{machines['wormhole:2']}.json").json()
    assert [entry["after"] for entry in one["history"]] == ["suspect", "good", "good"]
    assert httpx.get(f"{server.url}/devices/none.json").status_code == 404
    page.goto(f"{server.url}/devices/none")
    expect(page.get_by_role("heading", name="No such device")).to_be_visible()
    watch.mean("404")
