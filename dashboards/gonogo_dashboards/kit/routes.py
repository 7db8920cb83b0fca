"""A page's routes: its address and its JSON twin from one reading, with the same refusals in the
form that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.errors import FieldError
from gonogo_storage.db.paging import BadCursor

Read = Callable[[Session, Request, datetime], Any]
"""From a reading session, what was asked and the time now to a view; None: there is no such
thing."""
ReadList = Callable[[Session, Mapping[str, str], str | None, int, datetime], Any]
"""From a reading session, the filters, the cursor, how long the list is and the time now to a view.
Raises gonogo_storage.db.paging.BadCursor."""


def number(text: str | None, default: int, most: int) -> int:
    """A number of the query: what was asked for within 1 and `most`, else the default."""
    return (
        min(most, max(1, int(text)))
        if text and text.isascii() and text.isdigit() and len(text) < 6
        else default
    )


@dataclass(frozen=True)
class Site:
    """The pages' router, and how pages.py answers: a view as a page or as JSON, and a refusal in
    the form that was asked for.
    """

    router: APIRouter
    page: Callable[[Request, str, Any], Response]
    twin: Callable[[Request, Any], Response]
    refuse: Callable[[Request, int, str, str], Response]
    reading: Callable[[], AbstractContextManager[Session]]
    may: Callable[[Request, str], bool]
    """Whether the reader has a scope beyond `read`."""
    now: Callable[[], datetime]

    def limit(self, query: Mapping[str, str]) -> int:
        """How long a list is."""
        return number(query.get("limit"), urls.PAGE_LENGTH, urls.MOST_LENGTH)

    def add(
        self,
        path: str,
        template: str,
        read: Read,
        *,
        noun: str = "list",
        wrong: str = "",
        scope: str = "",
        twin_path: str = "",
    ) -> None:
        """Adds `path` and its twin, which only read.

        noun: what a page shows: "list" where it is one, whose cursor may be wrong (400), else what
        there may be none of (404), named by the last part of the address. wrong: the title where a
        field of the query is (422). scope: which the reader must have beyond `read` (403).
        twin_path: where the twin is, if not at `path`.json.
        """

        def view(request: Request, form: Callable[[Request, Any], Response]) -> Response:
            if scope and not self.may(request, scope):
                return self.refuse(
                    request,
                    403,
                    f"This page needs the scope {scope}",
                    "Log in with a token that has it.",
                )
            try:
                with self.reading() as session:
                    found = read(session, request, self.now())
            except BadCursor:
                return self.refuse(
                    request,
                    400,
                    f"This {noun} has no such page",
                    f"cursor: not one that this {noun} gave",
                )
            except FieldError as problem:
                if not wrong:
                    raise
                return self.refuse(request, 422, wrong, str(problem))
            if found is None:
                *_, name = request.path_params.values()
                return self.refuse(
                    request,
                    404,
                    f"No such {noun}",
                    f"There is no {noun} {name}. It may have been on another server.",
                )
            return form(request, found)

        def twin(request: Request) -> Response:
            return view(request, self.twin)

        def page(request: Request) -> Response:
            return view(request, lambda asked, found: self.page(asked, template, found))

        self.router.add_api_route(
            twin_path or f"{path}.json", twin, methods=["GET"]
        )  # first: "x.json" could be an id, too
        self.router.add_api_route(path, page, methods=["GET"])

    def add_list(self, path: str, template: str, read: ReadList, *, scope: str = "") -> None:
        """Adds a list with its twin: the query has its filters, its cursor and its length."""

        def view(session: Session, request: Request, now: datetime) -> Any:
            query = request.query_params
            return read(session, query, query.get("cursor") or None, self.limit(query), now)

        self.add(path, template, view, scope=scope)
