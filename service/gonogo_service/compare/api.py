"""Comparison of a commit with its base, for CI.

Every test is classified with its evidence. The gate says whether the commit may pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Query

from gonogo import urls
from gonogo.flakiness.arithmetic_changes import ArithmeticChange
from gonogo.flakiness.classes import Class, OpenFlag, RunCounts
from gonogo.flakiness.device_times import TimeChange
from gonogo.flakiness.flag_kinds import FlagKind
from gonogo.flakiness.gating import FailOn, GateAnswer
from gonogo.flakiness.masking import BuildChange
from gonogo.flakiness.rates import Rate
from gonogo.flakiness.waivers import WaiverOfTest
from gonogo.spec.verdicts import Verdict
from gonogo_service.compare import comparing
from gonogo_service.compare.compared import BuildPair, Compared
from gonogo_service.compare.sides import SideCounts
from gonogo_service.kit.answers import MAX_FILTER, Cursor, Limit, make_router
from gonogo_service.kit.database import paging
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.people.context import Ctx, Reader

router = make_router("compare")
NAMES = "a build, a run ID, `build@run`, or the commit of a registered build"
Base = Annotated[
    str, Query(min_length=1, max_length=MAX_FILTER, description=f"Before the commit: {NAMES}")
]
Head = Annotated[
    str, Query(min_length=1, max_length=MAX_FILTER, description=f"With the commit: {NAMES}")
]


@dataclass(frozen=True)
class FlagOfTest(OpenFlag):
    """An unresolved flag of the test."""

    kind: FlagKind


@dataclass(frozen=True)
class FindingEvidence:
    """The evidence of a finding; fields that say nothing about it are left out."""

    head: Rate | int | None = None
    """The share of head's runs that have the finding; of lost runs their number"""
    base: Rate | RunCounts | int | None = None
    """The same on base; if nothing ran on head, all results of base"""
    p: float | None = None
    """Fisher's test, where head is worse"""
    policy: str | None = None
    flag: FlagOfTest | None = None
    change: BuildChange | None = None
    """The comparison of the errors"""
    arithmetic: list[ArithmeticChange] | None = None
    sick: dict[str, int] | None = None
    """Device -> runs that are left out, because it was sick"""
    ended_empty: dict[str, int] | None = None
    """Reason -> jobs that ended without any result"""
    time: TimeChange | None = None
    """The seconds a seed on the device"""
    waiver: WaiverOfTest | None = None
    otherwise: Class | None = None
    """The class without the waiver"""


@dataclass(frozen=True)
class FindingOut:
    """A finding about a test."""

    class_: Class
    verdict: Verdict
    sentence: str
    words: str
    new: bool
    """Whether base is known not to have it"""
    evidence: Annotated[Mapping[str, Any], Documented(FindingEvidence)]


@dataclass(frozen=True)
class ComparedOut:
    """A test of a comparison; `class`, `verdict` and `words` are those of its first finding."""

    name: str
    test_key: str
    workload_key: str
    kernel: str
    test: dict[str, Any]
    within: str | None
    """Test of a gtest or pytest selection"""
    arch: str
    board: str
    context: str
    class_: Class
    verdict: Verdict
    words: str
    findings: list[FindingOut]
    base: RunCounts | None
    head: RunCounts | None
    time: TimeChange | None
    """Head's seconds a seed on the device over base's, where both sides have enough"""
    check: str | None
    """Command that runs the worst seed again"""
    pair: BuildPair | None
    """Head's build against base's on equal seeds, if a job compared them"""
    links: dict[Literal["test", "head", "base"], str | None]
    """Pages of the test, and of its newest job on head and on base"""


@dataclass(frozen=True)
class ComparisonOut:
    """A page of tests, the most important first, with the result for all tests."""

    base: SideCounts
    head: SideCounts
    complete: bool
    """Whether every job of both sides is over"""
    counts: dict[str, int]
    """Tests by class"""
    words: str
    tests: int
    policy: str
    gate: GateAnswer
    links: dict[Literal["page"], str]
    items: list[ComparedOut]
    next: str | None


@router.get("/compare", summary="Classify a commit's tests for CI")
def compare(
    context: Ctx,
    _who: Reader,
    base: Base,
    head: Head,
    fail_on: FailOn = FailOn.new,
    class_: Annotated[
        Class | None, Query(alias="class", description="Only tests of this class")
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> ComparisonOut:
    """Classify every test of head against base.

    Classes: waived, infrastructure, broken on base, known flaky, unknown (base was not run), new
    failure; false alarm; new and known hollow passes; fixed and no longer hollow. `counts` and
    `gate` cover all tests, whatever `class` and `limit` are.
    """
    start = (paging.numbers(cursor, 1) or (0,))[0]
    with context.reading() as session:
        comparison = comparing.compare(session, base, head)
        tests = comparison.tests if class_ is None else comparison.of(class_)
        shown = comparing.with_checks(session, comparison, tests[start : start + limit])
    return from_object(
        ComparisonOut,
        comparison,
        base=from_object(SideCounts, comparison.base),
        head=from_object(SideCounts, comparison.head),
        tests=len(comparison.tests),
        gate=comparison.gate(fail_on),
        links={"page": urls.compare(base, head)},
        items=[_compared(test, comparison.page_of(test.place)) for test in shown],
        next=str(start + limit) if start + limit < len(tests) else None,
    )


def _compared(test: Compared, page: str) -> ComparedOut:
    classification = test.classification
    return from_object(
        ComparedOut,
        test,
        test.place,
        classification,
        test=test.canonical,
        within=test.place.within or None,
        class_=classification.kind,
        findings=[
            from_object(FindingOut, finding, class_=finding.kind, sentence=finding.kind.sentence)
            for finding in classification.findings
        ],
        base=None if test.base is None else test.base.shown,
        head=None if test.head is None else test.head.shown,
        links={
            "test": page,
            "head": urls.job(test.head.jobs[0]) if test.head and test.head.jobs else None,
            "base": urls.job(test.base.jobs[0]) if test.base and test.base.jobs else None,
        },
    )
