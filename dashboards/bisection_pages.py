"""The routes of the bisections' pages, each with its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from dashboards import bisections, urls
from dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the list of bisections and the page of one."""

    def listed(session: Session, request: Request, now: datetime) -> bisections.BisectionsView:
        query = request.query_params
        return bisections.listed(session, query, query.get("cursor"), site.limit(query.get("limit")), now)

    def one(session: Session, request: Request, now: datetime) -> bisections.BisectionView | None:
        return bisections.one(session, request.path_params["bisection_id"], now)

    site.add(urls.BISECTIONS, "bisections.html", listed)
    site.add(urls.BISECTIONS + "/{bisection_id}", "bisection.html", one, noun="bisection")
