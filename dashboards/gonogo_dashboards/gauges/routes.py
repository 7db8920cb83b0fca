"""The routes of the gauges' pages, each with its JSON version."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.gauges import charts, gauge_page, report_rows
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_service.gauges.api import LISTED

NAVIGATION = (Entry("gauges", "Gauges", urls.GAUGES, "Analysis", 3, ("gauge",)),)
TEMPLATE_NAMES = {"gauge_charts": charts, "gauge_report": report_rows}


def add(site: Site) -> None:
    """Add the list of gauges and the page of one."""

    def one(session: Session, request: Request, now: datetime) -> gauge_page.GaugeView | None:
        return gauge_page.one(session, request.path_params["gauge_id"], request.query_params, now)

    site.add_list(
        urls.GAUGES,
        "gauges/gauges.html",
        LISTED,
        gauge_page.listed,
        "Which tests were gauged?",
    )
    site.add(
        urls.GAUGES + "/{gauge_id}",
        "gauges/gauge.html",
        one,
        "Would the test notice a wrong kernel?",
        noun="gauge",
    )
