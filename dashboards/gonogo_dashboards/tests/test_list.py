"""Read models of the list of tests: each with its grades, its last verdict and its open
findings.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.kit import commands, words
from gonogo_dashboards.kit.list_rows import shape_of, tolerance_of
from gonogo_storage.catalogue import test_list
from gonogo_storage.catalogue.test_list import GradeRecord, TestRecord
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.rollups.variants import Variant

FILTERS = ("kernel",)


@dataclass(frozen=True)
class Badge:
    """A grade: its word, the verdict whose looks it takes, and what it means."""

    word: str
    verdict: str
    sentence: str


@dataclass(frozen=True)
class VariantLine:
    """Where a test runs, with its grade if it was assessed."""

    words: str
    url: str
    badges: tuple[Badge, ...]


@dataclass(frozen=True)
class TestLine:
    """A test in the list; `verdict` is that of its last job."""

    __test__ = False  # pytest: not a test case

    key: str
    url: str
    kernel: str
    shape: str
    tolerance: str
    variants: tuple[VariantLine, ...]
    flags: int
    flags_url: str
    job_url: str | None
    build: str | None
    state_words: str
    verdict: str | None
    at: str | None
    age: str


@dataclass(frozen=True)
class TestsView:
    """A page of the list of tests; `next_url` leads on, or is None."""

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
    """A page of tests, the latest submitted first. Raises gonogo_storage.db.paging.BadCursor."""
    given = {name: value for name in FILTERS if (value := filters.get(name, "").strip())}
    page = test_list.list_(session, limit=limit, cursor=cursor or None, **given)
    next_url = urls.catalogue(given, cursor=page.next) if page.next else None
    return TestsView(
        tuple(_test_line(each, now) for each in page.items),
        given,
        page.next,
        next_url,
        commands.START,
        timestamp(now),
    )


def badges(grade: Mapping[str, Any]) -> tuple[Badge, ...]:
    """The two axes, and what else a reader must not miss; `grade` has stability, sharpness, hollow
    and latent.
    """
    found = [
        Badge(grade[axis], words.GRADES[grade[axis]], words.GRADE_SENTENCES[grade[axis]])
        for axis in ("stability", "sharpness")
    ]
    if grade["hollow"]:
        found.append(
            Badge(
                "hollow",
                "pass_by_tolerance",
                "Green, and rounding does not explain the error, on this build.",
            )
        )
    if grade["latent"]:
        found.append(
            Badge(
                "will flake",
                "suspect",
                "Green, and the tail of its errors foretells failures: a latent flake.",
            )
        )
    return tuple(found)


def _variant_line(variant: Variant, grade: GradeRecord | None) -> VariantLine:
    graded = () if grade is None else badges({**asdict(grade), "latent": False})
    url = urls.history(
        variant.test_key, {"branch": variant.branch, "arch": variant.arch, "board": variant.board}
    )
    return VariantLine(words.variant_of(variant), url, graded)


def _test_line(test: TestRecord, now: datetime) -> TestLine:
    variants = tuple(_variant_line(each, test.grades.get(each)) for each in test.variants)
    return TestLine(
        key=test.key,
        url=urls.history(test.key),
        kernel=test.kernel,
        shape=shape_of(test.canonical),
        tolerance=tolerance_of(test.canonical),
        variants=variants,
        flags=test.open_flags,
        flags_url=urls.flags({"test": test.key, "state": "unresolved"}),
        job_url=urls.job(test.job) if test.job else None,
        build=test.build,
        state_words=words.STATES.get(test.state or "", "never run"),
        verdict=test.verdict,
        at=timestamp(test.at),
        age=words.since(timestamp(test.at), now),
    )
