"""The routes of the pages of deliveries in and of rules, each with its JSON twin; payloads and
replays need the scope admin."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import hook_rules, hooks, urls
from gonogo_dashboards.routes import Site


def add(site: Site) -> None:
    """Adds the pages. They only read; what works a delivery off again is the API's."""

    def hook(session: Session, request: Request, now: datetime) -> hooks.HookView | None:
        return hooks.hook(
            session, request.path_params["inbound_id"], now, whole=site.may(request, "admin")
        )

    def rules(
        session: Session, _: Mapping[str, str], cursor: str | None, limit: int, now: datetime
    ) -> hook_rules.RulesView:
        return hook_rules.rules(session, cursor, limit, now)

    site.add_list(urls.HOOKS, "hooks.html", hooks.hooks)
    site.add(urls.HOOKS + "/{inbound_id}", "hook.html", hook, noun="delivery")
    site.add_list(urls.RULES, "rules.html", rules)
