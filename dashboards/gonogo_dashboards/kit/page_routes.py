"""The route of a page: an address, what it is for, and the scope that its reader needs."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, Response
from starlette.routing import Match, Route
from starlette.types import Scope


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
