"""The pages of deliveries in and of rules, each with its JSON twin; payloads, and working one off again, need the scope admin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import hook_rules, hooks, urls
from dashboards.webhook_pages import Answers
from storage.paging import BadCursor


def add(
    router: APIRouter,
    answers: Answers,
    *,
    reading: Callable[[], AbstractContextManager[Session]],
    limit: Callable[[str | None], int],
    now: Callable[[], datetime],
) -> None:
    """Adds the routes. They only read; what works a delivery off again is the API's. limit: how long a list is, from what was asked for."""

    # of two decorators the lower one is asked first: "x.json" would be an id, too
    def show(request: Request, template: str, read: Callable[[Session], Any]) -> Response:
        try:
            with reading() as session:
                view = read(session)
        except BadCursor:
            return answers.refuse(request, 400, "This list has no such page", "cursor: not one that this list gave")
        if view is None:
            return answers.refuse(request, 404, "No such delivery", "There is no such delivery here.")
        return answers.twin(request, view) if request.url.path.endswith(".json") else answers.page(request, template, view)

    @router.get(urls.HOOKS)
    @router.get(f"{urls.HOOKS}.json")
    def all_hooks(request: Request) -> Response:
        query = request.query_params
        length = limit(query.get("limit"))
        return show(request, "hooks.html", lambda session: hooks.hooks(session, query, query.get("cursor"), length, now()))

    @router.get(urls.HOOKS + "/{inbound_id}")
    @router.get(urls.HOOKS + "/{inbound_id}.json")
    def hook(request: Request, inbound_id: str) -> Response:
        whole = answers.may(request)
        return show(request, "hook.html", lambda session: hooks.hook(session, inbound_id, now(), whole=whole))

    @router.get(urls.RULES)
    @router.get(f"{urls.RULES}.json")
    def all_rules(request: Request) -> Response:
        query = request.query_params
        length = limit(query.get("limit"))
        return show(request, "rules.html", lambda session: hook_rules.rules(session, query.get("cursor"), length, now()))
