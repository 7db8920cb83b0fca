"""The gate: decide from the classifications of its tests whether a commit may pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from gonogo.flakiness.classes import LOST, NEW, Class, Classification, Finding
from gonogo.spec.verdicts import Verdict


class FailOn(StrEnum):
    """The level of findings that closes a gate."""

    new = "new"
    fail = "fail"
    hollow = "hollow"
    suspect = "suspect"
    any = "any"


_FAIL = frozenset({*LOST, Verdict.fail})
_HOLLOW = _FAIL | {Verdict.pass_by_tolerance}
LEVELS: Mapping[FailOn, frozenset[Verdict]] = {
    FailOn.fail: _FAIL,
    FailOn.hollow: _HOLLOW,
    FailOn.suspect: _HOLLOW | {Verdict.fail_by_tolerance, Verdict.suspect, Verdict.inconclusive},
}
"""The verdicts that close a gate by themselves, new or not."""
LABELS = {0: "Clear", 1: "Blocked", 3: "Undecided"}
"""The label of each code."""


@dataclass(frozen=True)
class GateAnswer:
    """The answer of a gate.

    `code` is 0 for pass, 1 for blocked, and 3 if it can't be decided (not finished, base not run,
    infrastructure).
    """

    code: int
    reasons: Mapping[str, int]
    """Class -> number of tests that close it"""
    words: str
    """The reasons in one phrase"""


def gate(
    classifications: Iterable[Classification], fail_on: FailOn | str = FailOn.new
) -> GateAnswer:
    """Return whether a commit may pass.

    `new`: 1 for new failures, new hollow passes, and hangs and crashes that base doesn't have;
    failures that base or a flag already has turn no pull request red. The other levels count every
    verdict at least that bad, new or not, unless it is waived. Else 3 where something can't be
    decided: a test has not finished, is unknown, or met an error, or no test ran on head at all,
    because zero tests run is never green.
    """
    level = FailOn(fail_on)
    shared = list(classifications)  # tests of a selection share theirs
    numbers = Counter(map(id, shared))
    closing: Counter[tuple[int, Class]] = Counter()
    ran = False
    for classification in {id(one): one for one in shared}.values():
        ran = ran or any(finding.kind is not Class.not_run for finding in classification.findings)
        for pair in {
            (_closes(finding, level), finding.kind) for finding in classification.findings
        }:
            closing[pair] += numbers[id(classification)]
    code = min((code for code, _ in closing if code), default=0)
    reasons = {kind.value: closing[code, kind] for kind in Class if code and closing[code, kind]}
    if not code and not ran:
        code, reasons = 3, {Class.not_run.value: 0}
    words = ", ".join(Class(kind).counted(number) for kind, number in reasons.items())
    return GateAnswer(code, reasons, words or "nothing new")


def _closes(finding: Finding, level: FailOn) -> int:
    kind, verdict = finding.kind, finding.verdict
    if kind is Class.waived:
        return 0
    if kind is Class.pending:
        return 3
    if level is FailOn.any:
        return 0 if kind.is_good and verdict is Verdict.pass_ else 1
    if level is FailOn.new:
        if kind in NEW:
            return 1
        if kind is Class.infrastructure and verdict is not Verdict.error:
            return int(finding.new)
    elif verdict in LEVELS[level] or (verdict is Verdict.not_judged and not kind.is_good):
        return 1
    return 3 if kind in (Class.unknown, Class.infrastructure) else 0
