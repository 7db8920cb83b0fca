"""Read models of the list of tests: each with its last builds, its failure rates and its grade."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Stability
from gonogo.spec.executors import EMULATOR
from gonogo_dashboards.kit import build_cells, commands, ranges, words
from gonogo_dashboards.kit.build_cells import RecentBuilds
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_dashboards.kit.list_view import ListView, filters_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests import axis_changes, entry_names, recent_builds, standings, test_list
from gonogo_service.tests.recent_builds import FailureRate
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.test_list import ListedTest, TestFilter
from gonogo_service.tests.variants import MAIN, Variant

FILTERS = ("kernel", "search", "standing", "sort", ranges.PARAMETER)
SORTS = {test_list.ATTENTION: "Worst first", test_list.NEWEST: "Newest first"}
BUILDS = 20
"""The last builds that a row shows."""
MAX_VARIANTS = 3
"""The variants of a test whose last builds are read."""


@dataclass(frozen=True)
class Chip(Choice):
    """A filter to choose, and the tests that it leaves; choosing it again takes it back."""

    verdict: str
    sentence: str
    count: int


@dataclass(frozen=True)
class TestLine:
    """A test in the list; the verdict is that of the newest build of the variant that is shown."""

    __test__ = False  # pytest: not a test case

    key: str
    url: str
    kernel: str
    shape: str
    tolerance: str
    details: str
    """The suite's name for it, and its fields that differ from the default."""
    where: str
    """The variant that is shown: the one that needs attention most, else main's, else the last."""
    others: int
    """Its other variants."""
    badges: tuple[str, ...]
    recent: RecentBuilds
    week: FailureRate
    month: FailureRate
    flags: int
    verdict: str | None
    verdict_job: str | None
    verdict_build: str | None
    hollow: bool
    """Whether that build has hollow seeds, also besides a worse verdict."""
    job: str | None
    """The test's newest job, which may be of an older build or of a bisection."""
    build: str | None
    state: JobState | None
    at: datetime | None


@dataclass(frozen=True)
class TestsView(ListView):
    """A page of the list of tests."""

    __test__ = False  # pytest: not a test case

    standings: tuple[Chip, ...]
    sorts: tuple[Choice, ...]
    range: ranges.Range
    start: str


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> TestsView:
    """Return a page of tests, the worst first. Raises BadCursor."""
    given = filters_of(filters, FILTERS, {"standing": Kind})
    sort = given.get("sort")
    sort = sort if sort in test_list.SORTS else test_list.ATTENTION

    def address(name: str, value: str | None) -> str:
        return urls.catalogue({**given, name: value})

    period = ranges.of(given, now, lambda value: address(ranges.PARAMETER, value))
    start, in_days = period.since or now - standings.WINDOW, period.since is not None
    chosen = TestFilter(
        given.get("kernel"),
        given.get("search"),
        Kind(given["standing"]) if "standing" in given else None,
        period.since,
        standings.read(session, since=start, every_build=in_days),
    )
    page = test_list.list_(session, chosen, sort=sort, limit=limit, cursor=cursor or None)
    counts = test_list.counts(session, chosen)
    return TestsView(
        items=_lines(session, page.items, chosen, now),
        filters=given,
        next=page.next,
        next_url=urls.catalogue(given, cursor=page.next) if page.next else None,
        at=timestamp(now),
        standings=tuple(
            Chip(
                kind,
                kind.label,
                address("standing", None if kind is chosen.kind else kind),
                kind is chosen.kind,
                kind.mark,
                (in_days and kind.in_days) or kind.sentence,
                counts[kind],
            )
            for kind in Kind
        ),
        sorts=tuple(
            Choice(
                value,
                label,
                address("sort", None if value == test_list.ATTENTION else value),
                value == sort,
            )
            for value, label in SORTS.items()
        ),
        range=period,
        start=commands.START,
    )


def _lines(
    session: Session, tests: Sequence[ListedTest], filters: TestFilter, now: datetime
) -> tuple[TestLine, ...]:
    """Return the lines of these tests; all that they show is read together."""
    keys = {test.spec.key for test in tests}
    entries = entry_names.latest(session, keys)
    urgent = {
        test.spec.key: sorted(test.variants, key=lambda one: _attention(one, test, filters))
        for test in tests
    }
    candidates = [one for variants in urgent.values() for one in variants[-MAX_VARIANTS:]]
    results = recent_builds.results(session, candidates, BUILDS, since=filters.since)
    rates = recent_builds.failure_rates(session, keys, now)
    shown: dict[str, Variant] = {}
    for test in tests:
        ran = [
            (_attention(one, test, filters), max(build.at for build in results[one]), one)
            for one in urgent[test.spec.key]
            if results.get(one)
        ]
        if ran:
            shown[test.spec.key] = max(ran)[-1]
    strips = {key: build_cells.places(results[variant]) for key, variant in shown.items()}
    changes = axis_changes.of_tests(session, strips)

    def line(test: ListedTest) -> TestLine:
        spec, job = test.spec, test.job
        variant, of_test = shown.get(spec.key), changes.get(spec.key, ())
        builds = results[variant] if variant else ()
        last = next((build for build in reversed(builds) if build.verdict), None)
        grade = test.grades.get(variant) if variant else None
        axes = (grade.stability, grade.sharpness) if grade else ()
        week, month = rates[variant] if variant in rates else (FailureRate(), FailureRate())
        return TestLine(
            key=spec.key,
            url=urls.history(spec.key, variant.place if variant else None),
            kernel=spec.kernel,
            shape=shape_of(spec.test),
            tolerance=tolerance_of(spec.test),
            details=details_of(spec.test, entries.get(spec.key)),
            where=words.variant_of(variant) if variant else "",
            others=max(0, len(test.variants) - 1),
            badges=tuple(words.GRADES[axis] for axis in axes),
            recent=build_cells.recent(builds, of_test),
            week=week,
            month=month,
            flags=test.open_flags,
            verdict=last.verdict if last else None,
            verdict_job=last.job if last else None,
            verdict_build=last.build if last else None,
            hollow=last is not None and last.hollow,
            job=job.id if job else None,
            build=job.build if job else None,
            state=job.state if job else None,
            at=job.created_at if job else None,
        )

    return tuple(map(line, tests))


def _attention(
    variant: Variant, test: ListedTest, filters: TestFilter
) -> tuple[bool, int, bool, bool, bool]:
    """Return how much a variant needs attention, as the list's filter and its order see it.

    Among equal ones that of the main branch counts more; the emulator's builds, which are no
    series, come last.
    """
    kind, grade, standing = filters.kind, test.grades.get(variant), filters.standings.get(variant)
    counts = kind is not None and getattr(standing, kind, False)
    graded = grade is not None and kind in (grade.stability, grade.sharpness)
    marginal = grade is not None and grade.stability == Stability.marginal
    urgency = standing.urgency if standing else 0
    place = variant.branch in MAIN, variant.branch != EMULATOR
    return counts or graded, urgency, marginal, *place
