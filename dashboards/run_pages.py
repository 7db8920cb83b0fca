"""The pages of runs and schedules, each with its JSON twin."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Any

from fastapi import APIRouter, Request, Response
from sqlalchemy.orm import Session

from dashboards import runs, urls
from storage.paging import BadCursor

Read = Callable[[], AbstractContextManager[Session]]
Page = Callable[[Request, str, Any], Response]
Twin = Callable[[Request, Any], Response]
Failing = Callable[[int, str, str], Response]


def add(
    router: APIRouter,
    *,
    reading: Read,
    page: Page,
    twin: Twin,
    limit: Callable[[str | None], int],
    problem: Failing,
    error_page: Failing,
    now: Callable[[], datetime],
) -> None:
    """Add them to the pages' router, with what all pages share."""

    def read_runs(request: Request) -> runs.RunsView:
        query = request.query_params
        with reading() as session:
            return runs.runs(session, query, query.get("cursor"), limit(query.get("limit")), now())

    def read_run(run_id: str) -> runs.RunView | None:
        with reading() as session:
            return runs.run(session, run_id, now())

    def read_schedules(request: Request) -> runs.SchedulesView:
        with reading() as session:
            return runs.schedules(session, request.query_params.get("cursor"), now())

    @router.get(f"{urls.RUNS}.json")
    def runs_twin(request: Request) -> Response:
        try:
            return twin(request, read_runs(request))
        except BadCursor:
            return problem(400, "Bad cursor", "cursor: not one that this list gave")

    @router.get(urls.RUNS)
    def all_runs(request: Request) -> Response:
        try:
            return page(request, "runs.html", read_runs(request))
        except BadCursor:
            return error_page(400, "This list has no such page", "The address holds a cursor that no list of runs gave.")

    @router.get(urls.RUNS + "/{run_id}.json")
    def run_twin(request: Request, run_id: str) -> Response:
        view = read_run(run_id)
        return problem(404, "No such run", f"run {run_id} does not exist") if view is None else twin(request, view)

    @router.get(urls.RUNS + "/{run_id}")
    def run(request: Request, run_id: str) -> Response:
        view = read_run(run_id)
        if view is None:
            return error_page(404, "No such run", f"There is no run {run_id}. It may have been on another server.")
        return page(request, "run.html", view)

    @router.get(f"{urls.SCHEDULES}.json")
    def schedules_twin(request: Request) -> Response:
        try:
            return twin(request, read_schedules(request))
        except BadCursor:
            return problem(400, "Bad cursor", "cursor: not one that this list gave")

    @router.get(urls.SCHEDULES)
    def all_schedules(request: Request) -> Response:
        try:
            return page(request, "schedules.html", read_schedules(request))
        except BadCursor:
            return error_page(400, "This list has no such page", "The address holds a cursor that no list of schedules gave.")
