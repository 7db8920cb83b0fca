"""Waivers: someone takes on, until a day, what CI would say of some tests.

A class becomes `waived`; a verdict never changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from gonogo.ci.patterns import fits, fits_any
from gonogo.flakiness.classes import Class, Classification, Finding

RED_OR_HOLLOW = (
    Class.new_failure,
    Class.new_hollow_pass,
    Class.unknown,
    Class.red_but_right,
    Class.broken_on_base,
    Class.known_flaky,
    Class.known_hollow,
)
"""What a waiver waives unless it says otherwise."""
OVERRIDABLE = (*RED_OR_HOLLOW, Class.infrastructure, Class.undecided)
"""What one may suppress at all: neither what is not over or did not run, nor good news."""
ALWAYS_SAID = ("sick", "ended_empty")
"""Evidence of findings that no waiver covers: nothing ran of which anything could be said, and
zero tests run is never green."""


@dataclass(frozen=True)
class Waiver:
    """Which tests (all of key, names and labels that are given must fit), on which builds, which
    classes, whose, why, until when.
    """

    id: str
    owner: str
    reason: str
    expires: datetime
    """Aware. From then on it does nothing."""
    test: str | None = None
    """The key of a test."""
    names: tuple[str, ...] = ()
    """Patterns (gonogo.ci.patterns) of the names that a comparison shows."""
    labels: Mapping[str, str] = field(default_factory=dict)
    """One job of the test on head has all of them."""
    builds: tuple[str, ...] = ()
    """Patterns of head's build; none: any."""
    classes: tuple[Class, ...] = RED_OR_HOLLOW

    def concerns(
        self,
        test: str,
        names: Iterable[str],
        labels: Iterable[Mapping[str, str]],
        build: str | None = None,
    ) -> bool:
        """Return whether it is about a test of that key, called one of these names, whose jobs have these
        labels.

        build: head's; None: whatever it is, as where nothing is compared.
        """
        if self.test is not None and self.test != test:
            return False
        if self.names and not fits_any(self.names, names):
            return False
        if self.labels and not any(self.labels.items() <= each.items() for each in labels):
            return False
        return build is None or not self.builds or fits(self.builds, build)

    @property
    def words(self) -> str:
        """ "waived until 2026-12-01 by kim: the race of ticket 12"."""
        return f"waived until {day(self.expires)} by {self.owner}: {self.reason}"

    def to_json(self) -> dict[str, Any]:
        """What the evidence of a finding says of it, in plain JSON types."""
        expires = self.expires.astimezone(UTC).isoformat().replace("+00:00", "Z")
        return {
            "id": self.id,
            "owner": self.owner,
            "reason": self.reason,
            "expires": expires,
            "words": self.words,
        }


def day(moment: datetime) -> str:
    """Return the day on which something ends, with the minute where that is not midnight UTC."""
    there = moment.astimezone(UTC)
    return (
        f"{there:%Y-%m-%d}"
        if there.time().replace(second=0, microsecond=0) == there.min.time()
        else f"{there:%Y-%m-%d %H:%M} UTC"
    )


def waived(said: Classification, waivers: Sequence[Waiver]) -> Classification:
    """Return the classification with what the waivers cover as `waived`.

    waivers: those that concern the test and are in force. The finding keeps its verdict; its
    evidence names the waiver, and under `otherwise` the class that it would have. Where several
    cover a class, the one that lasts longest is named.
    """
    lasting = sorted(waivers, key=lambda each: each.expires, reverse=True)
    found = [_covered(finding, lasting) for finding in said.findings]
    if found == list(said.findings):
        return said
    return Classification(
        tuple(sorted(found, key=lambda each: (each.kind.rank, each.verdict.rank)))
    )


def touches(said: Classification) -> bool:
    """Return whether a waiver could change anything of it."""
    return any(_may(finding) for finding in said.findings)


def _may(finding: Finding) -> bool:
    return finding.kind in OVERRIDABLE and not any(name in finding.evidence for name in ALWAYS_SAID)


def _covered(finding: Finding, waivers: Iterable[Waiver]) -> Finding:
    held = (
        next((each for each in waivers if finding.kind in each.classes), None)
        if _may(finding)
        else None
    )
    if held is None:
        return finding
    evidence = {**finding.evidence, "waiver": held.to_json(), "otherwise": finding.kind.value}
    return replace(
        finding,
        kind=Class.waived,
        words=f"{finding.words}; {held.words}",
        new=False,
        evidence=evidence,
    )
