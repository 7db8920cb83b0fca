"""Read model of a test's page: one test on one variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo_dashboards.flags.flag_page import FindingLine
from gonogo_dashboards.kit import ranges, words
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_dashboards.kit.list_rows import details_of, noun_of, shape_of, tolerance_of
from gonogo_dashboards.kit.ranges import Range
from gonogo_dashboards.kit.tolerance_advice import Advice
from gonogo_dashboards.tests.error_curve import Curve
from gonogo_dashboards.tests.strip import Strip
from gonogo_dashboards.tests.tail import TailView
from gonogo_dashboards.tests.test_lines import (
    NOTHING,
    Badge,
    BuildLine,
    ChangeLine,
    Choice,
    FactorLine,
    Interval,
    RowLine,
    StepLine,
)
from gonogo_dashboards.tests.test_parts import VariantPage
from gonogo_dashboards.tests.waivers import WaiverEntry, waivers_of_test
from gonogo_service.builds import entry_names
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests import assessments, test_specs
from gonogo_service.tests.variants import PLACE

CHOICES = (*PLACE, "build", "output", "metric", "over", ranges.PARAMETER)


@dataclass(frozen=True, kw_only=True)
class TestView:
    """A test's page on one variant; `variant` is None while no job of the test has ended."""

    __test__ = False  # pytest: not a test case

    key: str
    workload_key: str
    kernel: str
    shape: str
    tolerance: str
    details: str
    """The suite's name for it, and its fields that differ from the default."""
    noun: str
    variants: tuple[Choice, ...]
    waivers: tuple[WaiverEntry, ...]
    range: Range
    jobs_url: str
    json_url: str
    at: str | None
    variant: Mapping[str, str] | None = None
    variant_words: str = ""
    build: str | None = None
    badges: tuple[Badge, ...] = ()
    verdict: str | None = None
    """The worst verdict of the seeds on the build; `hollow`: some of them is a hollow pass."""
    hollow: bool = False
    reason: str = ""
    """Why, in one sentence: the diagnosis of the build's newest job, or its flag's sentence."""
    decided: str = ""
    """The comparators that decided the worst seed of the build's newest job; "" for allclose."""
    advice: tuple[Advice, ...] = ()
    grade_words: tuple[str, ...] = ()
    failures: Interval = NOTHING
    assessed: str = ""
    builds: tuple[BuildLine, ...] = ()
    more_builds: int = 0
    cause: str = ""
    steady: bool = True
    """Whether its outcomes don't differ, so that there is no cause to look for."""
    cause_words: str = ""
    factors: tuple[FactorLine, ...] = ()
    contexts: tuple[RowLine, ...] = ()
    devices: tuple[RowLine, ...] = ()
    strip: Strip | None = None
    tail: TailView | None = None
    gauge: str | None = None
    """The address of its last gauge."""
    curve: Curve | None = None
    outputs: tuple[Choice, ...] = ()
    metrics: tuple[Choice, ...] = ()
    overs: tuple[Choice, ...] = ()
    changes: tuple[ChangeLine, ...] = ()
    rate_changes: str = ""
    steps: tuple[StepLine, ...] = ()
    arithmetic: tuple[ArithmeticLine, ...] = ()
    """The arithmetics of the build's newest job."""
    flags: tuple[FindingLine, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)


def one(session: Session, key: str, query: Mapping[str, str], now: datetime) -> TestView | None:
    """Return the page of a test; None where there is no such test.

    It shows the variant that the query names, where it exists, else the one that ran last.
    """
    test = test_specs.get(session, key)
    if test is None:
        return None
    chosen = {name: value for name in CHOICES if (value := query.get(name, ""))}
    named = {name: chosen[name] for name in PLACE if name in chosen}.items()
    variants = assessments.variants(session, key)
    matches = [one for one in variants if one.place.items() >= named]
    variant = next(iter(matches or variants), None)
    about: dict[str, Any] = {
        "key": key,
        "workload_key": test.workload_key,
        "kernel": test.kernel,
        "shape": shape_of(test.test),
        "tolerance": tolerance_of(test.test),
        "details": details_of(test.test, entry_names.latest(session, [key]).get(key)),
        "noun": noun_of(test.test),
        "variants": tuple(
            Choice(words.variant_of(one), urls.history(key, one.place), one == variant)
            for one in variants
        ),
        "waivers": waivers_of_test(session, key, now),
        "jobs_url": urls.jobs({"test": key}),
        "at": timestamp(now),
    }
    if variant is None:
        period = ranges.of({}, now, lambda _: urls.history(key))
        return TestView(**about, range=period, json_url=urls.history(key, as_json=True))
    page = VariantPage(session, variant, chosen, test.test, now)
    return TestView(**about, **page.grade(), **page.charts(), **page.actions())
