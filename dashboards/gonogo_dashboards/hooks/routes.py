"""The routes of the pages of incoming webhooks and rules, each with its JSON version.

Payloads and replays need the scope admin.
"""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.hooks import incoming
from gonogo_dashboards.kit.list_view import list_of
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_service.ci.hooks_api import DELIVERY, HOOKS
from gonogo_service.ci.rules_api import RULE, RULES
from gonogo_service.kit import rows

NAVIGATION = (
    Entry("hooks", "Incoming webhooks", urls.HOOKS, "Settings", 3, ("hook",)),
    Entry("rules", "Rules", urls.RULES, "Settings", 4),
)


def add(site: Site) -> None:
    """Add the pages. They only read: the API processes a message again."""

    def hook(session: Session, request: Request, now: datetime) -> incoming.HookView | None:
        whole = site.context.may(request, "admin")
        return incoming.hook(session, request.path_params["incoming_id"], now, whole=whole)

    site.add_list(
        urls.HOOKS,
        "hooks/hooks.html",
        DELIVERY,
        list_of(HOOKS, urls.hooks),
        "Which messages came in, and what did they start?",
    )
    site.add(
        urls.HOOKS + "/{incoming_id}",
        "hooks/hook.html",
        hook,
        "What was in this message, and what did it start?",
        noun="incoming webhook",
    )
    site.add_list(
        urls.RULES,
        "hooks/rules.html",
        RULE,
        list_of(RULES, urls.rules, lambda _, rule: rows.values(RULE, rule)),
        "Which events start which suites?",
    )
