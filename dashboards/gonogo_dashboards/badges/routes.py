"""The routes of badges. They are public where GONOGO_PUBLIC_BADGES says so; else they need read."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, Response
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.badges import drawing, states
from gonogo_dashboards.badges.states import BadgeState
from gonogo_dashboards.kit.site import PageRoute, Site

HEADERS = {"Cache-Control": "no-cache, max-age=60"}


def add(site: Site) -> None:
    """Add the badges of tests, suites and branches."""

    def badge(noun: str, name: str, read: Callable[[Session], BadgeState | None]) -> Response:
        with site.context.reading() as session:
            state = read(session)
        # the status is 200 for an unknown name, too: a README shows no picture of a 404
        # (https://github.com/badges/shields/pull/11479)
        shown = state or BadgeState(name, f"no such {noun}", None)
        picture = drawing.svg(shown.label, shown.state, shown.verdict)
        return Response(picture, media_type="image/svg+xml", headers=HEADERS)

    def test(request: Request) -> Response:
        name, query = request.path_params["name"], request.query_params
        return badge("test", name, lambda session: states.of_test(session, name, query))

    def suite(request: Request) -> Response:
        name = request.path_params["name"]
        return badge("suite", name, lambda session: states.of_suite(session, name))

    def branch(request: Request) -> Response:
        name = request.path_params["name"]
        return badge("branch", name, lambda session: states.of_branch(session, name, site.now()))

    for address, endpoint, noun in (
        ("/tests/{name}.svg", test, "test"),
        ("/suites/{name}.svg", suite, "suite"),
        ("/branches/{name:path}.svg", branch, "branch"),
    ):
        summary = f"The newest result of a {noun}, as a picture"
        site.routes.append(PageRoute(urls.BADGES + address, endpoint, summary=summary))
