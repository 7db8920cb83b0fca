"""The classification of a test on a commit: its results on base and head, classes and evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from gonogo.flakiness.arithmetic_changes import BuildPrograms
from gonogo.flakiness.device_times import TimeChange, Times
from gonogo.flakiness.masking import BuildChange, Record
from gonogo.flakiness.rates import Rate, rate
from gonogo.spec.described import Described, Row
from gonogo.spec.verdicts import Verdict, by_verdict

Level = Literal["failure", "warning", "notice"]


@dataclass(frozen=True)
class _Row(Row):
    """A class; known findings look as new ones do."""

    plural: str = ""
    """The end of the label behind a number other than 1."""
    level: Level | None = None
    """How loud its annotation on GitHub and GitLab is; None: it has none."""
    color: str = ""
    """The label's on the terminal."""
    is_good: bool = False
    """Whether no gate closes by it: it is good news, or says nothing of the errors."""
    waiver: Literal["default", "named", "never"] = "never"
    """Whether a waiver covers it: by default, where it names the class, or never."""


class Class(Described):
    """The class of a test on head.

    Classes are declared in the order in which people want to read them; a test's class is its
    first.
    """

    plural: str
    level: Level | None
    color: str
    is_good: bool
    waiver: str

    # fmt: off
    new_failure = _Row("new_failure", "Red on head, and not on base: this commit did it.",
        mark="fail", plural="s", level="failure", color="bold red", waiver="default")
    new_hollow_pass = _Row("new_hollow_pass", "Green on head only because the tolerance is loose,"
        " and not so on base: rounding doesn't explain the error.", mark="pass_by_tolerance",
        plural="es", level="failure", color="bold magenta", waiver="default")
    unknown = _Row("unknown", "Red or hollow on head, and base was not run: it may be new or old.",
        mark="inconclusive", level="warning", color="yellow", waiver="default")
    infrastructure = _Row("infrastructure",
        "A hang, a crash or an error: says nothing of the kernel's numbers.", mark="error",
        level="warning", color="red", waiver="named")
    pending = _Row("pending", "Not finished on head yet.", mark="inconclusive", level="warning")
    false_alarm = _Row("false_alarm",
        "Red on head, and right: the tolerance is tighter than the formats allow.",
        mark="fail_by_tolerance", plural="s", level="warning", color="yellow", waiver="default")
    broken_on_base = _Row("broken_on_base", "The same failure is there on base.", mark="fail",
        level="notice", waiver="default")
    known_flaky = _Row("known_flaky",
        "Red on head, and an open flag says that it flickers, no worse than before.",
        mark="suspect", level="notice", waiver="default")
    known_hollow = _Row("known_hollow",
        "Green and unexplained on head, as it was on base or as an open flag says.",
        mark="pass_by_tolerance", label="Known hollow pass", plural="es", level="notice",
        waiver="default")
    waived = _Row("waived",
        "Accepted for now: an acknowledged flag or a waiver, with an owner and a reason.",
        mark="not_judged")
    undecided = _Row("undecided", "Green on head, but nobody knows yet whether rounding explains"
        " the error: more seeds or other inputs are needed.", mark="suspect", waiver="named")
    not_run = _Row("not_run", "It ran on base, and not on head.", mark="not_run")
    fixed = _Row("fixed", "Red on base, and green on head.", mark="pass", color="green",
        is_good=True)
    no_longer_hollow = _Row("no_longer_hollow",
        "Green and unexplained on base; rounding explains the error on head.", mark="pass",
        label="No longer a hollow pass", color="green", is_good=True)
    slower = _Row("slower", "The kernel takes longer on its device than on base; no gate closes by"
        " it.", mark="suspect", level="warning", color="yellow", is_good=True)
    arithmetic_changed = _Row("arithmetic_changed",
        "Rounding explains the errors on head, but in another arithmetic than on base.",
        mark="not_judged", label="Arithmetic change", plural="s", level="notice", color="cyan",
        is_good=True)
    passed = _Row("passed", "Green on head, and nothing new to say.", mark="pass", color="green",
        is_good=True)
    # fmt: on

    def counted(self, number: int) -> str:
        """Return the class with a number, such as `1 new hollow pass` or `2 new failures`."""
        return f"{number:,} {self.label.lower()}{self.plural if number != 1 else ''}"


LOST = (Verdict.error, Verdict.crash, Verdict.hang)
_JUDGING = tuple(verdict for verdict in Verdict if verdict.judges_kernel)
NEW = (Class.new_failure, Class.new_hollow_pass)


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
    times: tuple[Times, ...] = ()
    """The seconds of its kernel on good devices, as far as they were measured."""

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
        return self.of(*_JUDGING)

    @property
    def answered(self) -> int:
        """The number of runs that are green or red."""
        return self.judged + self.of(Verdict.not_judged)

    @property
    def is_empty(self) -> bool:
        """Return whether nothing ran, and nothing was asked to run."""
        return not (self.counts or self.sick or self.waiting or self.ended_empty)

    def share(self, number: int) -> Rate:
        """Return `number` as a rate among the runs that are green or red."""
        return rate(number, self.answered)

    @property
    def shown(self) -> RunCounts:
        """The results as people read them: the counts in the order of verdicts, without zeros."""
        values = {one.name: getattr(self, one.name) for one in fields(RunCounts)}
        return RunCounts(**{**values, "counts": by_verdict(self.counts)})


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
    change: BuildChange | None = None
    """The comparison of the errors; None where the seeds of a side weren't read."""
    time: TimeChange | None = None
    """Head's seconds a seed on the device over base's; None where a side has too few."""

    def with_findings(self, findings: Iterable[Finding]) -> Classification:
        """Return the same comparison with these findings, put in order."""
        in_order = sorted(findings, key=lambda one: (one.kind.rank, one.verdict.rank))
        return replace(self, findings=tuple(in_order))

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


def file_of(within: str) -> str | None:
    """Return the file of a pytest test ("tests/test_x.py::test_y"); None for any other test."""
    file, mark, _ = within.partition("::")
    is_inside = not file.startswith("/") and ".." not in file.split("/")
    return file if mark and file.endswith(".py") and is_inside else None
