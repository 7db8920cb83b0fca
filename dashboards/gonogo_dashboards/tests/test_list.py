"""Read models of the list of tests: each with its last builds, its failure rates and its grades."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Grade
from gonogo.spec.executors import EMULATOR
from gonogo_dashboards.kit import build_cells, commands, ranges, words
from gonogo_dashboards.kit.build_cells import RecentBuilds
from gonogo_dashboards.kit.evidence_view import percent
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests import annotations, recent_builds, standings, test_list
from gonogo_service.tests.annotations import Annotation
from gonogo_service.tests.recent_builds import BuildResult, FailureRate
from gonogo_service.tests.standings import FLAKY, HOLLOW, RED
from gonogo_service.tests.test_list import GradeRecord, TestFilter, TestRecord
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
IN_DAYS_SENTENCES = {
    HOLLOW: "In this time some build had a seed that passes only by tolerance.",
    RED: "In this time some build had a failing seed, whether rightly or not.",
    FLAKY: "In this time some build had passing and failing seeds.",
}
"""The tests that a filter finds in a range of days."""
_NO_RATES = FailureRate(), FailureRate()
SORTS = {test_list.ATTENTION: "Worst first", test_list.NEWEST: "Newest first"}


@dataclass(frozen=True)
class Badge:
    """A grade: its value, the verdict whose looks it takes, and its meaning."""

    word: str
    verdict: str
    sentence: str


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
    if given.get("standing") not in {None, *test_list.STANDINGS}:
        del given["standing"]
    sort = given.get("sort", test_list.ATTENTION)
    sort = sort if sort in test_list.SORTS else test_list.ATTENTION

    def address(name: str, value: str | None) -> str:
        return urls.catalogue({**given, name: value})

    period = ranges.of(given, now, lambda value: address(ranges.PARAMETER, value))
    chosen = TestFilter(
        given.get("kernel"),
        given.get("search"),
        given.get("standing"),
        period.since,
        standings.read(
            session,
            since=period.since or now - standings.WINDOW,
            every_build=period.since is not None,
        ),
    )
    page = test_list.list_(
        session,
        chosen,
        sort=sort,
        limit=limit,
        cursor=cursor or None,
    )
    keys = {record.key for record in page.items}
    entries = entry_names.latest(session, keys)
    standing = given.get("standing")
    shown = [
        variant
        for record in page.items
        for variant in sorted(
            record.variants, key=lambda variant: _attention(variant, record.grades, standing)
        )[-MAX_VARIANTS:]
    ]
    results = recent_builds.results(session, shown, BUILDS, since=period.since)
    rates = recent_builds.failure_rates(session, keys, now)
    variants = {
        record.key: _shown(record, results, standing, period.since is not None)
        for record in page.items
    }
    strips = {
        key: build_cells.places(results[variant]) for key, variant in variants.items() if variant
    }
    changes = annotations.of_tests(session, strips)
    counts = test_list.counts(session, chosen)
    chips = tuple(
        Chip(
            value,
            *STANDINGS[value],
            address("standing", None if given.get("standing") == value else value),
            given.get("standing") == value,
            {**STANDING_SENTENCES, **(IN_DAYS_SENTENCES if period.since else {})}[value],
            counts[value],
        )
        for value in test_list.STANDINGS
    )
    sorts = tuple(
        Chip(
            value,
            SORTS[value],
            "",
            address("sort", None if value == test_list.ATTENTION else value),
            value == sort,
        )
        for value in test_list.SORTS
    )
    return TestsView(
        tuple(
            _test_line(
                record,
                now,
                entries.get(record.key),
                variant,
                results.get(variant, ()) if variant else (),
                rates.get(variant, _NO_RATES) if variant else _NO_RATES,
                changes.get(record.key, ()),
            )
            for record in page.items
            for variant in [variants[record.key]]
        ),
        given,
        chips,
        sorts,
        period,
        page.next,
        urls.catalogue(given, cursor=page.next) if page.next else None,
        commands.START,
        timestamp(now),
    )


def badges(grade: Grade | GradeRecord) -> tuple[Badge, ...]:
    """Return badges of both axes of a grade, and of hollow passes and latent flakes."""
    shown = [
        Badge(axis, words.GRADES[axis].mark, words.GRADES[axis].sentence)
        for axis in (grade.stability, grade.sharpness)
    ]
    if grade.hollow:
        shown.append(
            Badge(
                "hollow pass",
                "pass_by_tolerance",
                "On this build it passes only by tolerance: rounding doesn't explain the error.",
            )
        )
    if isinstance(grade, Grade) and grade.latent:
        shown.append(
            Badge(
                "latent flake",
                "suspect",
                "Green, but the tail of its errors predicts failures.",
            )
        )
    return tuple(shown)


def _variant_line(variant: Variant, grade: GradeRecord | None) -> VariantLine:
    graded = () if grade is None else badges(grade)
    url = urls.history(
        variant.test_key, {"branch": variant.branch, "arch": variant.arch, "board": variant.board}
    )
    return VariantLine(words.variant_of(variant), url, graded)


def _attention(
    variant: Variant, grades: Mapping[Variant, GradeRecord], standing: str | None
) -> tuple[bool, int, bool]:
    """Return how much a variant needs attention, as the list's filter and its order see it.

    The emulator's builds, which are no series, come last.
    """
    grade = grades.get(variant)
    if grade is None:
        return False, 0, variant.branch != EMULATOR
    chosen = standing in (grade.stability, grade.sharpness) or (standing == HOLLOW and grade.hollow)
    return chosen, grade.rank, variant.branch != EMULATOR


def _shown(
    test: TestRecord,
    results: Mapping[Variant, tuple[BuildResult, ...]],
    standing: str | None,
    every_build: bool,
) -> Variant | None:
    """Return the variant that the filter means, or that needs attention most.

    Among equals it is the one that ran last.
    """

    def place(variant: Variant) -> tuple[bool, tuple[bool, int, bool], datetime]:
        builds = results[variant] if every_build else results[variant][-1:]
        meant = any(build_cells.is_kind(build, standing) for build in builds)
        newest = max(build.at for build in results[variant])
        return meant, _attention(variant, test.grades, standing), newest

    return max(
        (variant for variant in test.variants if results.get(variant)), key=place, default=None
    )


def _rate(rate: FailureRate) -> RateLine:
    if not rate.runs:
        return RateLine(None, "–", "nothing ran")
    share = rate.failed / rate.runs
    return RateLine(share, percent(share), f"{rate.failed:,} of {words.count(rate.runs, 'seed')}")


def _test_line(
    test: TestRecord,
    now: datetime,
    entry: str | None,
    shown: Variant | None,
    builds: Sequence[BuildResult],
    rates: tuple[FailureRate, FailureRate],
    changes: Sequence[Annotation],
) -> TestLine:
    judged = [build for build in builds if build.verdict]
    last = judged[-1] if judged else None
    week, month = rates
    variants = tuple(_variant_line(variant, test.grades.get(variant)) for variant in test.variants)
    return TestLine(
        key=test.key,
        url=urls.history(test.key),
        kernel=test.kernel,
        shape=shape_of(test.canonical),
        tolerance=tolerance_of(test.canonical),
        details=details_of(test.canonical, entry),
        variants=variants,
        recent=build_cells.recent(builds, changes),
        where="" if shown is None else words.variant_of(shown),
        week=_rate(week),
        month=_rate(month),
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
