"""Read model of the page of a commit against its base: every test with its class, the evidence in
words, and the gate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Class, Finding, RunSummary
from gonogo.flakiness.gating import Gate
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.list_rows import tolerance_of
from gonogo_storage.comparison import comparing, matrices
from gonogo_storage.comparison.comparing import Compared, Comparison
from gonogo_storage.comparison.comparison_side import SideResults
from gonogo_storage.comparison.matrices import BuildRecord
from gonogo_storage.db.encoding import timestamp

MAX_JOBS = 8
MAX_CHOICES = 100
MAX_LINES = 6
GATES = {0: "may pass", 1: "may not pass", 3: "can't be said yet"}
GATE_VERDICTS = {0: "pass", 1: "fail", 3: "inconclusive"}


@dataclass(frozen=True)
class SideLine:
    """Base or head: what was asked for, and what was found."""

    asked: str
    builds: tuple[str, ...]
    run: str | None
    url: str | None
    jobs: int
    waiting: int
    more_jobs: bool


@dataclass(frozen=True)
class ClassCount:
    """How many tests are of a class."""

    kind: str
    words: str
    """With the number, "2 new failures"."""
    sentence: str
    verdict: str
    tests: int


@dataclass(frozen=True)
class SaidLine:
    """One thing that is said of a test."""

    kind: str
    label: str
    sentence: str
    verdict: str
    words: str
    flag_url: str | None
    change: str | None
    """How its error compares with base's, in words."""


@dataclass(frozen=True)
class TestLine:
    """A test of the comparison."""

    __test__ = False  # pytest: not a test case

    name: str
    url: str
    base_url: str | None
    """The test's page on base's build, and on head's; None where that side has several builds, or
    it did not run there."""
    head_url: str | None
    where: str
    kind: str
    said: tuple[SaidLine, ...]
    base: str
    head: str
    base_jobs: tuple[str, ...]
    head_jobs: tuple[str, ...]
    check: str | None


@dataclass(frozen=True)
class PairLine:
    """A build and the one before it."""

    branch: str
    base: str
    head: str
    url: str


@dataclass(frozen=True)
class ComparisonView:
    """The page. Before anything is asked `asked` is False, and the rest empty."""

    asked: bool
    base: SideLine | None
    head: SideLine | None
    complete: bool
    gate: str
    gate_verdict: str
    gate_words: str
    code: int
    words: str
    counts: tuple[ClassCount, ...]
    tests: tuple[TestLine, ...]
    more: int
    more_url: str | None
    swap_url: str | None
    api: str
    choices: tuple[str, ...]
    """Builds to choose from, the one that ran last first."""
    pairs: tuple[PairLine, ...]
    """Before anything is asked: the newest builds of each branch against the ones before them."""
    at: str | None


def view(session: Session, base: str, head: str, limit: int, now: datetime) -> ComparisonView:
    """The comparison, or the form alone while base or head is missing. Raises FieldError as
    gonogo_storage.comparison.comparing.compare does.
    """
    base, head = base.strip(), head.strip()
    builds = matrices.builds(session)
    newest = sorted(builds, key=lambda each: each.newest_job, reverse=True)
    choices = tuple(each.name for each in newest[:MAX_CHOICES])
    if not (base and head):
        return ComparisonView(
            asked=False, base=_asked(base), head=_asked(head), complete=True, gate="", gate_verdict="", gate_words="", code=0, words="",
            counts=(), tests=(), more=0, more_url=None, swap_url=None, api=urls.COMPARE_API, choices=choices, pairs=_pairs(builds),
            at=timestamp(now),
        )  # fmt: skip
    found = comparing.compare(session, base, head, now=now)
    gate: Gate = found.gate()
    more = max(len(found.tests) - limit, 0)
    return ComparisonView(
        asked=True,
        base=_side(found.base),
        head=_side(found.head),
        complete=found.complete,
        gate=GATES[gate.code],
        gate_verdict=GATE_VERDICTS[gate.code],
        gate_words=gate.words,
        code=gate.code,
        words=found.words,
        counts=tuple(_count(Class(kind), number) for kind, number in found.counts.items()),
        tests=tuple(_line(each, found) for each in found.tests[:limit]),
        more=more,
        more_url=urls.compare(base, head, limit=str(urls.MOST_LENGTH))
        if more and limit < urls.MOST_LENGTH
        else None,
        swap_url=urls.compare(head, base),
        api=urls.COMPARE_API,
        choices=choices,
        pairs=(),
        at=timestamp(now),
    )


def _asked(text: str) -> SideLine | None:
    return SideLine(text, (), None, None, 0, 0, False) if text else None


def _side(told: SideResults) -> SideLine:
    url = urls.run(told.side.run) if told.side.run else urls.jobs({"build": told.side.build})
    return SideLine(
        told.side.text, told.builds, told.side.run, url, told.jobs, told.waiting, told.more_jobs
    )


def _count(kind: Class, number: int) -> ClassCount:
    return ClassCount(
        kind.value, kind.counted(number), kind.sentence, words.CLASS_VERDICTS[kind], number
    )


def _pairs(builds: Sequence[BuildRecord]) -> tuple[PairLine, ...]:
    """Of each branch the newest two pairs, the branch that ran last first. builds: in their order."""
    branches: dict[str, list[BuildRecord]] = {}
    for build in builds:
        branches.setdefault(build.branch, []).append(build)
    found = []
    for branch, own in sorted(
        branches.items(), key=lambda item: max(each.newest_job for each in item[1]), reverse=True
    )[:MAX_LINES]:
        for before, after in list(pairwise(each.name for each in own[-3:]))[::-1]:
            found.append(PairLine(branch, before, after, urls.compare(before, after)))
    return tuple(found)


def _line(test: Compared, found: Comparison) -> TestLine:
    place = test.place
    url = urls.history(place.test_key, {"arch": place.arch, "board": place.board})

    def on(side: SideResults, ran: RunSummary | None) -> str | None:
        if ran is None or len(side.builds) != 1:
            return None
        return (
            url
            + urls.further("branch", side.branches[place])
            + urls.further("build", side.builds[0])
        )

    return TestLine(
        name=test.name,
        url=url,
        base_url=on(found.base, test.base),
        head_url=on(found.head, test.head),
        where=f"{tolerance_of(test.canonical)} · {place.arch} · {place.board}",
        kind=test.classification.kind.value,
        said=tuple(_said(each) for each in test.classification.findings),
        base=_counts(test.base),
        head=_counts(test.head),
        base_jobs=_jobs(test.base),
        head_jobs=_jobs(test.head),
        check=test.check,
    )


def _said(finding: Finding) -> SaidLine:
    flag: Mapping[str, Any] | None = finding.evidence.get("flag")
    change: Mapping[str, Any] | None = finding.evidence.get("change")
    return SaidLine(
        finding.kind.value, finding.kind.words, finding.kind.sentence, words.CLASS_VERDICTS[finding.kind], finding.words,
        urls.flag(flag["id"]) if flag else None, str(change["words"]) if change else None,
    )  # fmt: skip


def _counts(ran: RunSummary | None) -> str:
    if ran is None:
        return "not run"
    said = ran.to_json()["counts"]
    parts = [f"{number:,} {words.mark(name).label}" for name, number in said.items()]
    if ran.not_judged_red:
        parts.append(f"of these {ran.not_judged_red:,} red")
    if ran.waiting:
        parts.append(f"{words.count(ran.waiting, 'job')} not over")
    parts += [f"{number:,} left out: {device} was ill" for device, number in ran.sick.items()]
    parts += [
        f"{words.count(number, 'job')} without a result: {why}"
        for why, number in ran.ended_empty.items()
    ]
    return ", ".join(parts) or "nothing"


def _jobs(ran: RunSummary | None) -> tuple[str, ...]:
    return () if ran is None else tuple(urls.job(each) for each in ran.jobs[:MAX_JOBS])
