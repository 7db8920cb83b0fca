"""Read models of the list of tests: each with its grades, its last verdict and its open flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.grades import Grade
from gonogo_dashboards.kit import commands, words
from gonogo_dashboards.kit.list_rows import details_of, shape_of, tolerance_of
from gonogo_storage.catalogue import entry_names, test_list
from gonogo_storage.catalogue.test_list import GradeRecord, TestRecord
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.rollups.variants import Variant

FILTERS = ("kernel",)


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
class TestLine:
    """A test in the list; `verdict` is that of its last job that was judged.

    The state is that of its newest job, which may be another.
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
    flags: int
    flags_url: str
    job_url: str | None
    build: str | None
    state_words: str
    verdict: str | None
    verdict_url: str | None
    verdict_build: str | None
    at: str | None
    age: str


@dataclass(frozen=True)
class TestsView:
    """A page of the list of tests; `next_url` leads to the next one, or is None."""

    __test__ = False  # pytest: not a test case

    items: tuple[TestLine, ...]
    filters: Mapping[str, str]
    next: str | None
    next_url: str | None
    start: str
    at: str | None


def listed(
    session: Session, filters: Mapping[str, str], cursor: str | None, limit: int, now: datetime
) -> TestsView:
    """Return a page of tests, latest submitted first. Raises gonogo_storage.db.paging.BadCursor."""
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    page = test_list.list_(session, limit=limit, cursor=cursor or None, **given)
    entries = entry_names.latest(session, {record.key for record in page.items})
    next_url = urls.catalogue(given, cursor=page.next) if page.next else None
    return TestsView(
        tuple(_test_line(record, now, entries.get(record.key)) for record in page.items),
        given,
        page.next,
        next_url,
        commands.START,
        timestamp(now),
    )


def badges(grade: Grade | GradeRecord) -> tuple[Badge, ...]:
    """Return badges of both axes of a grade, and of hollow passes and latent flakes."""
    shown = [
        Badge(axis, words.GRADES[axis], words.GRADE_SENTENCES[axis])
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


def _test_line(test: TestRecord, now: datetime, entry: str | None) -> TestLine:
    variants = tuple(_variant_line(variant, test.grades.get(variant)) for variant in test.variants)
    return TestLine(
        key=test.key,
        url=urls.history(test.key),
        kernel=test.kernel,
        shape=shape_of(test.canonical),
        tolerance=tolerance_of(test.canonical),
        details=details_of(test.canonical, entry),
        variants=variants,
        flags=test.open_flags,
        flags_url=urls.flags({"test": test.key, "state": "unresolved"}),
        job_url=urls.job(test.job) if test.job else None,
        build=test.build,
        state_words=words.STATES.get(test.state or "", "Never run"),
        verdict=test.judged_verdict,
        verdict_url=urls.job(test.judged_job) if test.judged_job else None,
        verdict_build=test.judged_build,
        at=timestamp(test.at),
        age=words.since(test.at, now),
    )
