"""The routes of the pages of deliveries in and of rules, each with its JSON twin; payloads and
replays need the scope admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.hooks import incoming
from gonogo_dashboards.hooks import rules as hook_rules
from gonogo_dashboards.kit.routes import Site


def add(site: Site) -> None:
    """Adds the pages. They only read; what works a delivery off again is the API's."""

    def hook(session: Session, request: Request, now: datetime) -> incoming.HookView | None:
        return incoming.hook(
            session, request.path_params["incoming_id"], now, whole=site.may(request, "admin")
        )

    def rules(
        session: Session, _: Mapping[str, str], cursor: str | None, limit: int, now: datetime
    ) -> hook_rules.RulesView:
        return hook_rules.rules(session, cursor, limit, now)

    site.add_list(urls.HOOKS, "hooks/hooks.html", incoming.hooks)
    site.add(urls.HOOKS + "/{incoming_id}", "hooks/hook.html", hook, noun="delivery")
    site.add_list(urls.RULES, "hooks/rules.html", rules)
