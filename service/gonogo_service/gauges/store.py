"""Reads of gauges for the API, and the sharpness of a test by its last gauge."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session, defer

from gonogo.flakiness.grades import Sharpness
from gonogo.gauge.elsewhere import OtherInputs
from gonogo.gauge.kernels import Kind
from gonogo.gauge.plan import Planned
from gonogo.gauge.summary import GaugeReport, MeasuredRate
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.kit.database.states import ChunkCounts, JobState
from gonogo_service.tests.model import TestSpecRow


@dataclass(frozen=True)
class GaugeTarget:
    """The device that a gauge runs on."""

    arch: str
    board: str


@dataclass(frozen=True)
class GaugeSummary:
    """A gauge in a list."""

    id: str
    state: JobState
    error: str | None
    waiting_reason: str | None
    version: int
    owner: str
    test: dict[str, Any]
    """The test in its canonical form, without fields that have their default"""
    test_key: str
    workload_key: str
    kernel: str
    branch: str
    target: GaugeTarget
    seeds: list[int]
    search: bool
    total: int
    """Runs: (seed, part); more if other inputs are tried"""
    done: int
    chunks: ChunkCounts
    sharpness: Sharpness | None
    """null until it is over"""
    words: str | None
    created_at: datetime
    deadline_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True)
class GaugePart(Planned):
    """A part of a gauge; `where` is its place in `elsewhere`, or null for the test's inputs."""

    where: int | None


@dataclass(frozen=True)
class Gauge(GaugeSummary):
    """A gauge with its parts and its report."""

    parts: list[GaugePart]
    elsewhere: list[OtherInputs]
    """Other inputs, which were tried because no tolerance works with those of the test"""
    report: GaugeReport | None
    """The report of `gonogo gauge --json`, with the command that measures it again"""


AnyGauge = TypeVar("AnyGauge", bound=GaugeSummary)


def get(session: Session, gauge_id: str) -> Gauge | None:
    """Return a gauge with its report, or None."""
    query = _joined().where(GaugeRow.id == gauge_id)
    row = session.execute(query).one_or_none() if is_id(gauge_id) else None
    if row is None:
        return None
    gauge: GaugeRow = row[0]
    return _gauge(
        Gauge,
        *row,
        parts=[GaugePart(**{**part, "kind": Kind(part["kind"])}) for part in gauge.parts],
        elsewhere=[OtherInputs(**inputs) for inputs in gauge.elsewhere],
        report=gauge.report and from_json(GaugeReport, gauge.report),
    )


def list_(
    session: Session,
    *,
    test: str | None = None,
    state: str | None = None,
    sharpness: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[GaugeSummary]:
    """Return gauges without their reports, newest first. Raises BadCursor."""
    query = _joined().options(
        defer(GaugeRow.report), defer(GaugeRow.parts), defer(GaugeRow.elsewhere)
    )
    filters = {GaugeRow.test_key: test, JobRow.state: state, GaugeRow.sharpness: sharpness}
    return newest_first(
        session,
        query,
        GaugeRow.id,
        partial(_gauge, GaugeSummary),
        limit=limit,
        cursor=cursor,
        filters=filters,
    )


@dataclass(frozen=True)
class LastReport:
    """The report of a variant's last finished gauge."""

    gauge: str
    finished_at: datetime
    report: GaugeReport


def last(session: Session, test_key: str, branch: str, arch: str, board: str) -> LastReport | None:
    """Return the report of a variant's last finished gauge, or None.

    The gauge is chosen as in `sharpness_of`.
    """
    query = select(GaugeRow.id, JobRow.finished_at, GaugeRow.report).join(
        JobRow, JobRow.id == GaugeRow.id
    )
    query = query.where(
        GaugeRow.test_key == test_key, GaugeRow.arch == arch, GaugeRow.board == board
    )
    query = query.where(JobRow.state == JobState.finished, GaugeRow.report.is_not(None))
    row = session.execute(
        query.order_by((GaugeRow.branch == branch).desc(), GaugeRow.id.desc()).limit(1)
    ).one_or_none()
    if row is None:
        return None
    return LastReport(row.id, row.finished_at, from_json(GaugeReport, row.report))


def sharpness_of(
    session: Session, test_key: str, branch: str, arch: str, board: str
) -> dict[str, MeasuredRate]:
    """Return {mutant: how often it passed the test} by the last finished gauge; {} without one.

    A gauge of this branch counts before a newer one of another branch. The gauge measures the test,
    but a branch may have its own kernels.
    """
    query = (
        select(GaugeRow.misses)
        .join(JobRow, JobRow.id == GaugeRow.id)
        .where(
            GaugeRow.test_key == test_key,
            GaugeRow.arch == arch,
            GaugeRow.board == board,
            JobRow.state == JobState.finished,
        )
        .order_by((GaugeRow.branch == branch).desc(), GaugeRow.id.desc())
        .limit(1)
    )
    misses = session.scalar(query) or {}
    return {name: MeasuredRate.counted(count, of) for name, (count, of) in misses.items()}


def _joined() -> Any:
    query = select(GaugeRow, JobRow, TestSpecRow.canonical).join(JobRow, JobRow.id == GaugeRow.id)
    return query.join(TestSpecRow, TestSpecRow.key == GaugeRow.test_key)


def _gauge(
    shape: type[AnyGauge],
    gauge: GaugeRow,
    job: JobRow,
    canonical: dict[str, Any],
    **others: Any,
) -> AnyGauge:
    return from_object(
        shape,
        gauge,
        job,
        state=JobState(job.state),
        test=canonical,
        target=from_object(GaugeTarget, gauge),
        chunks=ChunkCounts(job.chunk_count, job.open_chunks),
        sharpness=None if gauge.sharpness is None else Sharpness(gauge.sharpness),
        **others,
    )
