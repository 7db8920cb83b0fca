"""The page of a commit against its base, and its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import compared, urls
from gonogo_dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the page."""

    def view(session: Session, request: Request, now: datetime) -> compared.ComparisonView:
        query = request.query_params
        return compared.view(
            session, query.get("base", ""), query.get("head", ""), site.limit(query), now
        )

    site.add(urls.COMPARE, "compare.html", view, noun="comparison", wrong="This can't be compared")
