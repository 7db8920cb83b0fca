"""The route of the build matrix, and its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import matrices, urls
from gonogo_dashboards.routes import Site, number


def add(site: Site) -> None:
    """Adds the page."""

    def read(session: Session, request: Request, now: datetime) -> matrices.MatrixView:
        query = request.query_params
        columns = number(query.get("builds"), matrices.BUILDS, matrices.MOST_BUILDS)
        return matrices.read(session, query, query.get("cursor"), site.limit(query), columns, now)

    site.add(urls.MATRIX, "matrix.html", read, noun="matrix")
