"""Read models of the tests of a comparison: each with its findings, in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import Finding, RunSummary
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import build_cells, comparators_view, words
from gonogo_dashboards.kit.labels import Listed, labels
from gonogo_dashboards.kit.list_rows import details_of, tolerance_of
from gonogo_service.compare.compared import Compared
from gonogo_service.compare.comparing import Comparison
from gonogo_service.compare.sides import SideResults
from gonogo_service.tests.variants import Variant

MAX_JOBS = 8
MAX_DECIDED = 12
"""Tests whose comparators are read, at two or three statements each; the most important first."""
_TIMES = re.compile(r"(?<=\d)x(?=\d)")
"""The sign in a shape of a name: 1x1x32 is shown as 1×1×32."""


@dataclass(frozen=True)
class TestLine:
    """A test of the comparison."""

    __test__ = False  # pytest: not a test case

    name: str
    url: str
    base_url: str | None
    """The test's page on the build of base, and on that of head.

    None where that side has several builds, or where the test did not run there.
    """
    head_url: str | None
    where: str
    kind: str
    findings: tuple[Finding, ...]
    decided: str
    """Comparators that decided the worst seed on head; "" where allclose is the only one."""
    base: str
    head: str
    base_jobs: tuple[str, ...]
    head_jobs: tuple[str, ...]
    check: str | None
    faster: str
    """Its seconds a seed on the device, where it is faster."""
    flips: tuple[str, ...]
    """A line for each output of head that was compared with base's on equal seeds."""


def lines(
    session: Session, shown: Sequence[Compared], comparison: Comparison
) -> tuple[TestLine, ...]:
    """Return the tests that are shown."""
    return tuple(
        _line(test, name, comparison, _decided(session, test) if place < MAX_DECIDED else "")
        for place, (test, name) in enumerate(zip(shown, names_of(shown), strict=True))
    )


def names_of(tests: Sequence[Compared]) -> list[str]:
    """Return the labels of the tests of a list."""
    listed = [
        Listed(
            test.canonical, None, test.name, {"arch": test.place.arch, "board": test.place.board}
        )
        for test in tests
    ]
    return [_TIMES.sub("×", label) for label in labels(listed)]


def _decided(session: Session, test: Compared) -> str:
    """Return what decided the worst seed of a test that does not pass on head."""
    ran = test.head
    if ran is None or not ran.jobs or build_cells.verdict_of(ran.counts) == Verdict.pass_:
        return ""
    return comparators_view.of_job(session, ran.jobs[0], test.canonical.get("tolerance", {}))


def _line(test: Compared, name: str, comparison: Comparison, decided: str) -> TestLine:
    place = test.place

    def on(side: SideResults, ran: RunSummary | None) -> str | None:
        if ran is None or len(side.builds) != 1:
            return None
        variant = Variant(place.test_key, side.branches[place], place.arch, place.board)
        return urls.history(place.test_key, {**variant.place, "build": side.builds[0]})

    details = tolerance_of(test.canonical), details_of(test.canonical), place.arch, place.board
    flips = () if test.pair is None else test.pair.flips
    return TestLine(
        name=name,
        url=comparison.page_of(place),
        base_url=on(comparison.base, test.base),
        head_url=on(comparison.head, test.head),
        where=" · ".join(filter(None, details)),
        kind=test.classification.kind.value,
        findings=tuple(test.classification.findings),
        decided=decided,
        base=_counts(test.base),
        head=_counts(test.head),
        base_jobs=_jobs(test.base),
        head_jobs=_jobs(test.head),
        check=test.check,
        faster=test.faster,
        flips=tuple(f"{output.output}: {output.words}" for output in flips),
    )


def _counts(ran: RunSummary | None) -> str:
    if ran is None:
        return "not run"
    verdict_counts = ran.shown.counts
    parts = [
        f"{number:,} {words.inline(words.mark(name).label)}"
        for name, number in verdict_counts.items()
    ]
    if ran.not_judged_red:
        parts.append(f"of these {ran.not_judged_red:,} red")
    if ran.waiting:
        parts.append(f"{words.count(ran.waiting, 'job')} unfinished")
    parts += [f"{number:,} left out: {device} was sick" for device, number in ran.sick.items()]
    parts += [
        f"{words.count(number, 'job')} without a result: {why}"
        for why, number in ran.ended_empty.items()
    ]
    return ", ".join(parts) or "nothing"


def _jobs(ran: RunSummary | None) -> tuple[str, ...]:
    return () if ran is None else tuple(urls.job(job) for job in ran.jobs[:MAX_JOBS])
