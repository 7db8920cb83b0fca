"""The flags' list by keyboard alone, with a login: move, select, take on with owner, reason and
expiry, what fails by name, undo."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

from playwright.sync_api import Page, expect

import compared_builds
import nightly_history
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo_service.flags import store as flags
from gonogo_service.flags.api import FLAGS
from gonogo_service.people.issuing import issue_token

PHONE = {"width": 390, "height": 844}


def test_flags_are_taken_on_resolved_and_taken_back_without_a_mouse(
    guarded, page: Page, watch
) -> None:
    with guarded.writing() as session:
        job = nightly_history.night(
            session, "b1", 1, range(2), test=compared_builds.HOLLOW, wrong=True
        )
        for kind in (FlagKind.flaky, FlagKind.tolerance_too_tight):
            compared_builds.flag(session, job, kind)
        newest = nightly_history.night(
            session, "b2", 2, range(2), test=compared_builds.NEW, wrong=True
        )
        token = issue_token(session, "ada", ["submit"], keys=guarded.app.state.context.keys)
    end = datetime.combine(datetime.now(UTC) + timedelta(days=30), time(), UTC)
    keys, rows, message = (
        page.keyboard,
        page.locator("#flags input[name=flag]"),
        page.locator("#told"),
    )
    page.goto(f"{guarded.url}/flags")
    page.locator("input[name=token]").fill(token)
    keys.press("Enter")
    expect(rows).to_have_count(4)
    assert [row.get_attribute("data-name").split(": ")[1] for row in rows.all()] == [
        "Hollow pass",
        "Hollow pass",
        "Flaky",
        "False alarm",
    ]
    expect(page.locator(".triage a").first).to_have_attribute(
        "href", f"/flags/{rows.first.get_attribute('value')}"
    )

    keys.press("?")
    expect(page.locator("#keys")).to_be_visible()
    keys.press("Escape")
    keys.press("j")
    expect(rows.nth(0)).to_be_focused()
    keys.press("x")
    keys.press("ArrowDown")
    keys.press("Space")
    expect(page.locator("#selected")).to_have_text("2 selected")
    # somebody else closes one of the two meanwhile
    with guarded.writing() as session:
        first = next(
            flag.id
            for flag in FLAGS.page(session, kind="passes_by_tolerance").items
            if flag.last_job == newest.id
        )
        flags.change(session, first, {"state": "resolved"}, actor="kim")
    keys.press("a")
    expect(page.get_by_label("reason")).to_be_focused()
    keys.press("Enter")
    expect(message).to_contain_text("Enter a reason.")
    expect(page.get_by_label("reason")).to_be_focused()
    keys.type("known since May")
    keys.press("Tab")
    keys.type(f"{end:%m%d%Y}")
    keys.press("Enter")
    expect(message).to_contain_text("1 flag acknowledged.")
    expect(message).to_contain_text("1 flag could not be changed:")
    expect(message.locator("li")).to_contain_text(
        "Hollow pass: version: is outdated: kim set it to resolved at"
    )
    expect(rows).to_have_count(2)
    expect(rows.nth(1)).to_be_focused()  # where the reader was
    with guarded.reading() as session:
        acknowledged = next(flag for flag in FLAGS.page(session, state="acknowledged").items)
    assert (acknowledged.owner, acknowledged.reason, acknowledged.expires_at) == (
        "ada",
        "known since May",
        end,
    )

    keys.press("*")
    expect(page.locator("#selected")).to_have_text("2 selected")
    keys.press("r")
    expect(page.get_by_role("heading", name="No open flags")).to_be_visible()
    expect(message).to_contain_text("2 flags resolved.")
    expect(message).to_be_focused()
    keys.press("u")
    expect(rows).to_have_count(2)
    expect(message).to_contain_text("2 flags restored.")
    keys.press("o")
    expect(page.get_by_role("heading", name="Change this flag")).to_be_visible()

    page.goto(f"{guarded.url}/flags?state=any")
    page.locator("#keys-open").focus()
    keys.press("Enter")
    page.get_by_label("Use single letters as keys").focus()
    keys.press("Space")
    keys.press("Escape")
    keys.press("j")
    expect(page.locator("#flags input:focus")).to_have_count(0)
    page.set_viewport_size(PHONE)
    page.emulate_media(color_scheme="dark")
    expect(page.locator("#to-bar")).to_be_hidden()
    rows.first.focus()
    keys.press("Space")
    expect(page.locator("#to-bar")).to_have_text("1 selected: acknowledge, assign, resolve")
    expect(page.locator("#to-bar")).to_be_in_viewport()
    page.wait_for_function(
        "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
    )
