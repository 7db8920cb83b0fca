"""The overview, the lists, the login and the navigation in a real browser: pages say what is empty
or missing, and keys suffice."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

import stored_jobs
from patience import WAIT_MS
from pending_requests import PendingRequests


def test_a_beginner_is_told_how_to_start(server, page: Page) -> None:
    for path in ("/", "/jobs"):
        page.goto(server.url + path)
        expect(page.get_by_role("heading", name="No jobs yet")).to_be_visible()
        expect(page.locator("#start")).to_have_text("gonogo demo")


def test_the_pages_explain_what_is_not_there(server, page: Page, watch) -> None:
    page.goto(f"{server.url}/jobs/01890000-0000-7000-8000-000000000000")
    expect(page.get_by_role("heading", name="No such job")).to_be_visible()
    page.goto(f"{server.url}/nowhere")
    expect(page.get_by_role("heading", name="Not Found")).to_be_visible()
    page.goto(f"{server.url}/jobs?cursor=nonsense")
    expect(page.locator("main")).to_contain_text("no such page")
    watch.mean("Failed to load resource")


def test_filters_are_in_the_address_and_the_list_goes_on(server, page: Page) -> None:
    with server.writing() as session:
        for _ in range(3):
            stored_jobs.finished(session, seeds=1)
        stored_jobs.finished(session, seeds=1, wrong=False)
    page.goto(f"{server.url}/jobs")
    page.get_by_label("verdict").select_option("pass_by_tolerance")
    page.get_by_label("build").fill("tt-train-2025")
    page.get_by_role("button", name="show").click()
    expect(page).to_have_url(re.compile("verdict=pass_by_tolerance&kernel=&build=tt-train-2025"))
    expect(page.locator("tbody tr")).to_have_count(3)
    page.goto(f"{server.url}/jobs?limit=3")
    page.get_by_role("link", name="older jobs").click()
    expect(page.locator("tbody tr")).to_have_count(1)
    page.locator("#theme").select_option("dark")
    page.keyboard.press("Control+k")
    page.keyboard.type("tt-train")
    expect(page.locator("#palette li a").first).to_contain_text("tt-train-2025")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/jobs?build=tt-train-2025")
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    scale = "(name) => document.body.appendChild(Object.assign(document.createElement('i'), "
    scale += (
        "{ style: `color: var(--${name})` })) && getComputedStyle(document.body.lastChild).color"
    )
    assert page.evaluate(scale, "level") == "rgb(28, 36, 45)", "the maps' scales are dark, too"


def test_keys_reach_everything_and_the_focus_is_seen(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.keyboard.press("Tab")
    expect(page.locator(".skip")).to_be_focused()
    seen = set()
    for _ in range(45):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "[document.activeElement.innerText, "
            "getComputedStyle(document.activeElement).outlineStyle]"
        )
        if name and name in {"Cancel", "Resubmit", "Jobs", "Copy"}:
            seen.add(name)
            assert outline == "solid", f"the focus on {name} is not visible"
    assert seen == {"Cancel", "Resubmit", "Jobs", "Copy"}


def test_the_api_documents_itself(server, page: Page) -> None:
    page.set_default_timeout(WAIT_MS)
    page.goto(f"{server.url}/docs")
    expect(page.locator("#swagger-ui")).to_contain_text("/api/v1/jobs/{job_id}", timeout=WAIT_MS)
    operation = page.locator(".opblock-summary-control").first
    operation.click()
    expect(operation).to_have_attribute("aria-expanded", "true", timeout=WAIT_MS)


def test_a_token_opens_the_pages_and_its_scope_decides(guarded, page: Page, login, watch) -> None:
    with guarded.writing() as session:
        address = f"{guarded.url}/jobs/{stored_jobs.submit(session).id}"
    page.goto(address)
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    page.get_by_label("token").fill("gng_nonsense")
    page.get_by_role("button", name="log in").click()
    expect(page.get_by_role("alert")).to_contain_text("not valid")
    watch.mean("401")
    login(page, guarded, "read", address)
    page.get_by_role("button", name="cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("submit")
    watch.mean("403")
    page.get_by_role("button", name="log out").click()
    expect(page).to_have_url(f"{guarded.url}/login")
    login(page, guarded, "submit", address)
    page.get_by_role("button", name="cancel").click()
    expect(page.locator("#state")).to_have_text("Canceled after 0 of 8 seeds")


def test_escape_closes_the_search_whatever_stands_in_it(server, page: Page) -> None:
    page.goto(server.url)
    page.keyboard.press("Control+k")
    page.keyboard.type("zzzz")
    expect(page.locator("#palette-says")).to_have_text("Nothing has this text.")
    page.keyboard.press("Escape")
    expect(page.locator("#palette")).to_be_hidden()


def _search_with_a_pending_answer(server, page: Page, text: str) -> PendingRequests:
    """Search for "tt", of which two builds are results; the answer to `text` will wait.

    Return the requests for `text`, to be answered by the test.
    """
    with server.writing() as session:
        for build in ("tt-other", "tt-train-2025"):
            stored_jobs.submit(session, build=build)
    page.goto(server.url)
    pending = PendingRequests(page, f"**/search.json?q={text}")
    page.keyboard.press("Control+k")
    page.keyboard.type("tt")
    expect(page.locator("#palette li a")).to_have_count(2)
    return pending


def test_a_chosen_line_of_the_search_stays_chosen_when_a_later_answer_comes(
    server, page: Page
) -> None:
    pending = _search_with_a_pending_answer(server, page, "tt-")
    page.keyboard.type("-")
    request = pending.take()
    line = page.locator("#palette li a").filter(has_text="tt-train-2025")
    line.focus()
    with page.expect_response("**/search.json?q=tt-"):
        request.continue_()
    expect(line).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{server.url}/jobs?build=tt-train-2025")


def test_enter_before_the_answer_opens_what_the_whole_text_finds(server, page: Page) -> None:
    pending = _search_with_a_pending_answer(server, page, "tt-train")
    page.keyboard.type("-train")
    page.keyboard.press("Enter")
    pending.take().continue_()
    expect(page).to_have_url(f"{server.url}/jobs?build=tt-train-2025")


SIZES = """() => new Set([...document.querySelectorAll('body *')].filter((element) =>
    element.checkVisibility() && !element.closest('svg, canvas, select, .visually-hidden')
        && [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((element) => getComputedStyle(element).fontSize)).size"""


def test_a_page_has_three_sizes_of_text(populated, page: Page) -> None:
    server, house = populated
    routes = ("/tests/{name}", "/jobs/{job_id}", "/flags/{name}", "/devices/{device_id}")
    one_each = [house.addresses[route][0] for route in routes]
    for path in ("/", "/tests", "/flags", "/matrix", "/devices", "/jobs/new", *one_each):
        page.goto(server.url + path)
        assert page.evaluate(SIZES) <= 3, path
