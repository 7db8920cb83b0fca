"""The router of the pages.

It serves HTML and its JSON version from the same view, built assets, the API's documentation, and
the error and login pages.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, PrefixLoader, StrictUndefined, select_autoescape
from markupsafe import Markup
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.badges import routes as badge_pages
from gonogo_dashboards.bisections import posterior_charts
from gonogo_dashboards.bisections import routes as bisection_pages
from gonogo_dashboards.charts import charts
from gonogo_dashboards.comparison import routes as compare_pages
from gonogo_dashboards.devices import charts as device_charts
from gonogo_dashboards.devices import device_page
from gonogo_dashboards.flags import routes as flag_pages
from gonogo_dashboards.forms import routes as form_pages
from gonogo_dashboards.gauges import charts as gauge_charts
from gonogo_dashboards.gauges import routes as gauge_pages
from gonogo_dashboards.hooks import routes as hook_pages
from gonogo_dashboards.jobs import (
    job_form,
    job_page,
    map_charts,
    seed_details,
    seed_grid,
    selection_tests,
    term_charts,
)
from gonogo_dashboards.kit import (
    assets,
    bidi,
    build_strips,
    manual,
    navigation,
    routes,
    words,
)
from gonogo_dashboards.matrix import cells
from gonogo_dashboards.matrix import routes as matrix_pages
from gonogo_dashboards.overview import overview
from gonogo_dashboards.runs import routes as run_pages
from gonogo_dashboards.search import routes as search_pages
from gonogo_dashboards.tests import active_waivers, error_curve, strip_charts, tail
from gonogo_dashboards.tests import routes as test_pages
from gonogo_dashboards.webhooks import routes as webhook_pages
from gonogo_settings import Settings
from gonogo_storage.db.encoding import encode, utcnow

THEME = "gonogo-theme"
"""The cookie of the reader's theme, which the switch of web/src/theme.js sets."""
THEMES = ("light", "dark")


class Context(Protocol):
    """The parts of the service that the composition root gives to the pages."""

    @property
    def settings(self) -> Settings:
        """Return the service's settings."""

    def reading(self) -> AbstractContextManager[Session]:
        """Return a session that only reads."""

    def csrf(self, request: Request) -> str:
        """Return the CSRF token of the reader's session; "" where none is needed."""

    def quotas(self, session: Session, request: Request) -> list[str]:
        """Return how much of its quotas the reader has used, in words."""

    def token_ends(self, request: Request) -> str:
        """Return the day on which the reader's token ends, where that is soon; else ""."""

    def may(self, request: Request, scope: str) -> bool:
        """Return whether the reader has a scope beyond `read`, which every page needs."""

    def reader(self, request: Request) -> str:
        """Return the name of the reader, which the reader's jobs have; "" on public pages."""


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
    templates.globals.update(urls=urls, words=words, asset=_asset, zip=zip, dict=dict)
    templates.globals.update(navigation=navigation.groups)
    templates.globals.update(
        active_waivers=active_waivers,
        build_strips=build_strips,
        charts=charts,
        device_charts=device_charts,
        error_curve=error_curve,
        gauge_charts=gauge_charts,
        map_charts=map_charts,
        matrix_cells=cells,
        posterior_charts=posterior_charts,
        seed_details=seed_details,
        seed_grid=seed_grid,
        strip_charts=strip_charts,
        tail_charts=tail,
        term_charts=term_charts,
    )
    templates.filters.update(number=words.number, data=_data, exact=bidi.exact)
    templates.filters.update(capital=words.sentence_case, inline=words.inline)
    templates.filters.update(moment=words.moment)
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
    always = {"csrf": "", "token_ends": "", "status": status, "frame": routes.Frame(), "theme": ""}
    text = environment().get_template(template).render({**always, **values})
    return HTMLResponse(text, status_code=status, headers={"Cache-Control": "no-store"})


def login_page(
    *, csrf: str = "", next_url: str = "/", error: str = "", status: int = 200
) -> HTMLResponse:
    """Return the form that turns a token into a session.

    It sends POST /login with csrf_token, next and token.
    """
    return render("kit/login.html", status, csrf=csrf, next_url=next_url, error=error)


def error_page(status: int, title: str, detail: str = "") -> HTMLResponse:
    """Return a page for readers, where a program gets a problem document."""
    return render("kit/error.html", status, title=title, detail=detail)


def make_router(
    context: Context, *, now: Callable[[], datetime] = utcnow, static: Path = assets.FOLDER
) -> APIRouter:
    """Return the router of all pages; they only read.

    service/gonogo_service/access/auth.py has decided before whether the reader may see them.
    """
    router = APIRouter(include_in_schema=False)

    def page(request: Request, template: str, view: Any, frame: routes.Frame) -> Response:
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
            encode(view), media_type="application/json", headers={"Cache-Control": "no-store"}
        )

    site = routes.Site(
        router, page, as_json, _refuse, context.reading, context.may, now, context.reader
    )
    memory = overview.Memory()
    patience = context.settings.heartbeat_timeout_s

    def front(session: Session, request: Request, at: datetime) -> overview.OverviewView:
        return overview.overview(session, memory, at, patience, request.query_params)

    def job(session: Session, request: Request, at: datetime) -> job_page.JobView | None:
        query = request.query_params
        return job_page.job(
            session,
            request.path_params["job_id"],
            query.get("output"),
            at,
            seed_details.requested(query),
            selection_tests.Part.requested(query),
        )

    def all_devices(session: Session, request: Request, at: datetime) -> device_page.DevicesView:
        return device_page.devices(session, at, patience, request.query_params)

    def device(session: Session, request: Request, at: datetime) -> device_page.DeviceView | None:
        return device_page.device(
            session, request.path_params["device_id"], at, patience, request.query_params
        )

    site.add(urls.OVERVIEW, "overview/overview.html", front, json_path=urls.overview(as_json=True))
    site.add_list(urls.JOBS, "jobs/jobs.html", job_page.jobs, views="jobs")
    job_form.add(site, context.quotas)  # before single jobs: "new" is no job's id
    site.add(urls.JOBS + "/{job_id}", "jobs/job.html", job, noun="job")
    site.add(urls.DEVICES, "devices/devices.html", all_devices, as_csv=True, views="devices")
    site.add(urls.DEVICES + "/{device_id}", "devices/device.html", device, noun="device")
    for more in (
        form_pages,
        gauge_pages,
        bisection_pages,
        run_pages,
        compare_pages,
        matrix_pages,
        test_pages,
        flag_pages,
        webhook_pages,
        hook_pages,
        search_pages,
        badge_pages,
    ):
        more.add(site)

    @router.get(urls.DOCS)
    def docs(request: Request) -> HTMLResponse:
        return render("kit/docs.html", csrf=context.csrf(request))

    @router.get(urls.MANUAL)
    @router.get(urls.MANUAL + "/{name:path}")
    def manual_page(request: Request, name: str = "") -> Response:
        return manual.serve(request, name) or error_page(
            404,
            "No such page of the manual" if manual.is_built() else "The manual is not built",
            "" if manual.is_built() else "Run `make docs` in a clone. `make release` does it, too.",
        )

    @router.get(urls.STATIC + "/{name}")
    def asset(request: Request, name: str) -> Response:
        return assets.serve(name, request, static)

    @router.get("/favicon.ico")
    def favicon(request: Request) -> Response:
        return assets.serve("favicon.svg", request, static)

    return router


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
