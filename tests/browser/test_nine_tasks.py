"""Nine everyday tasks, each in at most two clicks from the overview, on a desktop and a phone."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from playwright.sync_api import BrowserContext, Locator, Page, expect

from populated_database import FLICKERED, House

DESKTOP, PHONE = (1280, 800), (390, 844)
MAX_CLICKS = 2


@dataclass
class Reader:
    """Somebody who begins at the overview; `clicks` are those of the task at hand."""

    page: Page
    clicks: int = 0

    def click(self, place: Locator) -> None:
        """Click something that is there to be seen."""
        self.clicks += 1
        expect(place).to_be_visible()
        place.click()

    def link(self, name: str) -> None:
        """Click a link of the page by its words."""
        self.click(self.page.get_by_role("main").get_by_role("link", name=name).first)

    def button(self, name: str) -> None:
        """Click a button by its words."""
        self.click(self.page.get_by_role("button", name=name, exact=True).first)


def _hollow_and_why(reader: Reader) -> None:
    reader.click(reader.page.locator(".flag-rows:not(.news-rows) .v-pass_by_tolerance").first)
    expect(reader.page.locator("#banner")).to_contain_text("Passes only by tolerance")
    expect(reader.page.locator("#banner .words")).to_contain_text("dx: 0.41 % of the values")


def _changed_between_builds(reader: Reader) -> None:
    """Any two builds: here the first and the last that the overview names."""
    builds = reader.page.locator("th.build a").all_inner_texts()
    assert len(builds) > 2
    reader.link(builds[0])
    reader.link(builds[-1])
    heading = reader.page.get_by_role("heading", level=1)
    expect(heading).to_have_text(f"{builds[0]} against {builds[-1]}")


def _acknowledge(reader: Reader) -> None:
    reader.click(reader.page.locator(".flag-rows:not(.news-rows) .v-pass_by_tolerance").last)
    reader.page.get_by_label("Reason").fill("known since May")
    reader.button("Acknowledge")
    expect(reader.page.locator("#result")).to_contain_text("Acknowledged.")


def _submit(reader: Reader) -> None:
    reader.link("Submit a job")
    reader.button("Submit")
    expect(reader.page).to_have_url(re.compile("/jobs/[0-9a-f-]{36}$"))


def _worst_seed_reproduced(reader: Reader) -> None:
    reader.click(reader.page.locator(".flag-rows:not(.news-rows) .v-pass_by_tolerance").first)
    expect(reader.page.locator("#check-1")).to_contain_text("gonogo check")
    reader.click(reader.page.locator(".command button").first)
    expect(reader.page.locator(".command button").first).to_have_text(re.compile("Copied|Selected"))


def _bad_device(reader: Reader) -> None:
    reader.link("lab-1/wormhole:3")
    expect(reader.page.locator("#banner")).to_contain_text("Bad")
    expect(reader.page.locator("#banner")).to_contain_text("It hung, and tt-smi -r did not help")


def _share_a_view(reader: Reader) -> None:
    if not reader.page.locator("#copy-link").is_visible():
        reader.click(reader.page.locator("#menu"))
    reader.button("Share")
    expect(reader.page.locator("#copy-link")).to_have_text(re.compile("Link copied|http"))


def _flaky_over_30_days(reader: Reader) -> None:
    reader.click(reader.page.locator(".numbers a", has_text="Flaky"))
    reader.link("30 days")
    expect(reader.page).to_have_url(re.compile("standing=flaky&range=30d"))
    flickered = reader.page.locator("#tests tr", has_text=f"epsilon {FLICKERED:g}")
    expect(flickered.locator("td[data-name='30 days']")).to_have_text(re.compile(r"\d%"))


def _replay_a_webhook(reader: Reader) -> None:
    reader.link("failing webhook")
    reader.click(reader.page.locator("#deliveries button:not(.term)").first)
    expect(reader.page.locator("#result")).to_have_text(re.compile("to be sent again|Try now"))
    expect(reader.page.locator("#deliveries")).not_to_contain_text("Gave up")


TASKS: tuple[Callable[[Reader], None], ...] = (
    _hollow_and_why,
    _changed_between_builds,
    _acknowledge,
    _submit,
    _worst_seed_reproduced,
    _bad_device,
    _share_a_view,
    _flaky_over_30_days,
    _replay_a_webhook,
)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_nine_tasks_take_two_clicks_each(
    populated: tuple[object, House],
    open_context: Callable[..., BrowserContext],
    size: tuple[int, int],
) -> None:
    server, _ = populated
    reader = Reader(open_context(size=size).new_page())
    problems = []
    for task in TASKS:
        reader.page.goto(server.url)  # type: ignore[attr-defined]
        reader.clicks = 0
        try:
            task(reader)
        except AssertionError as problem:
            problems.append(f"{task.__name__}: {str(problem)[:300]}")
        if reader.clicks > MAX_CLICKS:
            problems.append(f"{task.__name__}: {reader.clicks} clicks")
    assert not problems, "\n".join(problems)
