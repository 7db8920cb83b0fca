"""The routes of a page: its address and its JSON version from one reading.

A refusal has the form that was requested: a page or a problem document.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session
from starlette.routing import Match, Route
from starlette.types import Scope

from gonogo import urls
from gonogo.errors import FieldError
from gonogo_dashboards.kit import csv_export
from gonogo_dashboards.kit.navigation import Group
from gonogo_service.flags import attention as flags
from gonogo_service.kit.database.paging import BadCursor
from gonogo_service.people.context import Context

Read = Callable[[Session, Request, datetime], Any]
"""Reads a view from a session, the request and the time; None: there is no such thing."""
ReadFurther = Callable[[Session, Request, str, datetime], Any]
"""Reads a list from a session, the request, a cursor and the time."""
ReadList = Callable[[Session, Mapping[str, str], str | None, int, datetime], Any]
"""Reads a list from a session, filters, a cursor, a length and the time."""


def number(text: str | None, default: int, maximum: int) -> int:
    """Return a number of the query, limited to 1 … `maximum`; anything else is the default."""
    return (
        min(maximum, max(1, int(text)))
        if text and text.isascii() and text.isdigit() and len(text) < 6
        else default
    )


MAX_QUERY = 4_000
"""A page with a longer query, such as a form filled with anything, doesn't link to its JSON."""
MAX_CSV_LINES = 10_000
"""Lines of a list as CSV; a longer list's file says in its name that it has the first ones."""


class PageRoute(Route):
    """A page's address, whose endpoint takes the request alone.

    It needs none of what FastAPI's routes add for an API, such as parameters and schemas, and to
    build that for every page took 19 ms of each app's start.

    summary: the question that the page answers; docs/routes.md lists it. scope: the scope that
    the reader needs beyond `read`.
    """

    def __init__(
        self,
        path: str,
        endpoint: Callable[[Request], Response],
        *,
        summary: str = "",
        scope: str = "",
    ) -> None:
        super().__init__(path, endpoint, methods=["GET"], include_in_schema=False)
        self.summary = summary
        self.scope = scope

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Return whether the request is for this page, and itself as `route`, as FastAPI does."""
        match, child_scope = super().matches(scope)
        return match, child_scope if match is Match.NONE else {**child_scope, "route": self}


@dataclass(frozen=True)
class Frame:
    """The parts of a page that are not about its own subject.

    open_flags: the number of open flags. json_url: the page's JSON version. csv_url: the address of
    the list as CSV; "" for none. reader: the name that the reader's jobs have.
    """

    open_flags: int = 0
    json_url: str = ""
    csv_url: str = ""
    reader: str = ""


@dataclass(frozen=True)
class Site:
    """The pages' routes, and how pages.py answers: as a page, as JSON, or with a refusal."""

    routes: list[PageRoute]
    context: Context
    page: Callable[[Request, str, Any, Frame], Response]
    as_json: Callable[[Request, Any], Response]
    refuse: Callable[[Request, int, str, str], Response]
    navigation: Callable[[], Sequence[Group]]
    now: Callable[[], datetime]

    def limit(self, query: Mapping[str, str]) -> int:
        """Return the length of a list."""
        return number(query.get("limit"), urls.PAGE_LENGTH, urls.MAX_LENGTH)

    def length(self, request: Request, of_csv: int) -> int:
        """Return the same for a page, or for its CSV: there `of_csv` where no limit is given."""
        query = request.query_params
        whole = request.url.path.endswith(".csv") and "limit" not in query
        return of_csv if whole else self.limit(query)

    def add(
        self,
        path: str,
        template: str,
        read: Read,
        question: str,
        *,
        noun: str = "list",
        wrong: str = "",
        scope: str = "",
        json_path: str = "",
        line: type | None = None,
        further: ReadFurther | None = None,
    ) -> None:
        """Add `path` and its JSON version, and with `line` a CSV version; all only read.

        question: the question that the page answers; docs/routes.md lists it. noun: the kind of
        page: "list" for one whose cursor may be wrong (400), else a thing that may not exist (404),
        named by the last part of the address. wrong: the title where a field of the query is
        invalid (422). scope: the scope that the reader needs beyond `read` (403). json_path: the
        address of the JSON version, if not `path`.json. line: the class of the view's `items`,
        which are the lines of its CSV. further: reads the list from a cursor on, for its CSV.
        """

        def view(request: Request, form: Callable[[Session, Any], Response]) -> Response:
            if scope and not self.context.may(request, scope):
                return self.refuse(
                    request,
                    403,
                    f"This page needs the scope {scope}",
                    "Log in with a token that has it.",
                )
            try:
                with self.context.reading() as session:
                    shown = read(session, request, self.now())
                    if shown is not None:
                        return form(session, shown)
            except BadCursor:
                return self.refuse(
                    request,
                    400,
                    f"This {noun} has no such page",
                    f"cursor: unknown; follow the link `next` of this {noun}",
                )
            except FieldError as problem:
                if not wrong:
                    raise
                return self.refuse(request, 422, wrong, str(problem))
            *_, name = request.path_params.values()
            return self.refuse(
                request,
                404,
                f"No such {noun}",
                f"There is no {noun} {name} here. It may be on another server.",
            )

        def json_version(request: Request) -> Response:
            return view(request, lambda _, shown: self.as_json(request, shown))

        def page(request: Request) -> Response:
            here, query = request.url.path, f"?{request.url.query}".removesuffix("?")

            def framed(session: Session, shown: Any) -> Response:
                frame = Frame(
                    flags.open_total(session),
                    f"{json_path or f'{here}.json'}{query}" if len(query) < MAX_QUERY else "",
                    f"{here}.csv{query}" if line and shown.items else "",
                    self.context.reader(request),
                )
                return self.page(request, template, shown, frame)

            return view(request, framed)

        def csv_version(request: Request) -> Response:
            assert line

            def exported(session: Session, shown: Any) -> Response:
                items = list(shown.items)
                name = request.url.path.strip("/").removesuffix(".csv").replace("/", "-")
                more = None if "limit" in request.query_params else further
                while more and shown.next and len(items) < MAX_CSV_LINES:
                    shown = more(session, request, shown.next, self.now())
                    items += shown.items
                if getattr(shown, "next", None):
                    name += f"-first-{len(items)}-lines"
                return Response(
                    csv_export.text(line, items),
                    media_type="text/csv; charset=utf-8",
                    headers={"Content-Disposition": f'attachment; filename="{name}.csv"'},
                )

            return view(request, exported)

        def route(path: str, endpoint: Callable[[Request], Response], summary: str) -> None:
            self.routes.append(PageRoute(path, endpoint, summary=summary, scope=scope))

        # JSON first, because "x.json" could be an id, too
        route(json_path or f"{path}.json", json_version, "The same as JSON")
        if line:
            route(f"{path}.csv", csv_version, "The same as CSV")
        route(path, page, question)

    def add_list(
        self,
        path: str,
        template: str,
        line: type,
        read: ReadList,
        question: str,
        *,
        scope: str = "",
    ) -> None:
        """Add a list with its JSON version; its query has filters, a cursor and a length.

        As CSV it has all its lines, at most MAX_CSV_LINES; with `limit` it has so many. line: the
        class of the view's `items`.
        """

        def further(session: Session, request: Request, cursor: str, now: datetime) -> Any:
            return read(session, request.query_params, cursor, urls.MAX_LENGTH, now)

        def view(session: Session, request: Request, now: datetime) -> Any:
            query = request.query_params
            limit = self.length(request, urls.MAX_LENGTH)
            return read(session, query, query.get("cursor") or None, limit, now)

        self.add(path, template, view, question, scope=scope, line=line, further=further)
