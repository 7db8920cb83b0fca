"""The lines of the list of tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.spec.executors import EMULATOR
from gonogo_dashboards.kit import build_cells, words
from gonogo_dashboards.kit.build_cells import RecentBuilds
from gonogo_dashboards.kit.evidence_view import percent
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_dashboards.tests.test_page import badges
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.states import JobState
from gonogo_service.tests import axis_changes, recent_builds
from gonogo_service.tests.axis_changes import Annotation
from gonogo_service.tests.recent_builds import BuildResult, FailureRate
from gonogo_service.tests.standings import Kind
from gonogo_service.tests.test_list import TestFilter, TestRecord
from gonogo_service.tests.variants import Variant

BUILDS = 20
"""The last builds that a row shows."""
MAX_VARIANTS = 3
"""The variants of a test whose last builds are read."""


@dataclass(frozen=True)
class VariantLine:
    """A variant of a test, with its grade if it was assessed."""

    words: str
    url: str
    badges: tuple[str, ...]


@dataclass(frozen=True)
class RateLine:
    """The failure rate of some days: "2.5%", and "3 of 120 seeds"; None where nothing ran."""

    share: float | None
    text: str
    words: str


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


def lines(
    session: Session,
    tests: Sequence[TestRecord],
    filters: TestFilter,
    now: datetime,
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
        if ran := [variant for variant in test.variants if results.get(variant)]:
            shown[test.spec.key] = max(
                ran,
                key=lambda one: (
                    _attention(one, test, filters),
                    max(build.at for build in results[one]),
                ),
            )
    strips = {key: build_cells.places(results[variant]) for key, variant in shown.items()}
    changes = axis_changes.of_tests(session, strips)
    none = FailureRate(), FailureRate()
    return tuple(
        _line(
            test,
            now,
            entries.get(test.spec.key),
            variant,
            results[variant] if variant else (),
            rates.get(variant, none) if variant else none,
            changes.get(test.spec.key, ()),
        )
        for test, variant in ((test, shown.get(test.spec.key)) for test in tests)
    )


def _attention(
    variant: Variant, test: TestRecord, filters: TestFilter
) -> tuple[bool, bool, int, bool]:
    """Return how much a variant needs attention, as the list's filter and its order see it.

    The emulator's builds, which are no series, come last.
    """
    kind, grade, in_series = filters.kind, test.grades.get(variant), variant.branch != EMULATOR
    counts = kind is not None and getattr(filters.standings.get(variant), kind, False)
    if grade is None:
        return counts, False, 0, in_series
    graded = kind in (grade.stability, grade.sharpness) or (kind is Kind.hollow and grade.hollow)
    return counts, graded, grade.rank, in_series


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
    spec, job = test.spec, test.job
    return TestLine(
        key=spec.key,
        url=urls.history(spec.key),
        kernel=spec.kernel,
        shape=shape_of(spec.test),
        tolerance=tolerance_of(spec.test),
        details=details_of(spec.test, entry),
        variants=tuple(
            VariantLine(
                words.variant_of(variant),
                urls.history(spec.key, variant.place),
                badges(test.grades[variant]) if variant in test.grades else (),
            )
            for variant in test.variants
        ),
        recent=build_cells.recent(builds, changes),
        where="" if shown is None else words.variant_of(shown),
        week=week,
        month=month,
        flags=test.open_flags,
        flags_url=urls.flags({"test": spec.key, "state": "unresolved"}),
        job_url=urls.job(job.id) if job else None,
        build=job.build if job else None,
        state_words=job.state.label if job else "Never run",
        finished=job is not None and job.state == JobState.finished,
        verdict=last.verdict if last else None,
        verdict_url=urls.job(last.job) if last else None,
        verdict_build=last.build if last else None,
        hollow=last is not None and last.hollow > 0,
        at=timestamp(job.created_at) if job else None,
        age=words.since(job.created_at if job else None, now),
    )


def _rate(rate: FailureRate) -> RateLine:
    if not rate.runs:
        return RateLine(None, "–", "nothing ran")
    share = rate.failed / rate.runs
    return RateLine(share, percent(share), f"{rate.failed:,} of {words.count(rate.runs, 'seed')}")
