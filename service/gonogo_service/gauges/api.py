"""Gauges: measure a test with right and wrong kernels, and show the report."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request, Response
from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Sharpness
from gonogo.urls import API
from gonogo_service.gauges import gauge_jobs
from gonogo_service.gauges import store as stored
from gonogo_service.gauges import submission as gauges
from gonogo_service.gauges.store import Gauge, GaugeSummary
from gonogo_service.jobs.bodies import GaugeIn
from gonogo_service.kit import audit
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    extend_page,
    make_router,
    missing,
    require,
)
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import JobState
from gonogo_service.people import idempotency_keys
from gonogo_service.people.context import Ctx, Reader, Submitter

router = make_router("gauges")


@dataclass(frozen=True)
class GaugeLinks:
    """Paths of a gauge's resources."""

    self: str
    test: str
    page: str


@dataclass(frozen=True)
class GaugeAccepted:
    """The answer to a new gauge."""

    id: str
    state: JobState
    chunks: int
    """The units that workers process"""
    runs: int
    """Its parts times its seeds"""
    links: GaugeLinks


@dataclass(frozen=True)
class ListedGauge(GaugeSummary):
    """A gauge in a list."""

    links: GaugeLinks


@dataclass(frozen=True)
class GaugeOut(Gauge):
    """A gauge with its parts and its report."""

    links: GaugeLinks


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

    def make(session: Session) -> GaugeAccepted:
        gauge = gauges.submit(session, body, context.settings, who.name)
        audit.record(
            session,
            actor=who.actor,
            action="gauge.created",
            subject=gauge.id,
            detail={"test": gauge.test_key},
        )
        return _accepted(gauge)

    return idempotency_keys.created(context, request, who, key, body, make)


@router.get(
    "/gauges",
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
) -> Page[ListedGauge]:
    """List gauges that match all filters; `test` is a test's key."""
    with context.reading() as session:
        page = stored.list_(
            session, test=test, state=state, sharpness=sharpness, limit=limit, cursor=cursor
        )
    return extend_page(page, lambda gauge: from_object(ListedGauge, gauge, links=_links(gauge)))


@router.get(
    "/gauges/{gauge_id}",
    summary="Show a gauge",
)
def look(context: Ctx, _who: Reader, gauge_id: str) -> GaugeOut:
    """Show the progress of a gauge, then its report."""
    with context.reading() as session:
        gauge = require(stored.get(session, gauge_id), "gauge", gauge_id)
    return from_object(GaugeOut, gauge, links=_links(gauge))


@router.post(
    "/gauges/{gauge_id}:cancel",
    status_code=202,
    summary="Cancel a gauge",
)
def cancel(context: Ctx, who: Submitter, gauge_id: str, response: Response) -> GaugeAccepted:
    """Cancel a gauge: unstarted chunks at once, running kernels within seconds.

    Finished runs are reported; no flag changes.
    """
    with context.session() as session:
        before = stored.get(session, gauge_id)
        after = gauge_jobs.cancel(session, gauge_id)
        if before is None or after is None:
            raise missing("gauge", gauge_id)
        if after.state != before.state:
            audit.record(session, actor=who.actor, action="gauge.cancelled", subject=gauge_id)
    context.notifier.notify()
    accepted = _accepted(after)
    response.headers["Location"] = accepted.links.self
    return accepted


def _links(gauge: GaugeSummary) -> GaugeLinks:
    return GaugeLinks(
        self=f"{API}/gauges/{gauge.id}",
        test=f"{API}/tests/{gauge.test_key}",
        page=urls.gauge(gauge.id),
    )


def _accepted(gauge: Gauge) -> GaugeAccepted:
    return GaugeAccepted(gauge.id, gauge.state, gauge.chunks.total, gauge.total, _links(gauge))
