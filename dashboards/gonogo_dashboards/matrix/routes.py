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

    def columns(request: Request) -> int:
        given = request.query_params.get("builds")
        return number(given, matrix_page.BUILDS, matrix_page.MAX_BUILDS)

    def read(session: Session, request: Request, now: datetime) -> matrix_page.MatrixView:
        query = request.query_params
        return matrix_page.read(
            session, query, query.get("cursor"), site.limit(query), columns(request), now
        )

    def further(
        session: Session, request: Request, cursor: str, now: datetime
    ) -> matrix_page.MatrixView:
        return matrix_page.read(
            session, request.query_params, cursor, urls.MAX_LENGTH, columns(request), now
        )

    site.add(
        urls.MATRIX,
        "matrix/matrix.html",
        read,
        "Which tests are hollow, on which builds?",
        noun="matrix",
        line=matrix_page.MatrixLine,
        further=further,
    )
