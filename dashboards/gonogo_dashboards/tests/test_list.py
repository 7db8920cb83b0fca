"""Read models of the list of tests: each with its last builds, its failure rates and its grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.executors import EMULATOR
from gonogo_dashboards.kit import build_cells, commands, ranges, words
from gonogo_dashboards.kit.build_cells import RecentBuilds
from gonogo_dashboards.kit.evidence_view import percent
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_dashboards.tests.test_lines import Badge, badges
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests import axis_changes, recent_builds, standings, test_list
from gonogo_service.tests.axis_changes import Annotation
from gonogo_service.tests.recent_builds import BuildResult, FailureRate
from gonogo_service.tests.standings import FLAKY, HOLLOW, RED
from gonogo_service.tests.test_list import TestFilter, TestRecord
from gonogo_service.tests.variants import Variant

FILTERS = ("kernel", "search", "standing", "sort", ranges.PARAMETER)
BUILDS = 20
"""The last builds that a row shows."""
MAX_VARIANTS = 3
"""The variants of a test whose last builds are read."""
STANDINGS = {
    HOLLOW: ("Hollow", "pass_by_tolerance"),
    RED: ("Red", "fail"),
    "broken": ("Broken", "fail"),
    FLAKY: ("Flaky", "suspect"),
    "marginal": ("Marginal", "suspect"),
    "blunt": ("Blunt", "suspect"),
    test_list.FLAGGED: ("Open flags", "none"),
}
"""The label of each filter by state, and the verdict whose looks it takes."""
STANDING_SENTENCES = {
    **{name: grade.sentence for name, grade in words.GRADES.items()},
    **words.STANDING_SENTENCES,
    test_list.FLAGGED: "It has a flag that nobody has acknowledged.",
}
"""The tests that each filter finds."""
IN_DAYS_SENTENCES = STANDING_SENTENCES | {
    HOLLOW: "In this time some build had a seed that passes only by tolerance.",
    RED: "In this time some build had a failing seed, whether rightly or not.",
    FLAKY: "In this time some build had passing and failing seeds.",
}
"""The tests that each filter finds in a range of days."""
SORTS = {test_list.ATTENTION: "Worst first", test_list.NEWEST: "Newest first"}


@dataclass(frozen=True)
class VariantLine:
    """A variant of a test, with its grade if it was assessed."""

    words: str
    url: str
    badges: tuple[Badge, ...]


@dataclass(frozen=True)
class RateLine:
    """The failure rate of some days: "2.5%", and "3 of 120 seeds"; None where nothing ran."""

    share: float | None
    text: str
    words: str


@dataclass(frozen=True)
class Chip:
    """A filter or an order to choose; choosing it again takes it back."""

    value: str
    label: str
    verdict: str
    url: str
    chosen: bool
    sentence: str = ""
    count: int | None = None
    """The tests that a filter leaves; None for an order."""


@dataclass(frozen=True)
class TestLine:
    """A test in the list; `verdict` is that of the newest build of the variant that is shown.

    The state is that of the test's newest job, which may be another.
    """

    __test__ = False  # pytest: not a test case

    key: str
    url: str
    kernel: str
    shape: str
    tolerance: str
    details: str
    """The suite's name for it, and its fields that differ from the default."""
    variants: tuple[VariantLine, ...]
    recent: RecentBuilds
    """The last builds of the variant that needs attention most, else of the one that ran last."""
    where: str
    """This variant in words."""
    week: RateLine
    month: RateLine
    flags: int
    flags_url: str
    job_url: str | None
    build: str | None
    state_words: str
    finished: bool
    """Whether the newest job has a verdict; it may be of an older build or of a bisection."""
    verdict: str | None
    verdict_url: str | None
    verdict_build: str | None
    hollow: bool
    """Whether that build has hollow seeds, also besides a worse verdict."""
    at: str | None
    age: str


@dataclass(frozen=True)
class TestsView:
    """A page of the list of tests; `next_url` leads to the next one, or is None."""

    __test__ = False  # pytest: not a test case

    items: tuple[TestLine, ...]
    filters: Mapping[str, str]
    standings: tuple[Chip, ...]
    sorts: tuple[Chip, ...]
    range: ranges.Range
    next: str | None
    next_url: str | None
    start: str
    at: str | None


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> TestsView:
    """Return a page of tests, the worst first. Raises BadCursor."""
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    if given.get("standing") not in test_list.STANDINGS:
        given.pop("standing", None)
    standing, sort = given.get("standing"), given.get("sort")
    sort = sort if sort in test_list.SORTS else test_list.ATTENTION

    def address(name: str, value: str | None) -> str:
        return urls.catalogue({**given, name: value})

    period = ranges.of(given, now, lambda value: address(ranges.PARAMETER, value))
    start, in_days = period.since or now - standings.WINDOW, period.since is not None
    chosen = TestFilter(
        given.get("kernel"),
        given.get("search"),
        standing,
        period.since,
        standings.read(session, since=start, every_build=in_days),
    )
    page = test_list.list_(session, chosen, sort=sort, limit=limit, cursor=cursor or None)
    counts = test_list.counts(session, chosen)
    sentences = IN_DAYS_SENTENCES if in_days else STANDING_SENTENCES
    return TestsView(
        _lines(session, page.items, standing, period, now),
        given,
        tuple(
            Chip(
                value,
                *STANDINGS[value],
                address("standing", None if standing == value else value),
                standing == value,
                sentences[value],
                counts[value],
            )
            for value in test_list.STANDINGS
        ),
        tuple(
            Chip(
                value,
                label,
                "",
                address("sort", None if value == test_list.ATTENTION else value),
                value == sort,
            )
            for value, label in SORTS.items()
        ),
        period,
        page.next,
        urls.catalogue(given, cursor=page.next) if page.next else None,
        commands.START,
        timestamp(now),
    )


def _lines(
    session: Session,
    tests: Sequence[TestRecord],
    standing: str | None,
    period: ranges.Range,
    now: datetime,
) -> tuple[TestLine, ...]:
    """Return the lines of these tests; all that they show is read together."""
    keys = {test.key for test in tests}
    entries = entry_names.latest(session, keys)
    urgent = {
        test.key: sorted(test.variants, key=lambda one: _attention(one, test, standing))
        for test in tests
    }
    candidates = [one for variants in urgent.values() for one in variants[-MAX_VARIANTS:]]
    results = recent_builds.results(session, candidates, BUILDS, since=period.since)
    rates = recent_builds.failure_rates(session, keys, now)

    def place(test: TestRecord, variant: Variant) -> tuple[bool, tuple[bool, int, bool], datetime]:
        """Return the order of the variants to show: those that the filter means come last."""
        builds = results[variant]
        shown = builds if period.since else builds[-1:]
        meant = any(build_cells.is_kind(build, standing) for build in shown)
        return meant, _attention(variant, test, standing), max(build.at for build in builds)

    shown: dict[str, Variant] = {}
    for test in tests:
        if ran := [variant for variant in test.variants if results.get(variant)]:
            shown[test.key] = max(ran, key=lambda variant: place(test, variant))
    strips = {key: build_cells.places(results[variant]) for key, variant in shown.items()}
    changes = axis_changes.of_tests(session, strips)
    none = FailureRate(), FailureRate()
    return tuple(
        _line(
            test,
            now,
            entries.get(test.key),
            variant,
            results[variant] if variant else (),
            rates.get(variant, none) if variant else none,
            changes.get(test.key, ()),
        )
        for test, variant in ((test, shown.get(test.key)) for test in tests)
    )


def _attention(variant: Variant, test: TestRecord, standing: str | None) -> tuple[bool, int, bool]:
    """Return how much a variant needs attention, as the list's filter and its order see it.

    The emulator's builds, which are no series, come last.
    """
    grade, in_series = test.grades.get(variant), variant.branch != EMULATOR
    if grade is None:
        return False, 0, in_series
    chosen = standing in (grade.stability, grade.sharpness) or (standing == HOLLOW and grade.hollow)
    return chosen, grade.rank, in_series


def _line(
    test: TestRecord,
    now: datetime,
    entry: str | None,
    shown: Variant | None,
    builds: Sequence[BuildResult],
    rates: tuple[FailureRate, FailureRate],
    changes: Sequence[Annotation],
) -> TestLine:
    last = next((build for build in reversed(builds) if build.verdict), None)
    week, month = map(_rate, rates)
    return TestLine(
        key=test.key,
        url=urls.history(test.key),
        kernel=test.kernel,
        shape=shape_of(test.canonical),
        tolerance=tolerance_of(test.canonical),
        details=details_of(test.canonical, entry),
        variants=tuple(
            VariantLine(
                words.variant_of(variant),
                urls.history(test.key, variant.place),
                badges(test.grades[variant]) if variant in test.grades else (),
            )
            for variant in test.variants
        ),
        recent=build_cells.recent(builds, changes),
        where="" if shown is None else words.variant_of(shown),
        week=week,
        month=month,
        flags=test.open_flags,
        flags_url=urls.flags({"test": test.key, "state": "unresolved"}),
        job_url=urls.job(test.job) if test.job else None,
        build=test.build,
        state_words=JobState(test.state).label if test.state else "Never run",
        finished=test.state == JobState.finished,
        verdict=last.verdict if last else None,
        verdict_url=urls.job(last.job) if last else None,
        verdict_build=last.build if last else None,
        hollow=last is not None and last.hollow > 0,
        at=timestamp(test.at),
        age=words.since(test.at, now),
    )


def _rate(rate: FailureRate) -> RateLine:
    if not rate.runs:
        return RateLine(None, "–", "nothing ran")
    share = rate.failed / rate.runs
    return RateLine(share, percent(share), f"{rate.failed:,} of {words.count(rate.runs, 'seed')}")
