"""The routes of badges. They are public where GONOGO_PUBLIC_BADGES says so; else they need read."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request, Response
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.badges import drawing, states
from gonogo_dashboards.badges.states import BadgeState
from gonogo_dashboards.kit.site import Site

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

    @site.router.get(
        urls.BADGES + "/tests/{name}.svg", summary="The newest result of a test, as a picture"
    )
    def test(request: Request, name: str) -> Response:
        return badge(
            "test", name, lambda session: states.of_test(session, name, request.query_params)
        )

    @site.router.get(
        urls.BADGES + "/suites/{name}.svg", summary="The newest result of a suite, as a picture"
    )
    def suite(name: str) -> Response:
        return badge("suite", name, lambda session: states.of_suite(session, name))

    @site.router.get(
        urls.BADGES + "/branches/{name:path}.svg",
        summary="The newest result of a branch, as a picture",
    )
    def branch(name: str) -> Response:
        return badge("branch", name, lambda session: states.of_branch(session, name))
