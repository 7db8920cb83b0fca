"""Lines of a test's page: rates with intervals, builds, factors, steps and badges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from gonogo import urls
from gonogo.flakiness.grades import Grade
from gonogo.flakiness.masking import BuildChange, Change
from gonogo.flakiness.rates import Rate
from gonogo.flakiness.samples import Configuration
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.evidence_view import percent, rate_words
from gonogo_dashboards.kit.list_rows import Count, counts
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.tests.assessments import BuildHistory
from gonogo_service.tests.test_list import GradeRecord

_QUIET = (Change.right, Change.unchanged, Change.still_wrong, Change.unknown)


@dataclass(frozen=True)
class Badge:
    """A grade: its value, the verdict whose looks it takes, and its meaning."""

    word: str
    verdict: str
    sentence: str


@dataclass(frozen=True)
class Choice:
    """Something to choose on the page: another variant, output or statistic."""

    name: str
    url: str
    chosen: bool


@dataclass(frozen=True)
class Interval:
    """A fraction with its interval, in words and for drawing; None where nothing ran."""

    words: str
    share: float | None = None
    low: float | None = None
    high: float | None = None


NOTHING = Interval("")


@dataclass(frozen=True)
class BuildLine:
    """A test on one build; `url` is the page with the grade of that build."""

    build: str
    url: str
    chosen: bool
    seeds: int
    jobs: int
    counts: tuple[Count, ...]
    failures: Interval
    hollow: Interval
    lost: Interval
    job_url: str
    at: str | None
    age: str


@dataclass(frozen=True)
class RowLine:
    """A row of the table by context or device: pass rate, and the exact test against isolation."""

    name: str
    runs: int
    passed: int
    failed: int
    host_runs: int
    passes: Interval
    p: float | None
    higher: float | None


@dataclass(frozen=True)
class FactorLine:
    """One factor of the attribution, and whether it holds."""

    words: str
    holds: bool
    evidence: str


@dataclass(frozen=True)
class StepLine:
    """The change of the kernel from one build to the next; `telling`: its state changed."""

    before: str
    after: str
    change: str
    verdict: str
    telling: bool
    words: str


@dataclass(frozen=True)
class ChangeLine:
    """A change point of an output's numbers; `url` is the page of its build, None for a day."""

    words: str
    url: str | None


_HOLLOW = Badge(
    "hollow pass",
    "pass_by_tolerance",
    "On this build it passes only by tolerance: rounding doesn't explain the error.",
)
_LATENT = Badge("latent flake", "suspect", "Green, but the tail of its errors predicts failures.")


def named(names: Sequence[str], noun: str) -> str:
    """Return the number of things, and the names of the first: "2 builds (a, b)"."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return f"{words.count(len(names), noun)} ({', '.join(map(words.brief, names[:4]))}{more})"


def badges(grade: Grade | GradeRecord) -> tuple[Badge, ...]:
    """Return badges of both axes of a grade, and of hollow passes and latent flakes."""
    shown = [
        Badge(axis, words.GRADES[axis].mark, words.GRADES[axis].sentence)
        for axis in (grade.stability, grade.sharpness)
    ]
    shown += [_HOLLOW] if grade.hollow else []
    shown += [_LATENT] if isinstance(grade, Grade) and grade.latent else []
    return tuple(shown)


def interval(rate: Rate) -> Interval:
    """Return a rate for drawing."""
    share = rate.failures / rate.runs if rate.runs else None
    return Interval(rate_words(vars(rate)), share, rate.low, rate.high)


def build_line(
    build: BuildHistory, of_any_build: str, chosen: str | None, now: datetime
) -> BuildLine:
    """Return a line of the table of builds; of_any_build: the page's address without a build."""
    return BuildLine(
        build=build.build,
        url=of_any_build + urls.further("build", build.build),
        chosen=build.build == chosen,
        seeds=build.seeds,
        jobs=build.jobs,
        counts=counts(build.counts, max(build.seeds, 1)),
        failures=interval(build.failures),
        hollow=interval(build.hollow),
        lost=interval(build.infrastructure),
        job_url=urls.job(build.last_job),
        at=timestamp(build.last_at),
        age=words.since(build.last_at, now),
    )


def row_line(row: Configuration) -> RowLine:
    """Return a row of the table by context or device."""
    text = "Unknown"
    if row.pass_low is not None:
        text = f"{percent(row.pass_rate)}, {percent(row.pass_low)} to {percent(row.pass_high)}"
    passes = Interval(text, row.pass_rate, row.pass_low, row.pass_high)
    ran = row.name, row.runs, row.passed, row.failed, row.host_runs
    return RowLine(*ran, passes, row.p, row.higher)


def step_line(step: BuildChange) -> StepLine:
    """Return the change of the kernel between two builds."""
    change, between = step.change, (step.before, step.after)
    looks = change.label, change.mark
    return StepLine(*between, *looks, change not in _QUIET, words.tamed(step.words, between))
