"""Read model of the page of a commit against its base: tests with their classes, and the gate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import LOST, Class, RunSummary
from gonogo.flakiness.gating import LABELS
from gonogo.reports.red_hollow import RED
from gonogo.spec.executors import EMULATOR
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.comparison import compared_tests
from gonogo_dashboards.comparison.compared_tests import TestLine
from gonogo_dashboards.kit import build_cells, words
from gonogo_dashboards.kit.list_rows import Count
from gonogo_service.compare import comparing
from gonogo_service.compare.sides import SideCounts
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.tests import matrices
from gonogo_service.tests.matrices import BuildRecord
from gonogo_service.tests.standings import Kind

MAX_CHOICES = 100
MAX_PICKS = 40
MAX_LINES = 6
GATE_VERDICTS = {0: "pass", 1: "fail", 3: "inconclusive"}


@dataclass(frozen=True)
class Pair:
    """A build and the one before it."""

    branch: str
    base: str
    head: str
    at: datetime
    """When the newest job of head was submitted."""


@dataclass(frozen=True)
class Delta:
    """A number of tests on base and on head."""

    label: str
    verdict: str
    base: int
    head: int

    @property
    def change(self) -> int:
        """Return the difference."""
        return self.head - self.base


@dataclass(frozen=True)
class SideBar:
    """The tests of a side by their worst verdict, as parts of a bar."""

    name: str
    counts: tuple[Count, ...]
    tests: int
    words: str


@dataclass(frozen=True, kw_only=True)
class ComparisonView:
    """The page; without a request `requested` is False, and the rest is empty."""

    requested: bool
    base: SideCounts | None
    head: SideCounts | None
    complete: bool = True
    gate: str = ""
    gate_verdict: str = ""
    code: int = 0
    words: str = ""
    counts: tuple[tuple[Class, int], ...] = ()
    """The number of tests of each class"""
    tests: tuple[TestLine, ...] = ()
    more: int = 0
    more_url: str | None = None
    choices: tuple[str, ...]
    """Builds to choose from, the one that ran last first."""
    picks: tuple[BuildRecord, ...] = ()
    """Without a request: the same with what people recognize them by, fewer of them."""
    deltas: tuple[Delta, ...] = ()
    bars: tuple[SideBar, ...] = ()
    pairs: tuple[Pair, ...] = ()
    """Without a request: the newest builds of each branch, each against the build before it."""
    at: str | None

    @property
    def items(self) -> tuple[TestLine, ...]:
        """Return the lines of its CSV."""
        return self.tests

    @property
    def next(self) -> str | None:
        """Return where all tests are; None where none is left out."""
        return urls.COMPARE_API if self.more else None


def view(session: Session, base: str, head: str, limit: int, now: datetime) -> ComparisonView:
    """Return the comparison, or the form alone while base or head is missing.

    Raises FieldError as gonogo_service.compare.comparing.compare does.
    """
    base, head = base.strip(), head.strip()
    builds = matrices.builds(session)
    newest = sorted(builds, key=_order, reverse=True)
    frame: dict[str, Any] = {
        "choices": tuple(build.name for build in newest[:MAX_CHOICES]),
        "at": timestamp(now),
    }
    if not (base and head):
        return ComparisonView(
            **frame,
            requested=False,
            base=_unread(base),
            head=_unread(head),
            picks=tuple(newest[:MAX_PICKS]),
            pairs=_pairs(builds),
        )
    comparison = comparing.compare(session, base, head, now=now)
    gate = comparison.gate()
    more = max(len(comparison.tests) - limit, 0)
    shown = comparing.with_checks(session, comparison, comparison.tests[:limit])
    can_show_more = more and limit < urls.MAX_LENGTH
    both = [
        _ran([test.base for test in comparison.tests]),
        _ran([test.head for test in comparison.tests]),
    ]
    return ComparisonView(
        **frame,
        requested=True,
        base=from_object(SideCounts, comparison.base),
        head=from_object(SideCounts, comparison.head),
        complete=comparison.complete,
        gate=LABELS[gate.code] + (f": {gate.words}" if gate.code else ""),
        gate_verdict=GATE_VERDICTS[gate.code],
        code=gate.code,
        words=comparison.words,
        counts=tuple((Class(kind), number) for kind, number in comparison.counts.items()),
        tests=compared_tests.lines(session, shown, comparison),
        more=more,
        more_url=urls.compare(base, head, limit=str(urls.MAX_LENGTH)) if can_show_more else None,
        deltas=_deltas(both),
        bars=tuple(_bar(name, side) for name, side in zip(("Base", "Head"), both, strict=True)),
    )


def _ran(runs: Sequence[RunSummary | None]) -> list[RunSummary]:
    """Return the tests that ran."""
    return [run for run in runs if run is not None and any(run.counts.values())]


def _deltas(both: Sequence[Sequence[RunSummary]]) -> tuple[Delta, ...]:
    """Return the differences of base and head: the tests that have such a seed."""

    def having(*verdicts: Verdict) -> list[int]:
        return [sum(run.of(*verdicts) > 0 for run in side) for side in both]

    red = [sum(run.of(*RED) + run.not_judged_red > 0 for run in side) for side in both]
    return (
        Delta("Hollow", "pass_by_tolerance", *having(build_cells.HOLLOW)),
        Delta("Red", "fail", *red),
        Delta(Kind.lost.label, Kind.lost.mark, *having(*LOST)),
        Delta("Tests that ran", "not_judged", *map(len, both)),
    )


def _bar(name: str, tests: Sequence[RunSummary]) -> SideBar:
    parts = _parts(tests)
    text = ", ".join(f"{part.count:,} {part.label}" for part in parts) or "nothing ran"
    return SideBar(name, parts, sum(part.count for part in parts), text)


def _parts(tests: Sequence[RunSummary]) -> tuple[Count, ...]:
    """Return the parts of a bar: tests by worst verdict, those that are also hollow apart."""
    verdicts = [(build_cells.verdict_of(run.counts), run) for run in tests]
    only = build_cells.HOLLOW
    numbers = Counter((one, run.of(only) > 0 and one != only) for one, run in verdicts)
    parts: list[Count] = []
    for verdict in words.ordered({verdict for verdict, _ in numbers}):
        looks = words.mark(verdict)
        for hollow in (True, False):
            number = numbers[verdict, hollow]
            if number:
                label = words.inline(looks.label) + (" and hollow" if hollow else "")
                share, start = number / len(tests), sum(part.share for part in parts)
                parts.append(Count(verdict, label, looks.sign, number, share, start, hollow))
    return tuple(parts)


def _unread(text: str) -> SideCounts | None:
    return SideCounts(text, None, (), 0, 0, more_jobs=False) if text else None


def _pairs(builds: Sequence[BuildRecord]) -> tuple[Pair, ...]:
    """Return the newest two pairs of each branch, the branch that ran last first.

    builds: in their order.
    """
    branches: dict[str, list[BuildRecord]] = {}
    for build in builds:
        branches.setdefault(build.branch, []).append(build)
    pairs = []
    latest = sorted(branches.values(), key=lambda some: max(map(_order, some)), reverse=True)
    for of_branch in latest[:MAX_LINES]:
        for before, after in list(pairwise(of_branch[-3:]))[::-1]:
            pairs.append(Pair(after.branch, before.name, after.name, after.at))
    return tuple(pairs)


def _order(build: BuildRecord) -> tuple[bool, str]:
    """Return a sort key: the build that ran last is largest; the emulator's are no series."""
    return build.branch != EMULATOR, build.newest_job
