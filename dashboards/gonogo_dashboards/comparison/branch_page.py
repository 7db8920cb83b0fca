"""Read model of "My branch": a build, run or commit beside the last builds of the main branch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from gonogo.flakiness.classes import Class, Finding
from gonogo.flakiness.masking import Change
from gonogo.reports.check_line import check_line
from gonogo.spec.described import Described
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.comparison.compared_tests import names_of
from gonogo_dashboards.kit import build_cells, words
from gonogo_service.compare import branches, comparing
from gonogo_service.compare.branches import Beside
from gonogo_service.compare.compared import Compared
from gonogo_service.compare.sides import Place
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests.matrices import BuildRecord

MAX_LINES, MAX_PICKS = 200, 20
SAME, ALIKE, ABSENT = "same", "alike", "absent"
"""Kinds of tests without a line: the same bits, nothing new where no bits compare, not run."""
_SENTENCES = {
    SAME: ("test is the same to the bit", "tests are the same to the bit"),
    ALIKE: (
        "test has nothing new, and no common seed to compare",
        "tests have nothing new, and no common seed to compare",
    ),
    ABSENT: ("test did not run here", "tests did not run here"),
}
_LABELS = {
    Change.unchanged: "same bits",
    Change.right: "other bits, right",
    Change.still_wrong: "same error",
    Change.fix_masked: "same error, masked",
    Change.wrong_otherwise: "other error",
    Change.broken: "worse",
    Change.fixed: "fixed",
}
"""The words for a change of the errors beside a build."""
_LEVELS = ("failure", "warning", "notice", None)
_KNOWN = (Class.passed, Class.broken_on_base, Class.known_flaky, Class.known_hollow, Class.waived)


@dataclass(frozen=True)
class Cell:
    """A test on a build of the branch: its verdict there, and how head differs from it."""

    build: str
    verdict: str
    hollow: bool
    change: Described | None
    """The change of the errors; of a test without numbers its class; None: it did not run."""
    label: str
    words: str
    """The comparison in one line; "" where there is none."""


@dataclass(frozen=True)
class BranchLine:
    """A test that differs from the newest build of the branch that ran it."""

    name: str
    url: str
    where: str
    verdict: str
    hollow: bool
    findings: tuple[Finding, ...]
    """All findings but a plain pass."""
    faster: str
    """Its seconds a seed on the device, where it is faster."""
    cells: tuple[Cell, ...]
    """One for each build of the branch, the newest last."""
    check: str
    """The command that shows the difference; "" for none."""


@dataclass(frozen=True, kw_only=True)
class BranchView:
    """The page; without a request `head` is "", and the rest is empty."""

    head: str
    builds: tuple[str, ...] = ()
    """The builds of head"""
    run: str | None = None
    branch: str | None = None
    branches: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    """The builds of the branch, the newest last"""
    complete: bool = True
    equal: Mapping[str, int] = field(default_factory=dict)
    """Tests without a line, by kind: SAME, ALIKE, ABSENT"""
    summary: tuple[str, ...] = ()
    items: tuple[BranchLine, ...] = ()
    """The tests that differ, the most important first"""
    more: int = 0
    picks: tuple[BuildRecord, ...] = ()
    """Without a request: builds to choose from, the one that ran last first"""
    at: str | None


def view(session: Session, head: str, branch: str, now: datetime) -> BranchView:
    """Return the page, or the form alone without `head`. Raises FieldError for an unknown one."""
    head, at = head.strip(), timestamp(now)
    if not head:
        picks = branches.others(session, MAX_PICKS)
        return BranchView(head="", picks=tuple(picks), at=at)
    beside = branches.read(session, head, branch.strip() or None)
    frame = BranchView(
        head=head,
        builds=beside.head.builds,
        run=beside.head.run,
        branch=beside.branch,
        branches=beside.branches,
        at=at,
    )
    if not beside.bases:
        return frame
    newest, by_place = _compare(session, beside, now)
    tests = _newest(by_place)
    kinds = {place: _kind(test) for place, test in tests.items()}
    differing = [test for place, test in tests.items() if kinds[place] is None]
    differing.sort(key=_urgency)
    shown = comparing.with_checks(session, newest, differing[:MAX_LINES])
    equal = Counter(filter(None, kinds.values()))
    same = (test.change for place, test in tests.items() if kinds[place] is SAME)
    seeds = sum(change.common for change in same if change)
    return replace(
        frame,
        beside=tuple(one.requested for one in beside.bases),
        complete=newest.complete,
        equal=dict(equal),
        summary=_summary(len(differing), equal, seeds),
        items=tuple(
            _line(test, name, by_place, newest)
            for test, name in zip(shown, names_of(shown), strict=True)
        ),
        more=max(0, len(differing) - MAX_LINES),
    )


def _compare(
    session: Session, beside: Beside, now: datetime
) -> tuple[comparing.Comparison, list[dict[Place, Compared]]]:
    """Return the comparison with the newest build, and the tests by place of each, newest last.

    Older builds are compared only for tests that have a line, or that the newest didn't run.
    """
    *older, last = beside.bases
    compare = partial(comparing.compare_each, session, now=now, every_record=True)
    (newest,) = compare([last], beside.head)
    settled = {test.place for test in newest.tests if _ran_on(test) and _kind(test) is not None}
    others = compare([one.without(settled) for one in older], beside.head.without(settled))
    return newest, [{test.place: test for test in one.tests} for one in (*others, newest)]


def _ran_on(test: Compared) -> bool:
    """Return whether the base of a comparison ran a test."""
    return test.base is not None and not test.base.is_empty


def _newest(by_place: Sequence[Mapping[Place, Compared]]) -> dict[Place, Compared]:
    """Return each test as compared with the newest build that ran it; by_place: newest last."""
    tests: dict[Place, Compared] = {}
    for of_build in by_place:
        tests |= {
            place: test for place, test in of_build.items() if place not in tests or _ran_on(test)
        }
    return tests


def _kind(test: Compared) -> str | None:
    """Return the kind of a test without a line; None: it differs."""
    if test.classification.kind is Class.not_run:
        return ABSENT
    is_known = all(finding.kind in _KNOWN for finding in test.classification.findings)
    if not is_known or test.faster:
        return None
    change = test.change
    if change is not None and change.change is Change.unchanged:
        return SAME
    return ALIKE if _label(test) is None else None


def _label(test: Compared) -> str | None:
    """Return the words for the change of the errors; None: no numbers of both were compared."""
    change = test.change
    if change is None or (change.change is Change.right and not change.common):
        return None
    return _LABELS.get(change.change)


def _urgency(test: Compared) -> tuple[int, int, bool, str]:
    """Return a sort key: the loudest first, then other seconds, then other bits."""
    kind = test.classification.kind
    return _LEVELS.index(kind.level), kind.rank, not test.faster, test.name


def _summary(differing: int, equal: Mapping[str, int], seeds: int) -> tuple[str, ...]:
    """Return the counts in sentences; seeds: those of tests with the same bits."""
    counted = [f"{words.count(differing, 'test')} {'differs' if differing == 1 else 'differ'}"]
    counted += [
        f"{number:,} {_SENTENCES[kind][number != 1]}"
        + (f", on {words.count(seeds, 'common seed')}" if kind is SAME else "")
        for kind in _SENTENCES
        if (number := equal.get(kind, 0))
    ]
    return tuple(f"{sentence}." for sentence in counted)


def _line(
    test: Compared,
    name: str,
    by_place: Sequence[Mapping[Place, Compared]],
    newest: comparing.Comparison,
) -> BranchLine:
    place, head = test.place, test.head
    assert head is not None
    findings = test.classification.findings
    return BranchLine(
        name=name,
        url=newest.page_of(place),
        where=f"{place.arch} {place.board}",
        verdict=build_cells.verdict_of(head.counts),
        hollow=bool(head.counts.get(build_cells.HOLLOW)),
        findings=tuple(one for one in findings if one.kind is not Class.passed),
        faster=test.faster,
        cells=tuple(_cell(one.get(place)) for one in by_place),
        check=test.check or _both(test, newest),
    )


def _cell(test: Compared | None) -> Cell:
    ran = None if test is None else test.base
    if test is None or ran is None:
        return Cell("", Verdict.not_run, False, None, "", "")
    change, label, kind = test.change, _label(test), test.classification.kind
    there = ran.build, build_cells.verdict_of(ran.counts), bool(ran.counts.get(build_cells.HOLLOW))
    if change is None or label is None:
        label = "nothing new" if kind is Class.passed else words.inline(kind.label)
        return Cell(*there, kind, label, test.classification.words)
    return Cell(*there, change.change, label, change.words)


def _both(test: Compared, newest: comparing.Comparison) -> str:
    """Return the command that compares the bits of a seed; "" where no bits differ."""
    change, facts = test.change, newest.head.facts.get(test.place)
    if change is None or change.change is Change.unchanged or not change.common or not facts:
        return ""
    records = (side.record.seeds if side and side.record else {} for side in (test.base, test.head))
    return check_line(
        test.canonical,
        build=facts[0].build,
        executor=facts[0].executor,
        seed=min(set.intersection(*map(set, records))),
        output="",
        reference=change.before,
        context=facts[0].requested_context,
    )
