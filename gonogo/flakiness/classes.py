"""The classification of a test on a commit: its results on base and head, classes and evidence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gonogo.flakiness.arithmetic_changes import BuildPrograms
from gonogo.flakiness.masking import Record
from gonogo.flakiness.rates import Rate, rate
from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict


class Class(Described):
    """The class of a test on head.

    Classes are declared in the order in which people want to read them; a test's class is its
    first.
    """

    new_failure = "new_failure", "Red on head, and not on base: this commit did it."
    new_hollow_pass = (
        "new_hollow_pass",
        "Green on head only because the tolerance is loose, and not so on base: rounding"
        " doesn't explain the error.",
    )
    unknown = "unknown", "Red or hollow on head, and base was not run: it may be new or old."
    infrastructure = (
        "infrastructure",
        "A hang, a crash or an error: says nothing of the kernel's numbers.",
    )
    pending = "pending", "Not finished on head yet."
    false_alarm = (
        "false_alarm",
        "Red on head, and right: the tolerance is tighter than the formats allow.",
    )
    broken_on_base = "broken_on_base", "The same failure is there on base."
    known_flaky = (
        "known_flaky",
        "Red on head, and an open flag says that it flickers, no worse than before.",
    )
    known_hollow = (
        "known_hollow",
        "Green and unexplained on head, as it was on base or as an open flag says.",
        "Known hollow pass",
    )
    waived = (
        "waived",
        "Accepted for now: an acknowledged flag or a waiver, with an owner and a reason.",
    )
    undecided = (
        "undecided",
        "Green on head, but nobody knows yet whether rounding explains the error: more seeds or"
        " other inputs are needed.",
    )
    not_run = "not_run", "It ran on base, and not on head."
    fixed = "fixed", "Red on base, and green on head."
    no_longer_hollow = (
        "no_longer_hollow",
        "Green and unexplained on base; rounding explains the error on head.",
        "No longer a hollow pass",
    )
    arithmetic_changed = (
        "arithmetic_changed",
        "Rounding explains the errors on head, but in another arithmetic than on base.",
        "Arithmetic change",
    )
    passed = "passed", "Green on head, and nothing new to say."

    def counted(self, number: int) -> str:
        """Return the class with a number, such as `1 new hollow pass` or `2 new failures`."""
        ending = _PLURALS.get(self, "") if number != 1 else ""
        return f"{number:,} {self.label.lower()}{ending}"


_PLURALS = {
    Class.new_failure: "s",
    Class.new_hollow_pass: "es",
    Class.known_hollow: "es",
    Class.false_alarm: "s",
    Class.arithmetic_changed: "s",
}


LOST = (Verdict.error, Verdict.crash, Verdict.hang)
_JUDGED = (
    Verdict.fail,
    Verdict.pass_by_tolerance,
    Verdict.fail_by_tolerance,
    Verdict.suspect,
    Verdict.pass_,
)

FLICKERS = frozenset(
    {"flaky", "nondeterministic", "device_dependent", "context_dependent", "latent_flake"}
)
"""Kinds of flags that mark red results that come and go."""
HOLLOWS = frozenset({"passes_by_tolerance", "fix_masked"})
TOO_TIGHT = frozenset({"tolerance_too_tight"})
LOST_FLAGS = {Verdict.hang: frozenset({"hangs"}), Verdict.crash: frozenset({"crashes"})}
"""The kinds of flags that mark runs without numbers, by their verdict."""
ACCEPTED: Mapping[frozenset[str], str] = {
    FLICKERS: "red results",
    HOLLOWS: "hollow passes",
    TOO_TIGHT: "false alarms",
    LOST_FLAGS[Verdict.hang]: "hangs",
    LOST_FLAGS[Verdict.crash]: "crashes",
}
"""The results that become `waived` while someone acknowledges a flag of these kinds."""


@dataclass(frozen=True)
class OpenFlag:
    """An unresolved flag of the test."""

    id: str
    kind: str
    acknowledged: bool
    """True if someone has acknowledged it, and that has not expired: then it waives."""
    owner: str | None = None
    reason: str | None = None
    expires: str | None = None
    words: str = ""


@dataclass(frozen=True)
class RunCounts:
    """The results of a test on one side, over all its jobs there."""

    build: str
    jobs: tuple[str, ...] = ()
    """Newest first"""
    counts: Mapping[str, int] = field(default_factory=dict)
    """The number of (seed, repeat) by verdict; for a test within a gtest or pytest suite, of
    iterations"""
    not_judged_red: int = 0
    """The number of not judged runs that report red"""
    sick: Mapping[str, int] = field(default_factory=dict)
    """Device -> runs that are in no count, because the device was sick when they ran"""
    waiting: int = 0
    """Jobs that have not finished"""
    ended_empty: Mapping[str, int] = field(default_factory=dict)
    """Reason -> jobs that ended without any result (queue deadline, canceled)"""


@dataclass(frozen=True)
class RunSummary(RunCounts):
    """The results of a test on one side, with what a comparison of the errors needs."""

    record: Record | None = None
    """Its seeds, for comparing errors; None where nothing depends on it."""
    programs: BuildPrograms | None = None
    """The arithmetics that explain its seeds; None where its build declares one."""

    def of(self, *verdicts: Verdict) -> int:
        """Return how many runs have one of these verdicts."""
        return sum(self.counts.get(verdict, 0) for verdict in verdicts)

    @property
    def red(self) -> int:
        """The number of red runs: wrong, or not judged."""
        return self.of(Verdict.fail) + self.not_judged_red

    @property
    def judged(self) -> int:
        """The number of runs with a verdict on the kernel's numbers."""
        return self.of(*_JUDGED)

    @property
    def answered(self) -> int:
        """The number of runs that are green or red."""
        return self.judged + self.of(Verdict.not_judged)

    def share(self, number: int) -> Rate:
        """Return `number` as a rate among the runs that are green or red."""
        return rate(number, self.answered)

    @property
    def shown(self) -> RunCounts:
        """The results as people read them: the counts in the order of verdicts, without zeros."""
        counts = {
            verdict.value: self.counts[verdict] for verdict in Verdict if self.counts.get(verdict)
        }
        names = RunCounts.__dataclass_fields__
        return RunCounts(**{**{name: getattr(self, name) for name in names}, "counts": counts})


@dataclass(frozen=True)
class Finding:
    """One kind of failure, or of good news, of a test on head."""

    kind: Class
    verdict: Verdict
    """The worst of head's verdicts that it is about."""
    words: str
    new: bool
    """True if base is known not to have had it."""
    evidence: Mapping[str, Any] = field(default_factory=dict)
    """`head` and `base`: rates of the verdict; `p`: Fisher's test that they differ; `flag`;
    `change`: the result of masking, in JSON. Waived findings also have `waiver`, and
    `otherwise`: the class without the waiver."""


@dataclass(frozen=True)
class Classification:
    """All findings of a test, in reading order; never empty."""

    findings: tuple[Finding, ...]

    @property
    def kind(self) -> Class:
        """The class that lists sort and count by."""
        return self.findings[0].kind

    @property
    def words(self) -> str:
        """The words of the first finding."""
        return self.findings[0].words

    @property
    def verdict(self) -> Verdict:
        """The verdict of the first finding."""
        return self.findings[0].verdict
