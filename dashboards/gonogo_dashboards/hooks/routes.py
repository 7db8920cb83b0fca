"""The routes of the pages of incoming webhooks and rules, each with its JSON version.

Payloads and replays need the scope admin.
"""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.hooks import incoming, rules
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site

NAVIGATION = (
    Entry("hooks", "Incoming webhooks", urls.HOOKS, "Settings", 3, ("hook",)),
    Entry("rules", "Rules", urls.RULES, "Settings", 4),
)


def add(site: Site) -> None:
    """Add the pages. They only read: the API processes a message again."""

    def hook(session: Session, request: Request, now: datetime) -> incoming.HookView | None:
        return incoming.hook(
            session,
            request.path_params["incoming_id"],
            now,
            whole=site.context.may(request, "admin"),
        )

    site.add_list(
        urls.HOOKS,
        "hooks/hooks.html",
        incoming.HookLine,
        incoming.hooks,
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
        rules.RuleLine,
        rules.rules,
        "Which events start which suites?",
    )
