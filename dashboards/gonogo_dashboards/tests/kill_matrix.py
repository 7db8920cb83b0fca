"""The kill matrix of a test's last gauge: mutants by what rejects them.

A mutant that nothing rejects can be green.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelled
from gonogo.gauge.summary import AdvisedTolerance
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.gauges import report_rows
from gonogo_dashboards.kit import words
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.gauges import gauges
from gonogo_storage.rollups.variants import Variant


@dataclass(frozen=True)
class KillCell:
    """A mutant against something that may reject it, in words.

    `looks` is the verdict whose shape and color it takes.
    """

    words: str
    looks: str


@dataclass(frozen=True)
class KillLine:
    """A mutant against the declared tolerance, the advised one, and what rounding explains."""

    name: str
    sentence: str
    declared: KillCell
    advised: KillCell | None
    rounding: KillCell


@dataclass(frozen=True)
class KillMatrix:
    """The last finished gauge of a variant.

    Mutants that pass the declared tolerance come first, those whose fault can't show last.
    """

    url: str
    at: str | None
    age: str
    sharpness: str
    sentence: str
    alarms: str
    advice: str
    works: bool
    tolerance: Mapping[str, Any]
    """The advised tolerance, output -> comparators; {} for none."""
    advised: str
    lines: tuple[KillLine, ...]


def read(session: Session, variant: Variant, now: datetime) -> KillMatrix | None:
    """Return the kill matrix; None where no gauge has measured the test."""
    last = gauges.last(session, variant.test_key, variant.branch, variant.arch, variant.board)
    if last is None:
        return None
    report = last.report
    known = report_rows.read(report)
    advice = report.advice
    lines = tuple(
        _line(part, advice)
        for part in known.parts
        if not part.right and part.unexplained is not None
    )
    passing = [line for line in lines if line.declared.looks == Verdict.pass_by_tolerance]
    able = [line for line in lines if line.declared.looks != Verdict.inconclusive]
    return KillMatrix(
        url=urls.gauge(last.gauge),
        at=timestamp(last.finished_at),
        age=words.since(last.finished_at, now),
        sharpness=report.sharpness,
        sentence=f"{len(passing)} of {len(able)} mutants (known-wrong kernels) pass this test."
        if able
        else "No mutant's fault can show with these inputs.",
        alarms=known.alarms.words,
        advice=known.advice,
        works=known.works,
        tolerance=advice.tolerance,
        advised=spelled(advice.tolerance) if advice.tolerance else "",
        lines=lines,
    )


def _line(part: report_rows.PartLine, advice: AdvisedTolerance) -> KillLine:
    declared = _cell(part.rate.of - part.rate.count, part.rate.of)
    advised = None
    if advice.tolerance:
        advised = _cell(part.rate.of - advice.missed.get(part.name, 0), part.rate.of)
    rounding = part.unexplained or part.rate
    return KillLine(
        part.name,
        part.sentence,
        declared,
        advised,
        _cell(rounding.count, rounding.of if part.rate.of else 0),
    )


def _cell(rejected: int, of: int) -> KillCell:
    """Return a cell from the number of rejected runs among those on which the fault can show."""
    if not of:
        return KillCell("can't show", Verdict.inconclusive)
    if rejected == of:
        return KillCell("rejected", Verdict.pass_)  # as it should be
    return KillCell(
        "passes" if not rejected else f"{of - rejected} of {of} pass", Verdict.pass_by_tolerance
    )
