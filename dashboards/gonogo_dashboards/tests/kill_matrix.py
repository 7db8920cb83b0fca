"""The kill matrix of a test's last gauge: known-wrong kernels by what may stop them. What stops
none of them lets them be green.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.gauge.advice import spelt
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.gauges import report_rows
from gonogo_dashboards.kit import words
from gonogo_storage.gauges import gauges
from gonogo_storage.rollups.variants import Variant


@dataclass(frozen=True)
class KillCell:
    """A wrong kernel against something that may stop it: in a word, and the verdict whose looks it
    takes.
    """

    said: str
    looks: str


@dataclass(frozen=True)
class KillLine:
    """A known-wrong kernel: against the declared tolerance, the advised one, and what rounding
    explains.
    """

    name: str
    sentence: str
    declared: KillCell
    advised: KillCell | None
    rounding: KillCell


@dataclass(frozen=True)
class KillMatrix:
    """The last finished gauge of a variant; lines with what passes the declared tolerance first,
    what can't show last.
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
    """The advised one, output -> comparators; {} for none."""
    advised: str
    lines: tuple[KillLine, ...]


def read(session: Session, variant: Variant, now: datetime) -> KillMatrix | None:
    """None where no gauge has measured the test."""
    found = gauges.last(session, variant.test_key, variant.branch, variant.arch, variant.board)
    if found is None:
        return None
    report = found["report"]
    known = report_rows.read(report)
    advice = report["advice"]
    lines = tuple(
        _line(part, advice)
        for part in known.parts
        if not part.right and part.unexplained is not None
    )
    passing = [line for line in lines if line.declared.looks == Verdict.pass_by_tolerance]
    able = [line for line in lines if line.declared.looks != Verdict.inconclusive]
    return KillMatrix(
        url=urls.gauge(found["id"]),
        at=found["finished_at"],
        age=words.since(found["finished_at"], now),
        sharpness=report["sharpness"],
        sentence=f"{len(passing)} of {len(able)} known-wrong kernels pass this test."
        if able
        else "No wrong kernel can show here.",
        alarms=known.alarms.words,
        advice=known.advice,
        works=known.works,
        tolerance=advice["tolerance"] or {},
        advised=spelt(advice["tolerance"]) if advice["tolerance"] else "",
        lines=lines,
    )


def _line(part: report_rows.PartLine, advice: Mapping[str, Any]) -> KillLine:
    declared = _cell(part.rate.of - part.rate.count, part.rate.of)
    advised = None
    if advice["tolerance"]:
        advised = _cell(part.rate.of - advice["missed"].get(part.name, 0), part.rate.of)
    rounding = part.unexplained or part.rate
    return KillLine(
        part.name,
        part.sentence,
        declared,
        advised,
        _cell(rounding.count, rounding.of if part.rate.of else 0),
    )


def _cell(stopped: int, of: int) -> KillCell:
    """How many of the runs on which it can show were stopped."""
    if not of:
        return KillCell("can't show", Verdict.inconclusive)
    if stopped == of:
        return KillCell("stopped", Verdict.fail)
    return KillCell(
        "passes" if not stopped else f"{of - stopped} of {of} pass", Verdict.pass_by_tolerance
    )
