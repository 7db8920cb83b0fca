"""Gauges: measure a test with right and wrong kernels, and show the report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import defer, joinedload

from gonogo_service.gauges import noun, submission
from gonogo_service.gauges.bodies import GaugeIn
from gonogo_service.gauges.model import GaugeLinks, GaugeRow, GaugeTarget
from gonogo_service.jobs import store as jobs
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit import rows
from gonogo_service.kit.database.states import ChunkCounts, JobState
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.people import idempotency_keys


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
    audited=("test_key",),
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


def _accepted(gauge: GaugeRow) -> GaugeAccepted:
    return GaugeAccepted(gauge.id, gauge.state, gauge.chunks.total, gauge.total, gauge.links)


@idempotency_keys.submits(GAUGES, _accepted)
def submit(act: Act, body: GaugeIn) -> GaugeRow:
    """Run right and known-wrong kernels on the test's seeds.

    They are the emulator's kernels and your builds. The report has false alarms, misses, the window
    of tolerances, and advice.
    """
    return submission.submit(act.session, body, act.context.settings, act.who.name)


@GAUGES.on_cancel(_accepted)
def cancel(act: Act, gauge: GaugeRow) -> bool:
    """Cancel a gauge: unstarted chunks at once, running kernels within seconds.

    Finished runs are reported; no flag changes.
    """
    before = gauge.state
    jobs.cancel(act.session, gauge.id)
    act.session.refresh(gauge)
    return gauge.state != before
