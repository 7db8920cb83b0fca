"""The routes of the pages.

Each sub-package with a `routes` module is part of it. It serves HTML and its JSON version from the
same view, built assets, the API's documentation, and the error and login pages.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, PrefixLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from gonogo import urls
from gonogo.reports import red_hollow
from gonogo_dashboards.charts import charts
from gonogo_dashboards.kit import (
    assets,
    bidi,
    build_strips,
    commands,
    glossary,
    list_rows,
    manual,
    navigation,
    words,
)
from gonogo_dashboards.kit.evidence_view import percent
from gonogo_dashboards.kit.site import Frame, PageRoute, Site
from gonogo_service.kit import rows
from gonogo_service.kit.database.encoding import encode, timestamp, utcnow
from gonogo_service.people.context import Context

THEME = "gonogo-theme"
"""The cookie of the reader's theme, which the switch of web/src/theme.js sets."""
THEMES = ("light", "dark")


@lru_cache(maxsize=1)
def sections() -> tuple[ModuleType, ...]:
    """Return the `routes` module of each sub-package that has one, in the order of their names.

    A sub-package is part of the site because it is here. Its `add(site)` adds its pages,
    `NAVIGATION` holds its entries of the navigation, and `TEMPLATE_NAMES` what its templates call;
    both may be absent.
    """
    return tuple(
        import_module(f"gonogo_dashboards.{path.parent.name}.routes")
        for path in sorted(Path(__file__).parent.glob("*/routes.py"))
    )


def groups() -> tuple[navigation.Group, ...]:
    """Return the navigation of all sub-packages."""
    return navigation.groups(
        entry for section in sections() for entry in getattr(section, "NAVIGATION", ())
    )


def template_folders() -> list[Path]:
    """Return the folder of templates of each sub-package; a template is named "jobs/job.html"."""
    return sorted(Path(__file__).parent.glob("*/templates"))


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the templates' environment.

    Everything is escaped, an unknown name is an error, and no text reorders its neighbors.
    """
    templates = Environment(
        loader=PrefixLoader(
            {folder.parent.name: FileSystemLoader(folder) for folder in template_folders()}
        ),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        finalize=bidi.contained,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.globals.update(
        urls=urls, words=words, glossary=glossary, asset=_asset, zip=zip, dict=dict
    )
    templates.globals.update(navigation=groups, build_strips=build_strips, charts=charts)
    templates.globals.update(commands=commands, list_rows=list_rows, red_hollow=red_hollow)
    for section in sections():
        templates.globals.update(getattr(section, "TEMPLATE_NAMES", {}))
    templates.filters.update(number=words.number, data=_data, exact=bidi.exact, percent=percent)
    templates.filters.update(capital=words.sentence_case, inline=words.inline)
    templates.filters.update(moment=words.moment, stamp=timestamp)
    templates.filters.update(age=lambda moment: words.since(moment, utcnow()))
    templates.filters.update(lasting=lambda moment: words.lasting(moment, utcnow()))
    templates.filters.update(ahead=lambda moment: words.until(moment, utcnow()))
    templates.filters.update(seconds=lambda ms: "–" if ms is None else words.duration(ms / 1000))
    return templates


def _asset(name: str) -> assets.Entry | None:
    """Return an entry of the bundle, or None where it isn't built: the page then says so."""
    try:
        return assets.entry(name)
    except assets.NotBuilt:
        return None


def _data(value: Any) -> Markup:
    """Return JSON for a `<script type="application/json">` block.

    It has no "<", so nothing in it can end the block or begin another.
    """
    return Markup(encode(value).replace("<", "\\u003c"))


def render(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    """Return a page; `csrf` is "" unless given."""
    always = {"csrf": "", "token_ends": "", "status": status, "frame": Frame(), "theme": ""}
    text = environment().get_template(template).render({**always, **values})
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


def login_page(*, next_url: str, error: str = "", status: int = 200) -> HTMLResponse:
    """Return the form that turns a token into a session.

    It sends POST /login with csrf_token, next and token.
    """
    return render("kit/login.html", status, next_url=next_url, error=error)


def error_page(status: int, title: str, detail: str) -> HTMLResponse:
    """Return a page for readers, where a program gets a problem document."""
    return render("kit/error.html", status, title=title, detail=detail)


def make_routes(context: Context) -> list[PageRoute]:
    """Return the routes of all pages; they only read.

    service/gonogo_service/people/auth.py has decided before whether the reader may see them.
    """

    def page(request: Request, template: str, view: Any, frame: Frame) -> Response:
        theme = request.cookies.get(THEME, "")
        return render(
            template,
            view=view,
            csrf=context.csrf(request),
            token_ends=context.token_ends(request),
            frame=frame,
            theme=theme if theme in THEMES else "",
        )

    def as_json(_request: Request, view: Any) -> Response:
        return Response(
            encode(view, rows.plain),
            media_type="application/json",
            headers={"Cache-Control": "no-store"},
        )

    def docs(request: Request) -> Response:
        return render("kit/docs.html", csrf=context.csrf(request))

    site = Site([], context, page, as_json, _refuse, groups, utcnow)
    for section in sections():
        section.add(site)
    return [
        # fixed addresses first: "/jobs/new" names no job
        *sorted(site.routes, key=lambda route: "{" in route.path),
        PageRoute(urls.DOCS, docs),
        PageRoute(urls.MANUAL, _manual_page),
        PageRoute(urls.MANUAL + "/{name:path}", _manual_page),
        PageRoute(urls.STATIC + "/{name}", _asset_file),
        PageRoute("/favicon.ico", _favicon),
    ]


def _manual_page(request: Request) -> Response:
    return manual.serve(request, request.path_params.get("name", "")) or error_page(
        404,
        "No such page of the manual" if manual.is_built() else "The manual is not built",
        "" if manual.is_built() else "Run `make docs` in a clone. `make release` does it, too.",
    )


def _asset_file(request: Request) -> Response:
    return assets.serve(request.path_params["name"], request)


def _favicon(request: Request) -> Response:
    return assets.serve("favicon.svg", request)


def _refuse(request: Request, status: int, title: str, detail: str) -> Response:
    """Return a problem document for a JSON version, a page for a reader."""
    return (
        _problem(status, title, detail)
        if request.url.path.endswith(".json")
        else error_page(status, title, detail)
    )


def _problem(status: int, title: str, detail: str) -> Response:
    """Return a problem document (RFC 9457), as the API does."""
    return Response(
        encode({"title": title, "status": status, "detail": detail}),
        status_code=status,
        media_type="application/problem+json",
    )
