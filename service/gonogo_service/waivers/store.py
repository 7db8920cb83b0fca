"""Waivers in the database. Each read compares the clock with their ends."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit.database.paging import batched
from gonogo_service.results.model import ResultRow
from gonogo_service.suites.model import RunJobRow
from gonogo_service.tests import test_specs
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.waivers.model import WaiverRow
from gonogo_service.waivers.noun import WaiverState

MAX_ACTIVE = 500
"""Maximum number of active waivers.

More would be a policy, and a comparison checks each of them for every bad test.
"""
MAX_WITHOUT_KEY = 1000
"""Newest waivers without a test's key that are checked against a test."""
MAX_JOBS = 200
"""Newest jobs of a test whose names and labels count as the test's."""
MAX_NAMES = 2000
"""Tests of a selection that count as the names of its test."""
_AT_ONCE = 500


def active_count(session: Session, now: datetime) -> int:
    """Return the number of waivers in force."""
    query = (
        select(func.count()).select_from(WaiverRow).where(WaiverRow.is_at(WaiverState.active, now))
    )
    return session.scalar(query) or 0


def of_test(session: Session, key: str, *, now: datetime) -> list[WaiverRow]:
    """Return the active waivers that concern a test on any build, the first to end first."""
    active = WaiverRow.is_at(WaiverState.active, now)
    named = session.scalars(select(WaiverRow).where(WaiverRow.test == key, active))
    rows = [*named, *matching(session, key, active)]
    return sorted(rows, key=lambda waiver: (waiver.expires_at, waiver.id))


def ending(session: Session, *, now: datetime, until: datetime, limit: int) -> list[WaiverRow]:
    """Return the waivers that are in force and end by then, the first to end first."""
    active = WaiverRow.is_at(WaiverState.active, now)
    query = select(WaiverRow).where(active, WaiverRow.expires_at <= until)
    return list(session.scalars(query.order_by(WaiverRow.expires_at, WaiverRow.id).limit(limit)))


def matching(session: Session, key: str, *conditions: ColumnElement[bool]) -> list[WaiverRow]:
    """Return the waivers that concern a test without naming its key.

    Of the newest MAX_WITHOUT_KEY, by the names and labels of the test's newest jobs.
    """
    query = select(WaiverRow).where(WaiverRow.test.is_(None), *conditions)
    waivers = session.scalars(query.order_by(WaiverRow.id.desc()).limit(MAX_WITHOUT_KEY)).all()
    test = session.get(TestSpecRow, key) if waivers else None
    if test is None:
        return []
    newest = select(JobRow.id).where(JobRow.test_key == key).order_by(JobRow.id.desc())
    jobs = list(session.scalars(newest.limit(MAX_JOBS)))
    in_runs = select(RunJobRow.name).where(RunJobRow.job_id.in_(jobs)).distinct()
    names = {test_specs.name_of(test.kernel, test.test), *session.scalars(in_runs)}
    within = select(ResultRow.output).where(
        ResultRow.job_id.in_(jobs[:1]), ResultRow.outcome.is_not(None)
    )
    names |= set(session.scalars(within.distinct().limit(MAX_NAMES)))
    labels = _labels(session, jobs, waivers).values()
    return [waiver for waiver in waivers if waiver.concerns(key, names, labels)]


@dataclass(frozen=True)
class InForce:
    """All active waivers at a moment, with the labels of the jobs that they may name."""

    waivers: Sequence[WaiverRow]
    labels: Mapping[str, Mapping[str, str]]
    """Job -> its labels, if a waiver names them."""

    def of(
        self, test: str, names: Collection[str], jobs: Iterable[str], build: str
    ) -> list[WaiverRow]:
        """Return those that concern a test on head: by its names, jobs and build there."""
        labels = [self.labels[job] for job in jobs if job in self.labels]
        return [waiver for waiver in self.waivers if waiver.concerns(test, names, labels, build)]


def in_force(session: Session, job_ids: Iterable[str], *, now: datetime) -> InForce:
    """Return the active waivers, for a comparison whose head has these jobs."""
    query = select(WaiverRow).where(WaiverRow.is_at(WaiverState.active, now)).order_by(WaiverRow.id)
    waivers = session.scalars(query).all()
    return InForce(waivers, _labels(session, sorted(job_ids), waivers))


def _labels(
    session: Session, job_ids: Sequence[str], waivers: Iterable[WaiverRow]
) -> dict[str, dict[str, str]]:
    """Return job -> the labels that waivers name."""
    names = sorted({name for waiver in waivers for name in waiver.labels})
    labels: dict[str, dict[str, str]] = {}
    table = JobLabelRow
    for ids in batched(job_ids, _AT_ONCE) if names else ():
        query = select(table.job_id, table.name, table.value)
        for job_id, name, value in session.execute(
            query.where(table.job_id.in_(ids), table.name.in_(names))
        ):
            labels.setdefault(job_id, {})[name] = value
    return labels
