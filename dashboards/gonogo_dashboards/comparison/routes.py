"""The route of the page of a commit against its base, and its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.comparison import compare_page
from gonogo_dashboards.kit.routes import Site


def add(site: Site) -> None:
    """Add the page."""

    def view(session: Session, request: Request, now: datetime) -> compare_page.ComparisonView:
        query = request.query_params
        return compare_page.view(
            session, query.get("base", ""), query.get("head", ""), site.limit(query), now
        )

    site.add(
        urls.COMPARE,
        "comparison/compare.html",
        view,
        noun="comparison",
        wrong="This can't be compared",
    )
