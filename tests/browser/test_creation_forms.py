"""The forms that create something, in a real browser: a test is picked by name, the next page says
what happened, and Undo takes it back."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from playwright.sync_api import Page, expect

from gonogo.urls import (
    NEW_BISECTION,
    NEW_GAUGE,
    NEW_RULE,
    NEW_SCHEDULE,
    NEW_WAIVER,
    NEW_WEBHOOK,
)


def pick(page: Page, text: str) -> None:
    """Choose the first test that the picker finds, by keyboard."""
    field = page.get_by_role("combobox", name="Test")
    field.fill(text)
    expect(page.locator("#picks li").first).to_contain_text("layernorm_bw 1×1×32×64")
    field.press("ArrowDown")
    field.press("Enter")
    expect(page.locator("#picked")).to_contain_text("layernorm_bw")
    expect(page.locator("textarea[name=test]")).to_have_value(re.compile("layernorm_bw"))


def test_a_gauge_is_created_of_a_picked_test_and_taken_back(populated, page: Page) -> None:
    server, _ = populated
    page.goto(server.url + NEW_GAUGE)
    page.get_by_role("combobox", name="Test").focus()
    expect(page.locator("#picks li").first).to_be_visible()  # the newest tests, before a word
    pick(page, "1x1x32x64")
    page.get_by_label("Seeds").fill("2")
    expect(page.locator("#checked")).to_have_text("Every check passed.")
    page.get_by_role("button", name="Start the gauge").click()
    expect(page).to_have_url(re.compile("/gauges/[0-9a-f-]{36}"))
    expect(page.locator("#result")).to_contain_text("The gauge was submitted")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#result")).to_contain_text("The gauge is canceled.")
    expect(page.locator("#state")).to_contain_text("Cancel")


def test_a_bisection_is_created_of_a_picked_test_and_canceled(populated, page: Page) -> None:
    server, _ = populated
    page.goto(server.url + NEW_BISECTION)
    pick(page, "1x1x32x64")
    page.get_by_label("Or these builds").fill("correct, correct, correct")
    page.get_by_role("button", name="Start the bisection").click()
    expect(page).to_have_url(re.compile("/bisections/[0-9a-f-]{36}"))
    expect(page.locator("#result")).to_contain_text("The bisection has begun")
    page.locator("#cancel").click()
    expect(page.locator("#result")).to_contain_text("The bisection is canceled.")
    expect(page.locator("#state")).to_contain_text("Canceled")


def test_a_waiver_is_added_ended_and_restored(populated, page: Page) -> None:
    server, house = populated
    key = house.addresses["/tests/{name}"][0].split("/")[2].split("?")[0]
    page.goto(f"{server.url}{NEW_WAIVER}?test={key}")
    page.get_by_label("Reason").fill("ticket 12")
    page.get_by_role("button", name="Accept").click()
    expect(page).to_have_url(f"{server.url}/waivers")
    expect(page.locator("#result")).to_contain_text("The waiver is in force.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#result")).to_contain_text("The waiver has ended.")
    httpx.post(
        f"{server.url}/api/v1/waivers",
        json={"test": key, "reason": "ticket 13", "expires": "2099-01-01T00:00:00Z"},
    )


def test_a_schedule_is_created_and_archived(populated, page: Page) -> None:
    server, _ = populated
    suite = httpx.get(f"{server.url}/api/v1/suites").json()["items"][0]["name"]
    page.goto(server.url + NEW_SCHEDULE)
    page.get_by_label("Name").fill("each night")
    page.get_by_label("Suite").select_option(suite)
    page.get_by_role("button", name="Create the schedule").click()
    expect(page).to_have_url(f"{server.url}/schedules")
    expect(page.locator("#schedules")).to_contain_text("each night")
    expect(page.locator("#result")).to_contain_text("The schedule is active.")
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#result")).to_contain_text("The schedule is archived.")
    expect(page.locator("#schedules")).not_to_contain_text("each night")


def test_a_new_rule_can_be_taken_back_and_one_that_replaced_another_not(
    populated, page: Page
) -> None:
    server, _ = populated
    suite = httpx.get(f"{server.url}/api/v1/suites").json()["items"][0]["name"]
    for new in (True, False):
        page.goto(server.url + NEW_RULE)
        page.get_by_label("Name").fill("forms")
        page.get_by_label("Events").fill("push")
        page.get_by_label("Repositories").fill("acme/kernels")
        page.get_by_label("Suites").fill(suite)
        page.get_by_label("Description").fill("first" if new else "second")
        page.get_by_role("button", name="Store the rule").click()
        expect(page.locator("#result")).to_contain_text("The rule is in use.")
        expect(page.get_by_role("button", name="Undo")).to_have_count(int(new))


def test_the_gauge_s_tolerance_is_submitted_with_a_button(populated, page: Page) -> None:
    server, house = populated
    for path in house.addresses["/gauges/{gauge_id}"]:
        view = httpx.get(f"{server.url}{path}.json").json()
        if view["submit_url"]:
            page.goto(server.url + path)
            page.get_by_role("link", name="Submit with this tolerance").click()
            query = parse_qs(urlsplit(page.url).query, keep_blank_values=True)
            assert (query["test"], query["atol"]) == ([view["gauge"]["test_key"]], [""])
            expect(page.locator("textarea[name=rest]")).to_have_value(re.compile('"tolerance"'))
            return
    pytest.fail("no gauge advises a tolerance")


WRONG = [
    (NEW_WAIVER, "Its key", "nonsense", "there is no test with this key"),
    (NEW_GAUGE, "Seeds", "many", "many"),
    (NEW_BISECTION, "Runs at most", "1", "2"),
    (NEW_SCHEDULE, "Cron line", "61 * * * *", "61"),
    (NEW_RULE, "Suites", "nonsense", "nonsense"),
    (NEW_WEBHOOK, "Address", "ftp://ci.example", "ftp://ci.example"),
]


@pytest.mark.parametrize(("form", "label", "text", "words"), WRONG)
def test_each_field_is_checked_while_the_others_are_empty(
    populated, page: Page, watch, form: str, label: str, text: str, words: str
) -> None:
    server, _ = populated
    watch.mean("422")
    page.goto(server.url + form)
    field = page.get_by_label(label, exact=True).or_(page.get_by_label(f"{label} *", exact=True))
    field.fill(text)
    problem = page.locator(f"#{field.get_attribute('aria-describedby')}")
    expect(problem).to_contain_text(words)
    expect(problem).to_contain_text("allowed: ")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.locator("#checked")).not_to_contain_text("passed")


def test_a_form_says_which_fields_are_still_needed(populated, page: Page) -> None:
    server, house = populated
    key = house.addresses["/tests/{name}"][0].split("/")[2].split("?")[0]
    page.goto(f"{server.url}{NEW_WAIVER}?test={key}")  # checked, because the address fills it in
    expect(page.locator("#picked")).to_contain_text("layernorm_bw")
    expect(page.locator("#checked")).to_have_text("Still needed: Reason.")
    page.get_by_label("Reason").fill("ticket 12")
    expect(page.locator("#checked")).to_have_text("Every check passed.")
    page.goto(f"{server.url}{NEW_WAIVER}")
    page.get_by_label("Reason").fill("ticket 12")
    expect(page.locator("#checked")).to_have_text("Still needed: Test.")
    page.get_by_role("combobox", name="Test").fill("1x1x32x64")
    page.locator("#picks li").first.click()
    expect(page.get_by_label("Its key")).to_have_value(re.compile("^v1-[0-9a-f]{32}$"))
    expect(page.locator("#checked")).to_have_text("Every check passed.")
