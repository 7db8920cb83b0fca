"""The routes of the pages of tests and waivers, each with its JSON version. They only read."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.routes import Site
from gonogo_dashboards.tests import test_list, test_page, waiver_list


def add(site: Site) -> None:
    """Add the list of tests, the page of one, and the list of waivers."""

    def test(session: Session, request: Request, now: datetime) -> test_page.TestView | None:
        return test_page.one(session, request.path_params["name"], request.query_params, now)

    site.add_list(urls.TESTS, "tests/tests.html", test_list.listed, views="tests")
    site.add(urls.TESTS + "/{name}", "tests/test.html", test, noun="test")
    site.add_list(urls.WAIVERS, "tests/waivers.html", waiver_list.listed)
