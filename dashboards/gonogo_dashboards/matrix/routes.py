"""The route of the build matrix, and its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site, number
from gonogo_dashboards.matrix import cells, matrix_page

NAVIGATION = (Entry("matrix", "Matrix", urls.MATRIX, "Results", 5),)
TEMPLATE_NAMES = {"matrix_cells": cells}


def add(site: Site) -> None:
    """Add the page."""

    def read(session: Session, request: Request, now: datetime) -> matrix_page.MatrixView:
        query = request.query_params
        columns = number(query.get("builds"), matrix_page.BUILDS, matrix_page.MAX_BUILDS)
        return matrix_page.read(
            session, query, query.get("cursor"), site.limit(query), columns, now
        )

    site.add(
        urls.MATRIX,
        "matrix/matrix.html",
        read,
        "Which tests are hollow, on which builds?",
        noun="matrix",
        views="matrix",
    )
