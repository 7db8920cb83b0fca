"""Write docs/routes.md, the table of addresses and the scopes that they need, from the service.

`python -m tests.checks.routes` writes it; tests compare the page with the service, and try every
address with every scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import SecretStr
from starlette.routing import Route

from gonogo.settings import Settings
from gonogo.urls import API
from gonogo_dashboards.kit.site import PageRoute
from gonogo_service.app import create_app
from gonogo_service.hosts import door
from gonogo_service.kit.answers import caller
from gonogo_service.people.visit import PUBLIC, SIGNED

PAGE = Path(__file__).parents[2] / "docs" / "routes.md"
HEAD = """# Addresses and scopes

Each address of the service, with the scope that a token or a login needs. `admin` contains
`submit`, and `submit` contains `read`. The examples are in [HTTP by example](http.md). With
`gonogo up`, programs of this machine need none.

`host`: the token of a [device host](protocol.md). `none`: everybody may ask. `signature`: the
sender signs the body instead ([incoming webhooks](hooks.md)).
"""
_ORDER = ("read", "submit", "admin", "host")
_SCOPES: dict[Any, str] = {caller(scope): scope for scope in _ORDER[:-1]} | {door.sender: "host"}


@dataclass(frozen=True, order=True)
class Row:
    """An address with a method, and what it needs."""

    path: str
    method: str
    scope: str
    summary: str = ""

    @property
    def api(self) -> bool:
        """Return whether it belongs to the API, not to the pages."""
        return self.path.startswith(API)


def rows(app: FastAPI) -> list[Row]:
    """Return every address of the service."""
    return sorted(
        Row(route.path_format, method, _scope(route), getattr(route, "summary", None) or "")
        for route in app.router.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    )


def _scope(route: Route) -> str:
    """Return the scope of a route: the highest that its dependencies demand."""
    if route.path in SIGNED:
        return "signature"
    if route.path in PUBLIC or route.path.startswith("/static/"):
        return "none"
    calls = _calls(route.dependant) if isinstance(route, APIRoute) else ()
    demanded = {_SCOPES[call] for call in calls if call in _SCOPES}
    # what the edge lets in has `read`; a page that needs more says so itself
    demanded |= {(route.scope if isinstance(route, PageRoute) else "") or "read"}
    return max(demanded, key=_ORDER.index)


def _calls(dependant: Any) -> Iterator[Any]:
    yield dependant.call
    for inner in dependant.dependencies:
        yield from _calls(inner)


def service() -> FastAPI:
    """Return the service without a database."""
    return create_app(Settings(database_url="sqlite:///unused.db", secret_key=SecretStr("x" * 32)))


def page() -> str:
    """Return the page, as the service of this moment makes it."""
    every = rows(service())
    api = [row for row in every if row.api]
    others = [row for row in every if not row.api]
    parts = [HEAD, "## API\n", _table(api), "## Pages, health and metrics\n", _table(others)]
    return "\n".join(parts)


def _table(part: Iterable[Row]) -> str:
    lines = ["| address | method | scope | purpose |", "|---|---|---|---|"]
    lines += [
        f"| `{row.path.removeprefix(API)}` | {row.method} | {row.scope} | {row.summary} |"
        for row in part
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page."""
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
