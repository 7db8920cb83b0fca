"""The routes of the tests' and the flags' pages, each with its JSON twin. They only read; what
changes a flag is the API's."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import catalogues, findings, histories, triage, urls
from gonogo_dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the list of tests and of flags, and the page of one of each."""

    def test(session: Session, request: Request, now: datetime) -> histories.TestView | None:
        return histories.one(session, request.path_params["name"], request.query_params, now)

    def flag(session: Session, request: Request, now: datetime) -> findings.FlagView | None:
        return findings.one(session, request.path_params["name"], now)

    site.add_list(urls.TESTS, "catalogue.html", catalogues.listed)
    site.add(urls.TESTS + "/{name}", "test.html", test, noun="test")
    site.add_list(urls.FLAGS, "flags.html", triage.listed)
    site.add(urls.FLAGS + "/{name}", "flag.html", flag, noun="flag")
