"""The routes of the pages of a commit against its base, and of what got worse; each with JSON."""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.comparison import branch_page, compare_page, compared_tests, worse_page
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import MAX_CSV_LINES, Site

NAVIGATION = (
    Entry("compare", "Compare", urls.COMPARE, "Analysis", 1),
    Entry("branch", "My branch", urls.BRANCH, "Analysis", 2),
    Entry("worse", "What got worse", urls.WORSE, "Analysis", 2),
)


def add(site: Site) -> None:
    """Add the pages."""

    def view(session: Session, request: Request, now: datetime) -> compare_page.ComparisonView:
        query = request.query_params
        limit = site.length(request, MAX_CSV_LINES)
        return compare_page.view(session, query.get("base", ""), query.get("head", ""), limit, now)

    site.add(
        urls.COMPARE,
        "comparison/compare.html",
        view,
        "What did this commit change?",
        noun="comparison",
        wrong="This can't be compared",
        line=compared_tests.TestLine,
    )

    def branch(session: Session, request: Request, now: datetime) -> branch_page.BranchView:
        query = request.query_params
        return branch_page.view(session, query.get("head", ""), query.get("branch", ""), now)

    site.add(
        urls.BRANCH,
        "comparison/branch.html",
        branch,
        "What does my branch change, before it is pushed?",
        noun="branch",
        wrong="This has no results",
        line=branch_page.BranchLine,
    )

    def worse(session: Session, request: Request, now: datetime) -> worse_page.WorseView:
        return worse_page.view(session, request.query_params, now)

    site.add(
        urls.WORSE,
        "comparison/worse.html",
        worse,
        "What got worse since a day?",
        noun="comparison",
        line=worse_page.ChangedLine,
    )
