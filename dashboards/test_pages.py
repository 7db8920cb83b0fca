"""The routes of the tests' and the flags' pages, each with its JSON twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import catalogues, commands, findings, histories, triage, urls
from storage.paging import BadCursor


@dataclass(frozen=True)
class Answers:
    """How pages.py answers: a view as a page or as JSON, and a refusal in the form that was asked for."""

    page: Callable[[Request, str, Any], Response]
    twin: Callable[[Request, Any], Response]
    refuse: Callable[[Request, int, str, str], Response]


def add(
    router: APIRouter,
    answers: Answers,
    *,
    reading: Callable[[], AbstractContextManager[Session]],
    limit: Callable[[str | None], int],
    now: Callable[[], datetime],
) -> None:
    """Adds the routes. They only read; what changes a flag is the API's. limit: how long a list is, from what was asked for."""

    def tests(query: Mapping[str, str]) -> catalogues.TestsView:
        with reading() as session:
            return catalogues.listed(session, query, query.get("cursor"), limit(query.get("limit")), commands.START, now())

    def flags(query: Mapping[str, str]) -> triage.FlagsView:
        with reading() as session:
            return triage.listed(session, query, query.get("cursor"), limit(query.get("limit")), now())

    def test(key: str, query: Mapping[str, str]) -> histories.TestView | None:
        with reading() as session:
            return histories.one(session, key, query, now())

    def flag(flag_id: str, _query: Mapping[str, str]) -> findings.FlagView | None:
        with reading() as session:
            return findings.one(session, flag_id, now())

    def listing(read: Callable[[Mapping[str, str]], Any], template: str | None) -> Callable[[Request], Response]:
        def endpoint(request: Request) -> Response:
            try:
                view = read(request.query_params)
            except BadCursor:
                return answers.refuse(request, 400, "This list has no such page", "cursor: not one that this list gave")
            return answers.twin(request, view) if template is None else answers.page(request, template, view)

        return endpoint

    def one(read: Callable[[str, Mapping[str, str]], Any], template: str | None, noun: str) -> Callable[[Request, str], Response]:
        def endpoint(request: Request, name: str) -> Response:
            view = read(name, request.query_params)
            if view is None:
                detail = f"There is no {noun} {name}. It may have been on another server."
                return answers.refuse(request, 404, f"No such {noun}", detail)
            return answers.twin(request, view) if template is None else answers.page(request, template, view)

        return endpoint

    for path, every, catalogue, each, template, noun in (
        (urls.TESTS, tests, "catalogue.html", test, "test.html", "test"),
        (urls.FLAGS, flags, "flags.html", flag, "flag.html", "flag"),
    ):
        router.add_api_route(f"{path}.json", listing(every, None), methods=["GET"])
        router.add_api_route(path, listing(every, catalogue), methods=["GET"])
        router.add_api_route(path + "/{name}.json", one(each, None, noun), methods=["GET"])
        router.add_api_route(path + "/{name}", one(each, template, noun), methods=["GET"])
