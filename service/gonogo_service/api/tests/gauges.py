"""Gauges: measure a test with right and wrong kernels, and show the report."""

from __future__ import annotations

from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Sharpness
from gonogo.urls import API
from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.api import idempotency_keys
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.submission import gauges
from gonogo_service.submission.bodies import GaugeIn
from gonogo_storage.access import audit
from gonogo_storage.db.states import JobState
from gonogo_storage.gauges import gauges as stored
from gonogo_storage.jobs import gauge_jobs

router = make_router("gauges")


class GaugeLinks(BaseModel):
    """Paths of a gauge's resources."""

    self: str
    test: str
    page: str


class GaugeAccepted(BaseModel):
    """The answer to a new gauge.

    `runs` are its parts times its seeds. `chunks` are the units that workers process.
    """

    id: str
    state: JobState
    chunks: int
    runs: int
    links: GaugeLinks


class GaugeSummary(BaseModel):
    """A gauge in a list."""

    id: str
    state: JobState
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test: dict[str, Any]
    test_key: str
    workload_key: str
    kernel: str
    branch: str
    target: dict[str, str]
    seeds: list[int]
    search: bool
    total: int = Field(description="Runs: (seed, part); more if other inputs are tried")
    done: int
    chunks: dict[str, int]
    sharpness: Sharpness | None = Field(description="null until it is over")
    words: str | None
    created_at: str
    deadline_at: str
    started_at: str | None
    finished_at: str | None
    links: GaugeLinks


class GaugeOut(GaugeSummary):
    """A gauge with its parts and its report.

    The report is that of `gonogo gauge --json`, with the command that measures it again.
    """

    parts: list[dict[str, Any]]
    elsewhere: list[dict[str, Any]]
    report: dict[str, Any] | None


class GaugePage(BaseModel):
    """A page of gauges, newest first."""

    items: list[GaugeSummary]
    next: str | None


@router.post(
    "/gauges",
    status_code=202,
    responses={202: {"model": GaugeAccepted}},
    response_class=Response,
    summary="Measure a test",
)
def submit(
    context: Ctx, who: Submitter, request: Request, body: GaugeIn, key: idempotency_keys.Key = None
) -> Response:
    """Run right and known-wrong kernels on the test's seeds.

    They are the emulator's kernels and your builds. The report has false alarms, misses, the window
    of tolerances, and advice.
    """
    gauges.check(body, context.settings)

    def make(session: Session) -> idempotency_keys.Answer:
        gauge = gauges.submit(session, body, context.settings, who.name)
        audit.record(
            session,
            actor=who.actor,
            action="gauge.created",
            subject=gauge["id"],
            detail={"test": gauge["test_key"]},
        )
        return _accepted(gauge)

    response, new = idempotency_keys.once(
        context, request, who, key, body.model_dump(mode="json"), make
    )
    if new:
        context.notifier.notify()
    return response


@router.get(
    "/gauges",
    responses={200: {"model": GaugePage}},
    response_class=Response,
    summary="List gauges, newest first",
)
def list_gauges(
    context: Ctx,
    _who: Reader,
    test: Filter = None,
    state: JobState | None = None,
    sharpness: Sharpness | None = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> Response:
    """List gauges that match all filters; `test` is a test's key."""
    with context.reading() as session:
        page = stored.list_(
            session, test=test, state=state, sharpness=sharpness, limit=limit, cursor=cursor
        )
    return answer_page(page, _with_links)


@router.get(
    "/gauges/{gauge_id}",
    responses={200: {"model": GaugeOut}},
    response_class=Response,
    summary="Show a gauge",
)
def look(context: Ctx, _who: Reader, gauge_id: str) -> Response:
    """Show the progress of a gauge, then its report."""
    with context.reading() as session:
        gauge = stored.get(session, gauge_id)
    if gauge is None:
        raise missing("gauge", gauge_id)
    return answer(_with_links(gauge))


@router.post(
    "/gauges/{gauge_id}:cancel",
    status_code=202,
    responses={202: {"model": GaugeAccepted}},
    response_class=Response,
    summary="Cancel a gauge",
)
def cancel(context: Ctx, who: Submitter, gauge_id: str) -> Response:
    """Cancel a gauge: unstarted chunks at once, running kernels within seconds.

    Finished runs are reported; no flag changes.
    """
    with context.session() as session:
        before = stored.get(session, gauge_id)
        after = gauge_jobs.cancel(session, gauge_id)
        if before is None or after is None:
            raise missing("gauge", gauge_id)
        if after["state"] != before["state"]:
            audit.record(session, actor=who.actor, action="gauge.cancelled", subject=gauge_id)
    context.notifier.notify()
    status, body, headers = _accepted(after)
    return answer(body, status, headers)


def _links(gauge: dict[str, Any]) -> dict[str, str]:
    return {
        "self": f"{API}/gauges/{gauge['id']}",
        "test": f"{API}/tests/{gauge['test_key']}",
        "page": urls.gauge(gauge["id"]),
    }


def _accepted(gauge: dict[str, Any]) -> idempotency_keys.Answer:
    where = _links(gauge)
    body = {
        "id": gauge["id"],
        "state": gauge["state"],
        "chunks": gauge["chunks"]["total"],
        "runs": gauge["total"],
        "links": where,
    }
    return 202, body, {"Location": where["self"]}


def _with_links(gauge: dict[str, Any]) -> dict[str, Any]:
    return {**gauge, "links": _links(gauge)}
