"""The routes of the pages of tests and waivers, each with its JSON version. They only read."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.tests import curve_charts, strip_charts, tail, test_list, test_page, waivers

NAVIGATION = (
    Entry("tests", "Tests", urls.TESTS, "Results", 2, ("test",)),
    Entry("waivers", "Waivers", urls.WAIVERS, "Results", 4),
)
TEMPLATE_NAMES = {
    "waivers": waivers,
    "curve_charts": curve_charts,
    "strip_charts": strip_charts,
    "tail_charts": tail,
}


def add(site: Site) -> None:
    """Add the list of tests, the page of one, and the list of waivers."""

    def test(session: Session, request: Request, now: datetime) -> Any:
        return test_page.one(session, request.path_params["name"], request.query_params, now)

    site.add_list(
        urls.TESTS,
        "tests/tests.html",
        test_list.TestLine,
        test_list.listed,
        "Which tests need work?",
    )
    site.add(
        urls.TESTS + "/{name}",
        "tests/test.html",
        test,
        "Is this test any good, and what was its result on each build?",
        noun="test",
    )
    site.add_list(
        urls.WAIVERS,
        "tests/waivers.html",
        waivers.WAIVER_LINE,
        waivers.listed,
        "Which findings are accepted, by whom, until when?",
    )
