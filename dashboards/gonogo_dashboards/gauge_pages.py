"""The routes of the gauges' pages, each with its JSON twin."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import gauges, urls
from gonogo_dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the list of gauges and the page of one."""

    def one(session: Session, request: Request, now: datetime) -> gauges.GaugeView | None:
        return gauges.one(session, request.path_params["gauge_id"], request.query_params, now)

    site.add_list(urls.GAUGES, "gauges.html", gauges.listed)
    site.add(urls.GAUGES + "/{gauge_id}", "gauge.html", one, noun="gauge")
