"""The routes of the gauges' pages, each with its JSON twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import gauges, urls
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
                    view = gauges.listed(session, query, query.get("cursor"), limit(query.get("limit")), now())
            except BadCursor:
                return refuse(request, 400, "This list has no such page", "cursor: not one that this list gave")
            return form(request, view)

        return endpoint

    def one(form: Callable[[Request, Any], Response]) -> Callable[[Request, str], Response]:
        def endpoint(request: Request, gauge_id: str) -> Response:
            with reading() as session:
                view = gauges.one(session, gauge_id, now())
            if view is None:
                return refuse(request, 404, "No such gauge", f"There is no gauge {gauge_id}. It may have been on another server.")
            return form(request, view)

        return endpoint

    for suffix, every, each in (
        (".json", twin, twin),
        ("", lambda request, view: page(request, "gauges.html", view), lambda request, view: page(request, "gauge.html", view)),
    ):
        router.add_api_route(urls.GAUGES + suffix, listing(every), methods=["GET"])
        router.add_api_route(urls.GAUGES + "/{gauge_id}" + suffix, one(each), methods=["GET"])
