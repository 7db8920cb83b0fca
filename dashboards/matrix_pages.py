"""The route of the build matrix, and its JSON twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import matrices, urls
from storage.paging import BadCursor


def add(
    router: APIRouter,
    *,
    page: Callable[[Request, str, Any], Response],
    twin: Callable[[Request, Any], Response],
    refuse: Callable[[Request, int, str, str], Response],
    reading: Callable[[], AbstractContextManager[Session]],
    limit: Callable[[str | None], int],
    now: Callable[[], datetime],
) -> None:
    """Adds the routes, which only read. `refuse` answers in the form that was asked for; `limit`: how many tests a page has."""

    def answer(form: Callable[[Request, Any], Response]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            query = request.query_params
            size = limit(query.get("limit")), columns(query.get("builds"))
            try:
                with reading() as session:
                    view = matrices.read(session, query, query.get("cursor"), *size, now())
            except BadCursor:
                return refuse(request, 400, "This matrix has no such page", "cursor: not one that this matrix gave")
            return form(request, view)

        return endpoint

    router.add_api_route(f"{urls.MATRIX}.json", answer(twin), methods=["GET"])
    router.add_api_route(urls.MATRIX, answer(lambda request, view: page(request, "matrix.html", view)), methods=["GET"])


def columns(text: str | None) -> int:
    """How many builds: what was asked for within 1 and matrices.MOST_BUILDS, else matrices.BUILDS."""
    asked = int(text) if text and text.isascii() and text.isdigit() and len(text) < 6 else matrices.BUILDS
    return min(matrices.MOST_BUILDS, max(1, asked))
