"""The routes of the bisections' pages, each with its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.bisections import bisection_page, posterior_charts
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_service.bisections.api import LISTED
from gonogo_service.bisections.model import LABEL

NAVIGATION = (Entry("bisections", "Bisections", urls.BISECTIONS, "Analysis", 4),)
TEMPLATE_NAMES = {"posterior_charts": posterior_charts, "BISECTION_LABEL": LABEL}


def add(site: Site) -> None:
    """Add the list of bisections and the page of one."""

    def one(
        session: Session, request: Request, now: datetime
    ) -> bisection_page.BisectionView | None:
        return bisection_page.one(session, request.path_params["bisection_id"], now)

    site.add_list(
        urls.BISECTIONS,
        "bisections/bisections.html",
        LISTED,
        bisection_page.listed,
        "Which changes were searched for?",
    )
    site.add(
        urls.BISECTIONS + "/{bisection_id}",
        "bisections/bisection.html",
        one,
        "Which build changed it?",
        noun="bisection",
    )
