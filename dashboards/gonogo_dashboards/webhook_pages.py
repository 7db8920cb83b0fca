"""The routes of the pages of webhooks and of answers to GitHub, each with its JSON twin.

Addresses and payloads may be confidential: all of them need the scope admin.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo_dashboards import answers, urls, webhooks
from gonogo_dashboards.routes import Site

SCOPE = "admin"
ONE = urls.WEBHOOKS + "/{webhook_id}"


def add(site: Site) -> None:
    """Adds the pages. They only read; what sends a message again is the API's."""

    def listed(
        session: Session, _: Mapping[str, str], cursor: str | None, limit: int, now: datetime
    ) -> webhooks.WebhooksView:
        return webhooks.webhooks(session, cursor, limit, now)

    def one(session: Session, request: Request, now: datetime) -> webhooks.WebhookView | None:
        query = request.query_params
        return webhooks.webhook(
            session,
            request.path_params["webhook_id"],
            query,
            query.get("cursor"),
            site.limit(query),
            now,
        )

    def delivery(session: Session, request: Request, now: datetime) -> webhooks.DeliveryView | None:
        return webhooks.delivery(
            session, request.path_params["webhook_id"], request.path_params["delivery_id"], now
        )

    site.add_list(urls.WEBHOOKS, "webhooks.html", listed, scope=SCOPE)
    site.add_list(urls.ANSWERS, "answers.html", answers.answers, scope=SCOPE)
    site.add(ONE, "webhook.html", one, noun="subscription", scope=SCOPE)
    site.add(
        ONE + "/deliveries/{delivery_id}", "delivery.html", delivery, noun="delivery", scope=SCOPE
    )
