"""The routes of the bisections' pages, each with its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import bisections, urls
from gonogo_dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the list of bisections and the page of one."""

    def one(session: Session, request: Request, now: datetime) -> bisections.BisectionView | None:
        return bisections.one(session, request.path_params["bisection_id"], now)

    site.add_list(urls.BISECTIONS, "bisections.html", bisections.listed)
    site.add(urls.BISECTIONS + "/{bisection_id}", "bisection.html", one, noun="bisection")
