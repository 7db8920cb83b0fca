"""The routes of the bisections' pages, each with its JSON twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import bisections, urls
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
    """Adds the routes, which only read. `refuse` answers in the form that was asked for; `limit`: how long a list is."""

    def listing(form: Callable[[Request, Any], Response]) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            query = request.query_params
            try:
                with reading() as session:
                    view = bisections.listed(session, query, query.get("cursor"), limit(query.get("limit")), now())
            except BadCursor:
                return refuse(request, 400, "This list has no such page", "cursor: not one that this list gave")
            return form(request, view)

        return endpoint

    def one(form: Callable[[Request, Any], Response]) -> Callable[[Request, str], Response]:
        def endpoint(request: Request, bisection_id: str) -> Response:
            with reading() as session:
                view = bisections.one(session, bisection_id, now())
            if view is None:
                detail = f"There is no bisection {bisection_id}. It may have been on another server."
                return refuse(request, 404, "No such bisection", detail)
            return form(request, view)

        return endpoint

    for suffix, every, each in (
        (".json", twin, twin),
        ("", lambda request, view: page(request, "bisections.html", view), lambda request, view: page(request, "bisection.html", view)),
    ):
        router.add_api_route(urls.BISECTIONS + suffix, listing(every), methods=["GET"])
        router.add_api_route(urls.BISECTIONS + "/{bisection_id}" + suffix, one(each), methods=["GET"])
