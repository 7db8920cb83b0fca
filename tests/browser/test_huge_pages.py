"""Jobs of 100,000 seeds, of one seed and of none, and the page of their test: few marks, and all
seeds counted."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from benchmarks import harvest
from gonogo import urls
from gonogo_dashboards.tests import strip as strips
from gonogo_service.jobs import store as jobs
from gonogo_service.kit.database.encoding import utcnow

MOST_MARKS = 5000
HUGE, PER_JOB = 100_000, 500


def test_few_marks_stand_for_a_hundred_thousand_seeds_and_one_or_none_have_a_page_too(
    server, page: Page
) -> None:
    now, test = utcnow(), harvest.spec(0)
    with server.writing() as session:
        places = [harvest.Place(test, f"b{number}", number, now) for number in range(3)]
        hollow = harvest.Source(
            session, harvest.stored(session, harvest.HOLLOW, places[0], PER_JOB)
        )
        huge = hollow.copy(session, places[1], times=HUGE // PER_JOB)
        one = harvest.stored(session, harvest.RIGHT, places[2], 1)
        none = jobs.cancel(session, harvest.submitted(session, places[2], 4))
    assert none is not None
    page.goto(server.url + urls.job(huge))
    figure = page.locator("[data-chart=chart-seeds]")
    expect(figure).to_have_attribute("data-marks", re.compile(r"\d{3}"))
    assert 100 < int(figure.get_attribute("data-marks") or 0) <= MOST_MARKS
    expect(page.locator("#seeds-words")).to_contain_text("100,000 seeds")
    page.goto(server.url + urls.history(test.key))
    strip = page.locator("figure[data-chart=chart-strip]")
    expect(strip).to_have_attribute("data-marks", re.compile(r"\d+"))
    assert strips.WORST_MARKS <= int(strip.get_attribute("data-marks") or 0) <= MOST_MARKS
    expect(strip).to_contain_text(f"{HUGE + PER_JOB + 1:,} seeds")
    page.goto(server.url + urls.job(one))
    expect(page.locator("[data-chart=chart-seeds]")).to_have_attribute("data-marks", "1")
    page.goto(server.url + urls.job(none.id))
    expect(page.locator("#state")).to_have_text("Canceled after 0 of 4 seeds")
