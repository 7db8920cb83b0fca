"""The route of the build matrix, and its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from dashboards import matrices, urls
from dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the page."""

    def read(session: Session, request: Request, now: datetime) -> matrices.MatrixView:
        query = request.query_params
        return matrices.read(session, query, query.get("cursor"), site.limit(query.get("limit")), columns(query.get("builds")), now)

    site.add(urls.MATRIX, "matrix.html", read, noun="matrix")


def columns(text: str | None) -> int:
    """How many builds: what was asked for within 1 and matrices.MOST_BUILDS, else matrices.BUILDS."""
    asked = int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else matrices.BUILDS
    return min(matrices.MOST_BUILDS, max(1, asked))
