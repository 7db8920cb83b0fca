"""May a commit pass? What closes a gate, of everything that was said of its tests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from gonogo.flakiness.classes import LOST, Class, Classification, Finding
from gonogo.spec.verdicts import Verdict


class FailOn(StrEnum):
    """What makes a gate close."""

    new = "new"
    fail = "fail"
    hollow = "hollow"
    suspect = "suspect"
    any = "any"


_LEVELS: Mapping[FailOn, frozenset[Verdict]] = {
    FailOn.fail: frozenset({*LOST, Verdict.fail}),
    FailOn.hollow: frozenset({*LOST, Verdict.fail, Verdict.pass_by_tolerance}),
    FailOn.suspect: frozenset(
        {
            *LOST,
            Verdict.fail,
            Verdict.pass_by_tolerance,
            Verdict.fail_by_tolerance,
            Verdict.suspect,
            Verdict.inconclusive,
        }
    ),
}
_GOOD = frozenset({Class.fixed, Class.no_longer_hollow, Class.passed})


@dataclass(frozen=True)
class Gate:
    """Whether a commit may pass. `code`: 0 yes, 1 no, 3 it can't be said (not over, base not run,
    infrastructure).
    """

    code: int
    reasons: Mapping[str, int]
    """Class -> tests, of those that close it."""

    @property
    def words(self) -> str:
        """One phrase."""
        return (
            ", ".join(Class(kind).counted(number) for kind, number in self.reasons.items())
            or "nothing new"
        )

    def to_json(self) -> dict[str, Any]:
        """In plain JSON types."""
        return {"code": self.code, "reasons": dict(self.reasons), "words": self.words}


def gate(found: Iterable[Classification], fail_on: FailOn | str = FailOn.new) -> Gate:
    """Whether a commit may pass.

    `new`: 1 for new failures, new hollow passes, and hangs and crashes that base doesn't have; what
    base or a flag knows turns no pull request red. The other levels take every verdict that bad,
    new or not, but for what is waived. Else 3 where something can't be said: a test that isn't
    over, is unknown, or met an error; or where no test ran on head at all, for zero tests run is
    never green.
    """
    level = FailOn(fail_on)
    codes: dict[int, dict[str, int]] = {1: {}, 3: {}}
    ran = False
    for each in found:
        ran = ran or any(finding.kind is not Class.not_run for finding in each.findings)
        for code in (1, 3):
            closing = {finding.kind for finding in each.findings if _closes(finding, level) == code}
            for kind in closing:
                codes[code][kind.value] = codes[code].get(kind.value, 0) + 1
    for code in (1, 3):
        if codes[code]:
            return Gate(
                code,
                {
                    kind.value: codes[code][kind.value]
                    for kind in Class
                    if kind.value in codes[code]
                },
            )
    return Gate(0, {}) if ran else Gate(3, {Class.not_run.value: 0})


def _closes(finding: Finding, level: FailOn) -> int:
    if finding.kind is Class.waived:
        return 0
    if finding.kind is Class.pending:
        return 3
    if level is FailOn.new:
        if finding.kind in (Class.new_failure, Class.new_hollow_pass):
            return 1
        if finding.kind is Class.infrastructure and finding.verdict is not Verdict.error:
            return 1 if finding.new else 0
    elif level is FailOn.any:
        return 0 if finding.kind in _GOOD and finding.verdict is Verdict.pass_ else 1
    elif finding.verdict in _LEVELS[level] or (
        finding.verdict is Verdict.not_judged and finding.kind not in _GOOD
    ):
        return 1
    return 3 if finding.kind in (Class.unknown, Class.infrastructure) else 0
