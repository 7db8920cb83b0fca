"""Waivers: someone accepts failures of some tests until a day.

A class becomes `waived`; a verdict never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime

from gonogo.ci.patterns import fits, fits_any
from gonogo.flakiness.classes import Class, Classification, Finding

RED_OR_HOLLOW = (
    Class.new_failure,
    Class.new_hollow_pass,
    Class.unknown,
    Class.false_alarm,
    Class.broken_on_base,
    Class.known_flaky,
    Class.known_hollow,
)
"""The classes that a waiver covers by default."""
WAIVABLE = (*RED_OR_HOLLOW, Class.infrastructure, Class.undecided)
"""The classes that a waiver may cover at all: not those of unfinished or missing runs, nor good
news."""
NEVER_WAIVED = ("sick", "ended_empty")
"""Keys in the evidence of findings that no waiver covers: nothing ran that could be judged, and
zero tests run is never green."""


@dataclass(frozen=True)
class Waiver:
    """A waiver: its tests, builds and classes, with its owner, reason and end.

    A test must match all of key, names and labels that are given.
    """

    id: str
    owner: str
    reason: str
    expires_at: datetime
    """Time zone aware. From then on the waiver has no effect."""
    test: str | None = None
    """The key of a test."""
    names: Sequence[str] = ()
    """Patterns (gonogo.ci.patterns) for the names in a comparison."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that one job of the test on head must have, all of them."""
    builds: Sequence[str] = ()
    """Patterns for head's build; empty: any build."""
    classes: Sequence[Class] = RED_OR_HOLLOW

    def concerns(
        self,
        test: str,
        names: Iterable[str],
        labels: Iterable[Mapping[str, str]],
        build: str | None = None,
    ) -> bool:
        """Return whether it covers a test with that key, name (one of several) and jobs' labels.

        build: head's; None: any, where nothing is compared.
        """
        if self.test is not None and self.test != test:
            return False
        if self.names and not fits_any(self.names, names):
            return False
        if self.labels and not any(
            self.labels.items() <= job_labels.items() for job_labels in labels
        ):
            return False
        return build is None or not self.builds or fits(self.builds, build)


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


def day(moment: datetime) -> str:
    """Return the day on which something ends, with the minute if that is not midnight UTC."""
    there = moment.astimezone(UTC)
    return (
        f"{there:%Y-%m-%d}"
        if there.time().replace(second=0, microsecond=0) == there.min.time()
        else f"{there:%Y-%m-%d %H:%M} UTC"
    )


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
    return Classification(
        tuple(sorted(findings, key=lambda finding: (finding.kind.rank, finding.verdict.rank)))
    )


def waivable(classification: Classification) -> bool:
    """Return whether a waiver could change any of its findings."""
    return any(_waivable(finding) for finding in classification.findings)


def _waivable(finding: Finding) -> bool:
    return finding.kind in WAIVABLE and not any(name in finding.evidence for name in NEVER_WAIVED)


def _covered(finding: Finding, waivers: Iterable[Waiver]) -> Finding:
    waiver = (
        next((waiver for waiver in waivers if finding.kind in waiver.classes), None)
        if _waivable(finding)
        else None
    )
    if waiver is None:
        return finding
    covering = WaiverOfTest(
        waiver.id, waiver.owner, waiver.reason, waiver.expires_at, words(waiver)
    )
    evidence = {**finding.evidence, "waiver": asdict(covering), "otherwise": finding.kind.value}
    return replace(
        finding,
        kind=Class.waived,
        words=f"{finding.words}; {covering.words}",
        new=False,
        evidence=evidence,
    )
