"""The routes of the pages of webhooks and of answers to GitHub, each with its JSON twin.

Addresses and payloads may be confidential: all of them need the scope admin.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import answers as answers_page
from dashboards import urls, webhooks
from storage.paging import BadCursor


@dataclass(frozen=True)
class Answers:
    """How pages.py answers: a view as a page or as JSON, a refusal in the form that was asked for; and whether the reader may see this."""

    page: Callable[[Request, str, Any], Response]
    twin: Callable[[Request, Any], Response]
    refuse: Callable[[Request, int, str, str], Response]
    may: Callable[[Request], bool]


def add(
    router: APIRouter,
    answers: Answers,
    *,
    reading: Callable[[], AbstractContextManager[Session]],
    limit: Callable[[str | None], int],
    now: Callable[[], datetime],
) -> None:
    """Adds the routes. They only read; what sends a message again is the API's. limit: how long a list is, from what was asked for."""

    # of two decorators the lower one is asked first: "x.json" would be an id, too
    def show(request: Request, template: str, what: str, read: Callable[[Session], Any]) -> Response:
        if not answers.may(request):
            return answers.refuse(request, 403, "This page needs the scope admin", "Log in with a token that has it.")
        try:
            with reading() as session:
                view = read(session)
        except BadCursor:
            return answers.refuse(request, 400, "This list has no such page", "cursor: not one that this list gave")
        if view is None:
            return answers.refuse(request, 404, f"No such {what}", f"There is no such {what}. It may have been deleted.")
        return answers.twin(request, view) if request.url.path.endswith(".json") else answers.page(request, template, view)

    @router.get(urls.WEBHOOKS)
    @router.get(f"{urls.WEBHOOKS}.json")
    def all_webhooks(request: Request) -> Response:
        query = request.query_params
        length = limit(query.get("limit"))
        return show(request, "webhooks.html", "page", lambda session: webhooks.webhooks(session, query.get("cursor"), length, now()))

    @router.get(urls.ANSWERS)
    @router.get(f"{urls.ANSWERS}.json")
    def all_answers(request: Request) -> Response:
        query = request.query_params
        length = limit(query.get("limit"))
        return show(
            request, "answers.html", "page", lambda session: answers_page.answers(session, query, query.get("cursor"), length, now())
        )

    @router.get(urls.WEBHOOKS + "/{webhook_id}")
    @router.get(urls.WEBHOOKS + "/{webhook_id}.json")
    def webhook(request: Request, webhook_id: str) -> Response:
        query = request.query_params
        length = limit(query.get("limit"))

        def read(session: Session) -> webhooks.WebhookView | None:
            return webhooks.webhook(session, webhook_id, query, query.get("cursor"), length, now())

        return show(request, "webhook.html", "subscription", read)

    @router.get(urls.WEBHOOKS + "/{webhook_id}/deliveries/{delivery_id}")
    @router.get(urls.WEBHOOKS + "/{webhook_id}/deliveries/{delivery_id}.json")
    def delivery(request: Request, webhook_id: str, delivery_id: str) -> Response:
        return show(request, "delivery.html", "delivery", lambda session: webhooks.delivery(session, webhook_id, delivery_id, now()))
