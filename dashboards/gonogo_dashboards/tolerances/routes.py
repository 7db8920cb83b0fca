"""The routes of the ledger of tolerances and of its patches, each with its JSON version."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.tolerances import ledger
from gonogo_service.tests.tolerances import Memory, ToleranceLine

NAVIGATION = (Entry("tolerances", "Tolerances", urls.TOLERANCES, "Analysis", 3, ("patch",)),)
TEMPLATE_NAMES = {"ledger": ledger}


def add(site: Site) -> None:
    """Add the ledger and the patch of selected tests."""

    def patch(session: Session, request: Request, _: datetime) -> ledger.PatchView:
        keys = request.query_params.getlist("test")
        return ledger.patch(session, site.context.settings, keys)

    site.add_list(
        urls.TOLERANCES,
        "tolerances/tolerances.html",
        ToleranceLine,
        partial(ledger.listed, Memory()),
        "Which tolerances are loose, and what passes?",
    )
    site.add(
        urls.TOLERANCES + "/patch",
        "tolerances/patch.html",
        patch,
        "How do the suites' files change with the advised tolerances?",
    )
