"""The route of the search, and its JSON version, which Ctrl-K reads."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.search import search_page


def add(site: Site) -> None:
    """Add the page."""

    def read(session: Session, request: Request, now: datetime) -> search_page.SearchView:
        text = request.query_params.get("q", "")
        return search_page.read(session, text, site.navigation(), now)

    site.add(urls.SEARCH, "search/search.html", read, "Which page has this text?", noun="search")
