"""The job page in a real browser: it moves without a reload, shows what the API says, and its
buttons work."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from playwright.sync_api import BrowserContext, Page, Route, expect

import stored_jobs
from gonogo_service.jobs import artifacts
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from patience import WAIT_MS, WAIT_S
from pending_requests import PendingRequests

ALIVE = "window.opened = (window.opened ?? 0) + 1"

PHONE = (390, 844)


def test_progress_and_marks_move_without_a_reload(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=6)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.evaluate(ALIVE)
    expect(page.locator("#progress-text")).to_have_text("0 of 6 seeds")
    expect(page.locator("#state")).to_have_text("Queued")

    with server.writing() as session:
        stored_jobs.report(
            session,
            job.id,
            [stored_jobs.row(seed, wrong=True) for seed in range(2)],
            diagnosed=True,
        )
    expect(page.locator("#progress-text")).to_have_text("2 of 6 seeds")
    expect(page.locator("[data-chart=chart-seeds]")).to_have_attribute("data-marks", "2")
    expect(page.locator("#banner")).to_contain_text("Hollow pass so far")
    expect(page.locator("#diagnosis tbody tr")).to_have_text(["dx" + stored_jobs.FAULT])

    with server.writing() as session:
        rows = [stored_jobs.row(seed, wrong=True) for seed in range(2, 6)]
        stored_jobs.report(session, job.id, rows, diagnosed=True)
        stored_jobs.finish(session, job.id)
    expect(page.locator("#state")).to_have_text("Finished")
    expect(page.locator("[data-chart=chart-seeds]")).to_have_attribute("data-marks", "6")
    expect(page.locator("#banner")).to_contain_text(stored_jobs.FAULT)
    expect(page.locator("#cancel")).to_have_count(0)
    assert page.evaluate("window.opened") == 1, "the page was loaded again"


def test_every_number_on_the_page_is_of_one_moment(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=300)
        stored_jobs.report(
            session, job.id, [stored_jobs.row(seed, wrong=True) for seed in range(3)]
        )
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#counts")).to_contain_text("3 hollow pass")
    # at every change: the numbers in the progress text, in the counts and in the bar
    page.evaluate("""() => {
        window.seen = [];
        const look = () => window.seen.push([
            parseInt(document.getElementById('progress-text').textContent),
            parseInt(document.getElementById('counts').textContent),
            Number(document.getElementById('progress-bar').getAttribute('aria-valuenow')),
        ]);
        new MutationObserver(look).observe(document.body, { subtree: true, childList: true,
            characterData: true, attributes: true });
    }""")
    for seed in range(3, 8):
        with server.writing() as session:
            stored_jobs.report(session, job.id, [stored_jobs.row(seed, wrong=True)])
        page.wait_for_timeout(300)
    expect(page.locator("#progress-text")).to_have_text("8 of 300 seeds")
    expect(page.locator("#counts")).to_contain_text("8 hollow pass")
    seen = page.evaluate("window.seen")
    assert seen
    assert all(progress == counted == bar for progress, counted, bar in seen), seen


def test_a_lost_connection_is_said_until_it_is_back(serve, open_context, watch) -> None:
    """In light and dark, and on a phone: three readers of one page."""
    server = serve()
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=4)
    modes = ({}, {"scheme": "dark"}, {"size": PHONE})
    pages = [open_context(**mode).new_page() for mode in modes]
    for page in pages:
        page.set_default_timeout(WAIT_MS)
        page.goto(f"{server.url}/jobs/{job.id}")
        expect(page.locator("#progress-text")).to_have_text("0 of 4 seeds")
        expect(page.locator("#connection")).to_be_hidden()
    server.stop()
    for page in pages:
        expect(page.locator("#connection")).to_be_visible(timeout=WAIT_MS)
        expect(page.locator("#connection")).to_have_text(
            "Connection lost. Trying again.", timeout=WAIT_MS
        )
    again = serve(port=server.port)
    with again.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=True)])
    for page in pages:
        expect(page.locator("#connection")).to_be_hidden(timeout=WAIT_MS)
        expect(page.locator("#progress-text")).to_have_text("1 of 4 seeds", timeout=WAIT_MS)
    with again.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(1, wrong=True)])
    for page in pages:
        # the browser asks for the stream again after a while; the page doesn't wait for it
        expect(page.locator("#progress-text")).to_have_text("2 of 4 seeds", timeout=WAIT_MS)
    page.route(f"**/jobs/{job.id}", lambda _: None)  # a server that doesn't answer
    expect(page.locator("#connection")).to_have_text(
        "Waiting for the server. This page may be out of date.", timeout=WAIT_MS
    )
    page.unroute_all(behavior="ignoreErrors")
    watch.mean("ERR_")


def test_two_tabs_share_one_stream_and_a_hidden_tab_holds_none(
    server, open_context: Callable[..., BrowserContext], wait
) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=4)
    context = open_context()
    first, second = context.new_page(), context.new_page()
    for tab in (first, second):
        tab.goto(f"{server.url}/jobs/{job.id}")
    wait(lambda: server.streams == 1, "no tab listens")
    with server.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=True)])
    for tab in (first, second):
        expect(tab.locator("#progress-text")).to_have_text("1 of 4 seeds")
    assert server.streams == 1, "each tab reads for itself"

    for tab in (first, second):
        hide(tab, True)
    wait(lambda: server.streams == 0, "a hidden tab listens")
    with server.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(1, wrong=True)])
    hide(second, False)
    expect(second.locator("#progress-text")).to_have_text("2 of 4 seeds")
    wait(lambda: server.streams == 1, "the tab that came back does not listen")


def test_what_ended_behind_a_hidden_tab_is_shown_when_it_comes_back(
    server, page: Page, wait
) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=2)
    page.goto(f"{server.url}/jobs/{job.id}")
    wait(lambda: server.streams == 1, "the tab does not listen")
    hide(page, True)
    wait(lambda: server.streams == 0, "a hidden tab listens")
    with server.writing() as session:
        stored_jobs.report(
            session, job.id, [stored_jobs.row(seed, wrong=False) for seed in range(2)]
        )
        stored_jobs.finish(session, job.id)
    expect(page.locator("#state")).to_have_text("Queued")
    hide(page, False)
    expect(page.locator("#state")).to_have_text("Finished")
    expect(page.locator("#progress-text")).to_have_text("2 of 2 seeds")


def test_the_page_goes_on_after_a_stream_that_was_refused(server, page: Page, watch) -> None:
    refused: list[str] = []

    def refuse(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=503, body="away") if len(refused) == 1 else route.continue_()

    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=2)
    page.route("**/events?*", refuse)
    page.goto(f"{server.url}/jobs/{job.id}")
    expect(page.locator("#progress-text")).to_have_text("0 of 2 seeds")
    with server.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(0, wrong=False)])
    expect(page.locator("#progress-text")).to_have_text("1 of 2 seeds")
    watch.mean("503")
    end = time.monotonic() + WAIT_S
    while len(refused) < 2 and time.monotonic() < end:
        page.wait_for_timeout(100)  # the page is read again first, then the stream asked for again
    assert len(refused) == 2
    with server.writing() as session:
        stored_jobs.report(session, job.id, [stored_jobs.row(1, wrong=False)])
    expect(page.locator("#progress-text")).to_have_text("2 of 2 seeds")


def test_a_canceled_job_is_not_green_and_is_submitted_again(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=64)
        rows = [stored_jobs.row(seed, wrong=False) for seed in range(5)]
        stored_jobs.report(session, job.id, rows)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.get_by_role("button", name="cancel").click()
    expect(page.locator("#banner")).to_contain_text("Canceled after 5 of 64 seeds")
    expect(page.locator("#banner .v-pass")).to_have_count(0)
    canceled = page.request.get(f"{server.url}/api/v1/jobs/{job.id}").json()
    assert (canceled["state"], canceled["verdict"]) == ("cancelled", None)
    page.get_by_role("button", name="resubmit").click()
    expect(page).not_to_have_url(f"{server.url}/jobs/{job.id}")
    expect(page.get_by_role("link", name="an earlier job")).to_have_attribute(
        "href", f"/jobs/{job.id}"
    )
    expect(page.locator("#state")).to_have_text("Queued")


def test_limits_are_folded_away_and_a_seed_says_why_it_is_wrong(server, page: Page) -> None:
    with server.writing() as session:
        job = stored_jobs.finished(session, seeds=1)
    page.goto(f"{server.url}/jobs/{job.id}?seed=0")
    rows = page.locator("#arithmetic tbody tr")
    expect(rows.filter(has_text="dx")).to_contain_text("closest tt-train")
    right = rows.filter(has_text="dgamma")
    expect(right).to_contain_text("explained by tt-train")
    limit = right.get_by_text(stored_jobs.LIMITS[0])
    expect(limit).to_be_hidden()
    right.get_by_text("1 limit").click()
    expect(limit).to_be_visible()
    expect(page.locator("#seed")).to_contain_text(f"dx: {stored_jobs.FAULT}")


def test_the_line_to_run_it_is_copied_and_another_output_is_a_link_away(
    server, open_context: Callable[..., BrowserContext]
) -> None:
    page = open_context(permissions=["clipboard-read", "clipboard-write"]).new_page()
    with server.writing() as session:
        job = stored_jobs.finished(session, seeds=3)
    page.goto(f"{server.url}/jobs/{job.id}")
    page.get_by_role("button", name="copy").click()
    line = page.evaluate("navigator.clipboard.readText()")
    assert line == page.locator("#check").text_content()
    assert line.startswith(
        "gonogo check --kernel layernorm_bw --shape 3,273,1,8462 --build tt-train-2025 "
        "--seeds 1 --seed-start"
    )
    page.get_by_role("link", name="dgamma", exact=True).click()
    expect(page).to_have_url(f"{server.url}/jobs/{job.id}?output=dgamma")
    expect(page.locator("#seeds-words")).to_contain_text("dgamma: 3 seeds")
    expect(page.locator("#seeds-words")).to_contain_text("no seed shown is unexplained")


def hide(tab: Page, hidden: bool) -> None:
    """Hide a tab, or show it again, as the browser does when tabs change places."""
    tab.evaluate(
        """(hidden) => {
            Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event('visibilitychange'));
        }""",
        hidden,
    )


def test_a_slow_answer_does_not_make_the_page_stand_still(
    server, open_context: Callable[..., BrowserContext]
) -> None:
    page = open_context().new_page()
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=3)
    page.clock.install()
    page.goto(f"{server.url}/jobs/{job.id}")
    pending = PendingRequests(page, f"**/jobs/{job.id}")
    page.clock.run_for(6_000)
    unanswered = pending.take()
    page.clock.run_for(11_000)  # the server restarts, and answers late
    expect(page.locator("#connection")).to_be_visible()
    unanswered.continue_()
    expect(page.locator("#connection")).to_be_hidden()
    with page.expect_request(f"**/jobs/{job.id}"):
        page.clock.run_for(5_000)
    page.unroute_all(behavior="ignoreErrors")


LAST = "TT_FATAL: circular buffer 24 holds 0 of 2 pages"
LOGGED = [f"loaded kernels/layernorm/reader_unary_interleaved_ln.cpp at {n:#x}" for n in range(300)]
END_SHOWN = """(log) => {
    const end = document.createRange();
    end.setStart(log.lastChild, log.lastChild.length - 1);
    end.setEnd(log.lastChild, log.lastChild.length);
    const line = end.getBoundingClientRect();
    const box = log.getBoundingClientRect();
    return line.top >= box.top && line.bottom <= box.bottom && box.bottom <= innerHeight;
}"""


@pytest.mark.parametrize("size", [(1280, 800), PHONE], ids=["desktop", "phone"])
def test_the_end_of_the_log_is_what_one_sees_first(
    server, open_context: Callable[..., BrowserContext], size: tuple[int, int]
) -> None:
    with server.writing() as session:
        job = stored_jobs.submit(session, seeds=1)
        stored_jobs.report(session, job.id, [stored_jobs.unwell(0, "crash", "SIGSEGV")])
        content = {"text": "\n".join([*LOGGED, LAST])}
        log = {"kind": "log", "seed": 0, "repeat": 0, "output": "", "content": content}
        artifacts.add(session, job.id, new_id(), [log], now=utcnow())
        stored_jobs.finish(session, job.id)
    page = open_context(size=size).new_page()
    page.goto(f"{server.url}/jobs/{job.id}")
    last_lines = page.locator(".last-lines pre")
    expect(last_lines).to_contain_text(LAST)
    assert last_lines.evaluate(END_SHOWN)
    gap = page.evaluate(
        """document.querySelector('.last-lines').getBoundingClientRect().top
            - document.querySelector('#banner .banner').getBoundingClientRect().bottom"""
    )
    assert gap > 0
