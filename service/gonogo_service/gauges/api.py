"""Gauges: measure a test with right and wrong kernels, and show the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session, defer, joinedload

from gonogo_service.gauges import noun, store, submission
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.gauges.model import GaugeLinks, GaugeRow, GaugeTarget
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit import audit, idempotency, rows
from gonogo_service.kit.answers import require
from gonogo_service.kit.database.states import ChunkCounts, JobState
from gonogo_service.kit.resource import Checked, Resource, undone
from gonogo_service.people import idempotency_keys, quotas
from gonogo_service.people.context import Ctx, Submitter


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


_OF_JOB: dict[str, Any] = {
    "state": JobState,
    "test": (dict[str, Any], "The test in its canonical form, without fields that have a default"),
    "target": GaugeTarget,
    "total": (int, "Runs: (seed, part); more if other inputs are tried"),
    "chunks": ChunkCounts,
    "links": GaugeLinks,
}
LISTED = rows.extended_answer(
    GaugeRow, "ListedGauge", without=("parts", "elsewhere", "report"), **_OF_JOB
)
SHOWN = rows.extended_answer(GaugeRow, "GaugeOut", **_OF_JOB)
GAUGES = Resource(
    noun.GAUGES,
    GaugeRow,
    answer=SHOWN,
    line=LISTED,
    where={
        "test": GaugeRow.test_key,
        "state": lambda state: GaugeRow.job.has(JobRow.state == state),
    },
    options=(
        joinedload(GaugeRow.job),
        joinedload(GaugeRow.spec),
        *(defer(column) for column in (GaugeRow.report, GaugeRow.parts, GaugeRow.elsewhere)),
    ),
)
router = GAUGES.router


@router.post(
    "/gauges",
    status_code=202,
    responses={202: {"model": GaugeAccepted}},
    response_class=Response,
    summary="Measure a test",
)
def submit(
    context: Ctx, who: Submitter, request: Request, body: GaugeIn, key: idempotency.Key = None
) -> Response:
    """Run right and known-wrong kernels on the test's seeds.

    They are the emulator's kernels and your builds. The report has false alarms, misses, the window
    of tolerances, and advice.
    """
    submission.check(body, context.settings)

    def make(session: Session) -> GaugeAccepted:
        gauge = submission.submit(session, body, context.settings, who.name)
        audit.record(
            session,
            actor=who.actor,
            action="gauge.created",
            subject=gauge.id,
            detail={"test": gauge.test_key},
        )
        return _accepted(gauge)

    return idempotency_keys.created(context, request, who, key, body, make)


@router.post("/gauges:validate", summary="Check a gauge")
def validate(context: Ctx, who: Submitter, body: GaugeIn) -> Checked:
    """Make all checks of `POST /gauges` without creating a gauge."""
    with undone(context) as session, quotas.guard(session, context.settings, who.name):
        submission.submit(session, body, context.settings, who.name)
    return Checked(valid=True)


@router.post("/gauges/{gauge_id}:cancel", status_code=202, summary="Cancel a gauge")
def cancel(context: Ctx, who: Submitter, gauge_id: str, response: Response) -> GaugeAccepted:
    """Cancel a gauge: unstarted chunks at once, running kernels within seconds.

    Finished runs are reported; no flag changes.
    """
    with context.session() as session:
        gauge = require(store.get(session, gauge_id), "gauge", gauge_id)
        before = gauge.state
        jobs.cancel(session, gauge_id)
        session.refresh(gauge)
        if gauge.state != before:
            audit.record(session, actor=who.actor, action="gauge.cancelled", subject=gauge_id)
        accepted = _accepted(gauge)
    response.headers["Location"] = accepted.links.self
    return accepted


def _accepted(gauge: GaugeRow) -> GaugeAccepted:
    return GaugeAccepted(gauge.id, gauge.state, gauge.chunks.total, gauge.total, gauge.links)
