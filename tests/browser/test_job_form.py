"""The form that submits a job: it checks itself while one types, shows the cost, sends what the
page shows, and refuses people who may not submit."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from gonogo_service.builds import store as builds
from gonogo_service.jobs.api.jobs import JOBS


def test_a_job_is_checked_while_one_types_and_then_submitted(server, page: Page, watch) -> None:
    page.goto(f"{server.url}/jobs")
    page.get_by_role("link", name="submit a job").click()
    estimate = page.get_by_role("status").and_(page.locator("#estimate"))
    shape = page.get_by_label("shape")
    expect(estimate).to_contain_text("8 results in 1 chunk")
    expect(estimate).to_contain_text("No live worker serves emulator.wormhole.n150")
    page.get_by_text("Which build does what?").click()
    picker, hint = page.locator("#build-picker"), page.locator("#h-build")
    expect(hint).to_have_text("The right kernel.")
    picker.get_by_role("button", name="double-subtract", exact=True).click()
    expect(hint).to_have_text("s1 is subtracted twice.")
    page.get_by_label("Kernel", exact=True).select_option("layernorm_fw")
    expect(picker.get_by_role("button", name="double-subtract", exact=True)).to_be_hidden()
    picker.get_by_role("button", name="correct").click()
    page.get_by_label("output format").select_option("fp32")
    shape.fill("64, 0")
    expect(page.locator("#e-shape")).to_contain_text("number 1 (counted from 0) ")
    expect(shape).to_have_attribute("aria-invalid", "true")
    expect(estimate).to_contain_text("see the marked fields")
    page.get_by_role("button", name="submit").click()
    expect(shape).to_be_focused()
    shape.fill("64 x 96")
    expect(shape).not_to_have_attribute("aria-invalid", "true")
    page.get_by_label("rtol").fill("1e-2")
    rest = page.get_by_label("Other fields")
    rest.fill('{"inputs": {"regime": "normal"')
    expect(page.locator("#e-rest")).to_contain_text("is not JSON")
    rest.fill('{"inputs": {"regime": "normal", "std": 2}, "tolerance": {"atol": 0.25}}')
    page.get_by_label("Run", exact=True).select_option("sequential")
    page.get_by_label("Number of seeds", exact=True).fill("0")
    expect(page.locator("#e-count")).to_have_text("is too small (allowed: >= 1)")
    page.get_by_label("Number of seeds", exact=True).fill("40")
    page.get_by_label("Labels", exact=True).fill("suite=<b>nightly</b>, team=kernels")
    expect(estimate).to_contain_text("On average")
    expect(page).to_have_url(re.compile("labels="))
    body = json.loads(page.locator("#body").text_content() or "")
    assert body["test"]["tolerance"] == {"rtol": 1e-2, "atol": 0.25}
    assert body["test"]["numerics"] == {"output": "fp32"}
    address = parse_qs(urlsplit(page.url).query)
    assert (address["shape"], address["count"]) == (["64 x 96"], ["40"])
    page.reload()  # the address holds the form
    expect(estimate).to_contain_text("at most 40 results")
    page.get_by_label("first seed").press("Enter")
    expect(page.locator("#state")).to_contain_text("Queued")
    with server.reading() as session:
        (job,) = JOBS.page(session, limit=5).items
        assert page.url == f"{server.url}/jobs/{job.id}"
        assert job.test["shape"] == [64, 96]
        assert job.labels == {"suite": "<b>nightly</b>", "team": "kernels"}
    watch.mean("422")


def test_a_test_by_pcc_alone_is_typed_checked_shared_and_submitted(
    server, page: Page, watch
) -> None:
    page.goto(f"{server.url}/jobs/new")
    pcc, estimate = page.get_by_label("PCC", exact=True), page.locator("#estimate")
    expect(estimate).to_contain_text("8 results")
    assert "pcc" not in (page.locator("#body").text_content() or "")  # empty: not used
    pcc.fill("1.5")
    expect(page.locator("#e-pcc")).to_contain_text("is too large")
    expect(pcc).to_have_attribute("aria-invalid", "true")
    pcc.fill("0.9995")
    page.get_by_label("rtol").fill("")
    page.get_by_label("atol").fill("")
    expect(page).to_have_url(re.compile("rtol=&"))
    page.reload()  # an emptied field stays empty in a shared address
    expect(estimate).to_contain_text("8 results")
    page.get_by_role("button", name="submit").click()
    expect(page.locator("#state")).to_contain_text("Queued")
    with server.reading() as session:
        (job,) = JOBS.page(session, limit=5).items
        assert job.test["tolerance"] == {"pcc": 0.9995}
    page.get_by_role("link", name="Edit and submit").click()
    expect(pcc).to_have_value("0.9995")
    expect(page.get_by_label("rtol")).to_have_value("")
    watch.mean("422")


@pytest.mark.parametrize("scope", ["submit", "read"])
def test_only_who_may_submits(guarded, page: Page, login, watch, scope: str) -> None:
    login(page, guarded, scope, "/jobs/new")
    expect(page.get_by_role("combobox", name="Build", exact=True)).to_have_value("correct")
    page.get_by_role("button", name="submit").click()
    if scope == "submit":
        expect(page.locator("#state")).to_contain_text("Queued")
        return
    expect(page.locator("#said")).to_contain_text("needs the scope 'submit'")
    with guarded.reading() as session:
        assert not JOBS.page(session, limit=5).items
    # a page of another site has no CSRF token to send with the login's cookie
    cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
    answer = httpx.post(f"{guarded.url}/api/v1/jobs", json={}, cookies=cookies)
    assert answer.json()["type"].endswith("csrf")
    watch.mean("403")


def test_the_form_sends_what_the_job_was_that_it_starts_from_and_selections_too(
    server, page: Page, watch
) -> None:
    with server.writing() as session:
        builds.add(session, name="suites-1", executor="gtest", branch="suites", sequence=1)
    job_fields = {
        "test": {
            "kernel": "layernorm_bw",
            "shape": [32, 64],
            "tolerance": {"rtol": 1e-3, "atol": 0.5, "pcc": 0.999},
        },
        "build": "tt-train-2025",
        "target": {"executor": "emulator", "arch": "wormhole", "board": "n150"},
        "reference": {"build": "correct"},
        "seeds": [3, 1, 8],
        "repeats": 2,
        "priority": 7,
        "queue_deadline_s": 3600,
        "labels": {"suite": "nightly"},
        "context": {"name": "after", "before": [{"kernel": "layernorm_bw", "shape": [32, 64]}]},
        "commit": {"repository": "org/name", "sha": "0123abc", "pull_request": 7},
    }
    job = httpx.post(f"{server.url}/api/v1/jobs", json=job_fields).json()["id"]
    page.goto(f"{server.url}/jobs/{job}")
    page.get_by_role("link", name="Edit and submit").click()
    expect(page.locator("#estimate")).to_contain_text("6 results")
    assert json.loads(page.locator("#body").text_content() or "") == job_fields
    # a field's own error stands beside it
    page.get_by_label("Commit", exact=True).fill("nonsense")
    expect(page.locator("#e-sha")).to_contain_text("doesn't match the pattern")
    page.get_by_label("Commit", exact=True).fill("0123abc")
    page.set_viewport_size({"width": 390, "height": 844})
    page.get_by_label("What runs", exact=True).select_option("selection")
    expect(page.get_by_label("executor")).to_have_value("gtest")
    expect(page.get_by_label("Kernel", exact=True)).to_be_hidden()
    page.get_by_label("Build", exact=True).fill("suites-1")
    page.get_by_label("Suite", exact=True).fill("nightly")
    page.get_by_label("shuffle").fill("yes")
    page.get_by_label("stages").fill("one, two")
    expect(page.locator("#e-stages")).to_contain_text("stages")  # a gtest suite has none
    page.get_by_label("stages").fill("")
    expect(page.locator("#estimate")).to_contain_text("6 results")
    body = json.loads(page.locator("#body").text_content() or "")
    assert body["test"] == {"selection": {"suite": "nightly", "shuffle": True}}
    assert not {"context", "reference"} & set(body)  # a selection has neither
    assert page.evaluate(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
    page.reload()
    expect(page.get_by_label("Suite", exact=True)).to_have_value("nightly")
    watch.mean("422")
