"""The SQL of gauges: their reports, and the sharpness of a test by its last gauge."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from gonogo.flakiness.rates import Rate, rate
from gonogo.gauge.summary import GaugeReport, Slack
from gonogo_service.gauges.model import GaugeRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.each import among

_SLACK = GaugeRow.id, GaugeRow.branch, GaugeRow.board, GaugeRow.slack, GaugeRow.misses


@dataclass(frozen=True)
class LastReport:
    """The report of a variant's last finished gauge."""

    gauge: str
    finished_at: datetime
    report: GaugeReport


@dataclass(frozen=True)
class GaugedSlack:
    """The tolerance of a test as its last finished gauge has it, and where that ran."""

    gauge: str
    branch: str
    board: str
    slack: list[Slack]
    passing: int
    """The mutants that pass it on some seed"""
    mutants: int
    """Faults that can show"""

    @classmethod
    def of(cls, gauge: Any) -> GaugedSlack | None:
        """Return the tolerance as a row of gauges has it; None where it has not finished."""
        if gauge.slack is None:
            return None
        rates = list((gauge.misses or {}).values())
        passing, mutants = sum(count > 0 for count, _ in rates), sum(of > 0 for _, of in rates)
        return cls(gauge.id, gauge.branch, gauge.board, gauge.slack, passing, mutants)

    @property
    def loosest(self) -> Slack | None:
        """Return the output with the largest slack; None where none is bounded."""
        bounded = [one for one in self.slack if one.factor is not None]
        return max(bounded, key=lambda one: one.factor or 0.0, default=None)


def of_gauges(session: Session, ids: Collection[str]) -> dict[str, GaugedSlack | None]:
    """Return the tolerance of these gauges' tests as each has measured it, by the gauge's id."""
    query = select(*_SLACK).where(among(session, GaugeRow.id, ids))
    return {gauge.id: GaugedSlack.of(gauge) for gauge in session.execute(query)}


def last(session: Session, test_key: str, branch: str, arch: str, board: str) -> LastReport | None:
    """Return the report of a variant's last finished gauge, or None."""
    columns = select(GaugeRow.id, JobRow.finished_at, GaugeRow.report)
    query = _last_first(columns, test_key, branch, arch, board)
    row = session.execute(query.join(JobRow, JobRow.id == GaugeRow.id)).one_or_none()
    return None if row is None else LastReport(*row)


def misses(session: Session, test_key: str, branch: str, arch: str, board: str) -> dict[str, Rate]:
    """Return {mutant: how often it passed the test} by the last finished gauge; {} without one."""
    query = _last_first(select(GaugeRow.misses), test_key, branch, arch, board)
    stored = session.scalar(query) or {}
    return {name: rate(count, of) for name, (count, of) in stored.items()}


def slacks(session: Session, keys: Collection[str] | None = None) -> dict[str, GaugedSlack]:
    """Return the slack of each gauged test, or of these, by its last finished gauge.

    It is the last one on any branch and board: a suite's file has one tolerance for all of them.
    """
    row, newest = GaugeRow, aliased(GaugeRow)
    of_test = newest.test_key == row.test_key, newest.slack.is_not(None)
    last = select(newest.id).where(*of_test).order_by(newest.id.desc()).limit(1)
    query = select(row.test_key, *_SLACK).where(row.id == last.correlate(row).scalar_subquery())
    if keys is not None:
        query = query.where(among(session, row.test_key, keys))
    read = ((gauge.test_key, GaugedSlack.of(gauge)) for gauge in session.execute(query))
    return {key: gauged for key, gauged in read if gauged is not None}


def _last_first(
    columns: Select[*tuple[Any, ...]], test_key: str, branch: str, arch: str, board: str
) -> Select[*tuple[Any, ...]]:
    """Return the query of the columns of a variant's last finished gauge.

    A gauge of this branch counts before a newer one of another branch. The gauge measures the test,
    but a branch may have its own kernels.
    """
    row = GaugeRow
    variant = (row.test_key == test_key, row.arch == arch, row.board == board)
    query = columns.where(*variant, row.slack.is_not(None))
    return query.order_by((row.branch == branch).desc(), row.id.desc()).limit(1)
