"""The gate: decide from the classifications of its tests whether a commit may pass."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gonogo.flakiness.classes import LOST, Class, Classification, Finding
from gonogo.spec.verdicts import Verdict


class FailOn(StrEnum):
    """The level of findings that closes a gate."""

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
_GOOD = frozenset({Class.fixed, Class.no_longer_hollow, Class.arithmetic_changed, Class.passed})


@dataclass(frozen=True)
class Gate:
    """The answer of a gate.

    `code` is 0 for pass, 1 for blocked, and 3 if it can't be decided (not finished, base not run,
    infrastructure).
    """

    code: int
    reasons: Mapping[str, int]
    """Class -> number of tests that close it"""
    words: str
    """The reasons in one phrase"""


def gate(classifications: Iterable[Classification], fail_on: FailOn | str = FailOn.new) -> Gate:
    """Return whether a commit may pass.

    `new`: 1 for new failures, new hollow passes, and hangs and crashes that base doesn't have;
    failures that base or a flag already has turn no pull request red. The other levels count every
    verdict at least that bad, new or not, unless it is waived. Else 3 where something can't be
    decided: a test has not finished, is unknown, or met an error, or no test ran on head at all,
    because zero tests run is never green.
    """
    level = FailOn(fail_on)
    codes: dict[int, dict[str, int]] = {1: {}, 3: {}}
    ran = False
    groups: dict[int, list[Classification]] = {}  # tests of a selection share theirs
    for classification in classifications:
        groups.setdefault(id(classification), []).append(classification)
    for group in groups.values():
        findings = group[0].findings
        ran = ran or any(finding.kind is not Class.not_run for finding in findings)
        for code in (1, 3):
            closing = {finding.kind for finding in findings if _closes(finding, level) == code}
            for kind in closing:
                codes[code][kind.value] = codes[code].get(kind.value, 0) + len(group)
    code = next((code for code in (1, 3) if codes[code]), 0)
    reasons = {kind.value: codes[code][kind.value] for kind in Class if kind in codes.get(code, ())}
    if not code and not ran:
        code, reasons = 3, {Class.not_run.value: 0}
    words = ", ".join(Class(kind).counted(number) for kind, number in reasons.items())
    return Gate(code, reasons, words or "nothing new")


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
