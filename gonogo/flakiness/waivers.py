"""Waivers: someone accepts failures of some tests until a day.

A class becomes `waived`; a verdict never changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from gonogo.flakiness.classes import Class, Classification, Finding

RED_OR_HOLLOW = tuple(kind for kind in Class if kind.waiver == "default")
"""The classes that a waiver covers by default."""
WAIVABLE = (*RED_OR_HOLLOW, *(kind for kind in Class if kind.waiver == "named"))
"""The classes that a waiver may cover at all: not those of unfinished or missing runs, nor good
news."""
NEVER_WAIVED = ("sick", "ended_empty")
"""Keys in the evidence of findings that no waiver covers: nothing ran that could be judged, and
zero tests run is never green."""


class Waiver(Protocol):
    """A waiver, as a classification reads it; from `expires_at` on it has no effect."""

    @property
    def id(self) -> str: ...

    @property
    def owner(self) -> str: ...

    @property
    def reason(self) -> str: ...

    @property
    def expires_at(self) -> datetime: ...

    @property
    def classes(self) -> Collection[str]: ...


@dataclass(frozen=True)
class WaiverOfTest:
    """The waiver that covers a finding."""

    id: str
    owner: str
    reason: str
    expires: datetime
    words: str


def words(waiver: Waiver) -> str:
    """Return it in a phrase: "waived until 2026-12-01 by kim: the race of ticket 12"."""
    return f"waived until {day(waiver.expires_at)} by {waiver.owner}: {waiver.reason}"


def effect(waiver: Waiver) -> str:
    """Return its effect on commits: "Until 2026-12-01, red and hollow results block no commit."""
    until = f"Until {day(waiver.expires_at)}"
    if list(waiver.classes) == list(RED_OR_HOLLOW):
        return f"{until}, red and hollow results block no commit."
    kinds = ", ".join(Class(kind).label.lower() for kind in waiver.classes)
    return f"{until}, these findings block no commit: {kinds}."


def day(moment: datetime) -> str:
    """Return the day on which something ends, with the minute if that is not midnight UTC."""
    there = moment.astimezone(UTC)
    minute = f"{there:%H:%M}"
    return f"{there:%Y-%m-%d}" if minute == "00:00" else f"{there:%Y-%m-%d} {minute} UTC"


def waived(classification: Classification, waivers: Sequence[Waiver]) -> Classification:
    """Return the classification in which covered findings have the class `waived`.

    waivers: those in force that concern the test. A finding keeps its verdict; its evidence names
    the waiver, and under `otherwise` the class without it. Where several waivers cover a class, the
    one that lasts longest is named.
    """
    lasting = sorted(waivers, key=lambda waiver: waiver.expires_at, reverse=True)
    findings = [_covered(finding, lasting) for finding in classification.findings]
    if findings == list(classification.findings):
        return classification
    return classification.with_findings(findings)


def waivable(classification: Classification) -> bool:
    """Return whether a waiver could change any of its findings."""
    return any(_waivable(finding) for finding in classification.findings)


def _waivable(finding: Finding) -> bool:
    return finding.kind in WAIVABLE and not any(name in finding.evidence for name in NEVER_WAIVED)


def _covered(finding: Finding, waivers: Iterable[Waiver]) -> Finding:
    covering = (one for one in waivers if _waivable(finding) and finding.kind in one.classes)
    waiver = next(covering, None)
    if waiver is None:
        return finding
    shown = WaiverOfTest(waiver.id, waiver.owner, waiver.reason, waiver.expires_at, words(waiver))
    return replace(
        finding,
        kind=Class.waived,
        words=f"{finding.words}; {shown.words}",
        new=False,
        evidence={
            **finding.evidence,
            "waiver": asdict(shown),
            "otherwise": finding.kind.value,
        },
    )
