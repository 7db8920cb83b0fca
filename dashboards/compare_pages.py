"""The page of a commit against its base, and its JSON twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import compared, urls
from gonogo.problems import FieldError


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
    """Adds the routes, which only read. `refuse` answers in the form that was asked for; `limit`: how many tests are shown."""

    def view(request: Request) -> compared.ComparisonView:
        query = request.query_params
        with reading() as session:
            return compared.view(session, query.get("base", ""), query.get("head", ""), limit(query.get("limit")), now())

    @router.get(f"{urls.COMPARE}.json")
    def comparison_twin(request: Request) -> Response:
        try:
            return twin(request, view(request))
        except FieldError as problem:
            return refuse(request, 422, "This can't be compared", str(problem))

    @router.get(urls.COMPARE)
    def comparison(request: Request) -> Response:
        try:
            return page(request, "compare.html", view(request))
        except FieldError as problem:
            return refuse(request, 422, "This can't be compared", str(problem))
