"""The route of the overview, and its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.overview import overview
from gonogo_service.kit.answers import principal_of
from gonogo_service.kit.principals import demand

NAVIGATION = (Entry("overview", "Overview", urls.OVERVIEW, "Results", 1),)


def add(site: Site) -> None:
    """Add the page, with the memory of past days that this process has counted."""
    memory = overview.Memory()
    patience = site.context.settings.heartbeat_timeout_s

    def read(session: Session, request: Request, now: datetime) -> overview.OverviewView:
        who = demand(principal_of(request), "read")
        return overview.overview(session, memory, who, now, patience, request.query_params)

    site.add(
        urls.OVERVIEW,
        "overview/overview.html",
        read,
        "What needs attention?",
        json_path=urls.overview(as_json=True),
    )
