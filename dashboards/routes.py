"""A page's routes: its address and its JSON twin from one reading, with the same refusals in the form that was asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from gonogo.problems import FieldError
from storage.paging import BadCursor

Read = Callable[[Session, Request, datetime], Any]
"""From a reading session, what was asked and the time now to a view; None: there is no such thing."""


@dataclass(frozen=True)
class Site:
    """The pages' router, and how pages.py answers: a view as a page or as JSON, and a refusal in the form that was asked for."""

    router: APIRouter
    page: Callable[[Request, str, Any], Response]
    twin: Callable[[Request, Any], Response]
    refuse: Callable[[Request, int, str, str], Response]
    reading: Callable[[], AbstractContextManager[Session]]
    limit: Callable[[str | None], int]
    """How long a list is, from what was asked for."""
    now: Callable[[], datetime]

    def add(self, path: str, template: str, read: Read, *, noun: str = "list", wrong: str = "") -> None:
        """Adds `path` and `path`.json, which only read.

        noun: what a page shows: "list" where it is one, whose cursor may be wrong (400), else what there may be none of (404), named by the
        last part of the address. wrong: the title where a field of the query is (422).
        """

        def view(request: Request, form: Callable[[Request, Any], Response]) -> Response:
            try:
                with self.reading() as session:
                    found = read(session, request, self.now())
            except BadCursor:
                return self.refuse(request, 400, f"This {noun} has no such page", f"cursor: not one that this {noun} gave")
            except FieldError as problem:
                if not wrong:
                    raise
                return self.refuse(request, 422, wrong, str(problem))
            if found is None:
                (name,) = request.path_params.values()
                return self.refuse(request, 404, f"No such {noun}", f"There is no {noun} {name}. It may have been on another server.")
            return form(request, found)

        def twin(request: Request) -> Response:
            return view(request, self.twin)

        def page(request: Request) -> Response:
            return view(request, lambda asked, found: self.page(asked, template, found))

        self.router.add_api_route(f"{path}.json", twin, methods=["GET"])  # first: "x.json" could be an id, too
        self.router.add_api_route(path, page, methods=["GET"])
