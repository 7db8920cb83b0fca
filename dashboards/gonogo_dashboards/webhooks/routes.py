"""The routes of the pages of webhooks and of reports to GitHub, each with its JSON version.

Addresses and payloads may be confidential, so all of them need the scope admin.
"""

from __future__ import annotations

from datetime import datetime

from fastapi import Request
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit.list_view import list_of
from gonogo_dashboards.kit.navigation import Entry
from gonogo_dashboards.kit.site import Site
from gonogo_dashboards.webhooks import webhook_page
from gonogo_service.ci.hooks_api import ANSWER, ANSWERS
from gonogo_service.webhooks.api import WEBHOOKS

SCOPE = "admin"
ONE = urls.WEBHOOKS + "/{webhook_id}"

NAVIGATION = (
    Entry("webhooks", "Webhooks", urls.WEBHOOKS, "Settings", 2, ("webhook", "delivery")),
    Entry("answers", "Reports to GitHub", urls.ANSWERS, "Settings", 5),
)


def add(site: Site) -> None:
    """Add the pages. They only read: the API sends a message again."""

    def read(
        session: Session, request: Request, cursor: str | None, limit: int, now: datetime
    ) -> webhook_page.WebhookView | None:
        key, query = request.path_params["webhook_id"], request.query_params
        return webhook_page.webhook(session, key, query, cursor, limit, now)

    def one(session: Session, request: Request, now: datetime) -> webhook_page.WebhookView | None:
        query = request.query_params
        return read(session, request, query.get("cursor"), site.limit(query), now)

    def further(
        session: Session, request: Request, cursor: str, now: datetime
    ) -> webhook_page.WebhookView | None:
        return read(session, request, cursor, urls.MAX_LENGTH, now)

    def delivery(
        session: Session, request: Request, now: datetime
    ) -> webhook_page.DeliveryView | None:
        return webhook_page.delivery(
            session, request.path_params["webhook_id"], request.path_params["delivery_id"], now
        )

    site.add_list(
        urls.WEBHOOKS,
        "webhooks/webhooks.html",
        webhook_page.WEBHOOK_LINE,
        list_of(WEBHOOKS, urls.webhooks, webhook_page.line),
        "Where do messages go, and do they arrive?",
        scope=SCOPE,
    )
    site.add_list(
        urls.ANSWERS,
        "webhooks/github_answers.html",
        ANSWER,
        list_of(ANSWERS, urls.answers),
        "Did GitHub get its reports?",
        scope=SCOPE,
    )
    site.add(
        ONE,
        "webhooks/webhook.html",
        one,
        "Which messages did this receiver get?",
        noun="webhook",
        scope=SCOPE,
        line=webhook_page.DELIVERY_LINE,
        further=further,
    )
    site.add(
        ONE + "/deliveries/{delivery_id}",
        "webhooks/delivery.html",
        delivery,
        "What was in this message, and what was the response?",
        noun="delivery",
        scope=SCOPE,
    )
