"""Read model of a test's page: one test on one variant.

It shows grade, rates, causes, change points and flags.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.attribution import Cause
from gonogo.flakiness.masking import BuildChange, Change
from gonogo.flakiness.rates import Rate
from gonogo.flakiness.samples import Configuration
from gonogo.spec.selections import is_selection
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.flags.flag_page import FindingLine
from gonogo_dashboards.kit import (
    arithmetic_view,
    axis_events,
    build_cells,
    comparators_view,
    ranges,
    words,
)
from gonogo_dashboards.kit.arithmetic_view import ArithmeticLine
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.evidence_view import percent, rate_words
from gonogo_dashboards.kit.list_rows import (
    Count,
    counts,
    details_of,
    noun_of,
    shape_of,
    tolerance_of,
)
from gonogo_dashboards.kit.ranges import Range
from gonogo_dashboards.kit.tolerance_advice import Advice
from gonogo_dashboards.tests import active_waivers, advice, error_curve
from gonogo_dashboards.tests import strip as strips
from gonogo_dashboards.tests import tail as tails
from gonogo_dashboards.tests.active_waivers import WaiverLine
from gonogo_dashboards.tests.error_curve import Curve
from gonogo_dashboards.tests.strip import Strip
from gonogo_dashboards.tests.tail import TailView
from gonogo_dashboards.tests.test_list import Badge, badges
from gonogo_service.builds import entry_names
from gonogo_service.flags import store as flags
from gonogo_service.flags.model import FlagRow
from gonogo_service.gauges import store as gauges
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.records import from_object
from gonogo_service.results import arithmetics
from gonogo_service.results import worst as worst_seeds
from gonogo_service.tests import annotations as axis_changes
from gonogo_service.tests import assessments, test_specs, trends
from gonogo_service.tests.annotations import AxisPlace
from gonogo_service.tests.assessments import BuildHistory
from gonogo_service.tests.trends import METRICS, Trend
from gonogo_service.tests.variants import JobFacts, Variant, jobs_of, newest_builds

CHOICES = ("branch", "arch", "board", "build", "output", "metric", "over", ranges.PARAMETER)
MAX_FLAGS = 20
MAX_DIAGNOSED = 8
"""The newest jobs of a build among which one with a diagnosis is looked for."""
_QUIET = (Change.right, Change.unchanged, Change.still_wrong, Change.unknown)
_ALL_OF = re.compile(r" (\d+) of \1 \(100%[^)]*\)(?! seeds)")
"""A rate of 100 % after the name of a mutant that passes; the gauge has its interval."""
MAX_BUILDS = 20
"""Builds in the table of a page; the API's answer has all of them."""


@dataclass(frozen=True)
class Interval:
    """A fraction with its interval, in words and for drawing; None where nothing ran."""

    words: str
    share: float | None
    low: float | None
    high: float | None


@dataclass(frozen=True)
class BuildLine:
    """A test on one build."""

    build: str
    url: str
    """The page with the grade of that build."""
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
    """A change point of an output's numbers.

    `url`: the page with the grade of its build; None for a day.
    """

    words: str
    url: str | None


@dataclass(frozen=True)
class Choice:
    """Something to choose on the page: another variant, output or statistic."""

    name: str
    url: str
    chosen: bool


@dataclass(frozen=True)
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
    variant: Mapping[str, str] | None
    variant_words: str
    variants: tuple[Choice, ...]
    badges: tuple[Badge, ...]
    verdict: str | None
    """The worst verdict of the seeds on the build."""
    hollow: bool
    """Some seed on it is a hollow pass."""
    reason: str
    """Why, in one sentence: the diagnosis of the build's newest job, or its flag's sentence."""
    advice: tuple[Advice, ...]
    range: Range
    build: str | None
    grade_words: tuple[str, ...]
    failures: Interval
    assessed: str
    builds: tuple[BuildLine, ...]
    more_builds: int
    cause: str
    steady: bool
    """Whether its outcomes don't differ, so that there is no cause to look for."""
    cause_words: str
    factors: tuple[FactorLine, ...]
    contexts: tuple[RowLine, ...]
    devices: tuple[RowLine, ...]
    decided: str
    """The comparators that decided the worst seed of the build's newest job; "" for allclose."""
    strip: Strip | None
    tail: TailView | None
    gauge: str | None
    """The address of its last gauge."""
    curve: Curve | None
    outputs: tuple[Choice, ...]
    metrics: tuple[Choice, ...]
    overs: tuple[Choice, ...]
    changes: tuple[ChangeLine, ...]
    rate_changes: str
    steps: tuple[StepLine, ...]
    arithmetic: tuple[ArithmeticLine, ...]
    """The arithmetics of the build's newest job."""
    flags: tuple[FindingLine, ...]
    waivers: tuple[WaiverLine, ...]
    jobs_url: str
    links: Mapping[str, str]
    json_url: str
    at: str | None


def one(session: Session, key: str, query: Mapping[str, str], now: datetime) -> TestView | None:
    """Return the page of a test; None where there is no such test.

    It shows the variant that the query names, where it exists, else the one that ran last.
    """
    test = test_specs.get(session, key)
    if test is None:
        return None
    chosen = {name: value for name in CHOICES if (value := query.get(name, ""))}
    variants = assessments.variants(session, key)
    variant = next(
        (stored for stored in variants if _named(stored).items() >= _of_variant(chosen).items()),
        variants[0] if variants else None,
    )
    canonical = test.test
    about: dict[str, Any] = {
        "key": key,
        "workload_key": test.workload_key,
        "kernel": test.kernel,
        "shape": shape_of(canonical),
        "tolerance": tolerance_of(canonical),
        "details": details_of(canonical, entry_names.latest(session, [key]).get(key)),
        "noun": noun_of(canonical),
        "jobs_url": urls.jobs({"test": key}),
        "at": timestamp(now),
        "waivers": active_waivers.of_test(session, key, now),
        "variants": tuple(
            Choice(words.variant_of(stored), urls.history(key, _named(stored)), stored == variant)
            for stored in variants
        ),
    }
    if variant is None:
        return TestView(
            **about,
            **_NOTHING,
            range=ranges.of({}, now, lambda _: urls.history(key)),
            links={},
            json_url=urls.history(key, as_json=True),
        )
    return TestView(**about, **_judged(session, variant, chosen, canonical, now))


_NOTHING: dict[str, Any] = {
    "variant": None,
    "variant_words": "",
    "badges": (),
    "verdict": None,
    "hollow": False,
    "reason": "",
    "advice": (),
    "build": None,
    "grade_words": (),
    "failures": Interval("", None, None, None),
    "assessed": "",
    "builds": (),
    "more_builds": 0,
    "cause": "",
    "steady": True,
    "cause_words": "",
    "factors": (),
    "contexts": (),
    "devices": (),
    "decided": "",
    "strip": None,
    "tail": None,
    "gauge": None,
    "curve": None,
    "outputs": (),
    "metrics": (),
    "overs": (),
    "changes": (),
    "rate_changes": "",
    "steps": (),
    "arithmetic": (),
    "flags": (),
}


def _judged(
    session: Session,
    variant: Variant,
    requested: Mapping[str, str],
    canonical: Mapping[str, Any],
    now: datetime,
) -> dict[str, Any]:
    """Return every part of a page that needs runs."""
    jobs, here = jobs_of(session, variant), _named(variant)
    period = ranges.of(
        requested,
        now,
        lambda value: urls.history(variant.test_key, {**requested, ranges.PARAMETER: value}),
    )
    charted = [job for job in jobs if period.since is None or job.created_at >= period.since]
    status = assessments.status(session, variant, build=requested.get("build"), jobs=jobs)
    metric = requested.get("metric", "")
    if metric not in METRICS:
        metric = _deciding(_declared(canonical, requested.get("output", "")))
    over: trends.Over = "days" if requested.get("over") == "days" else "builds"
    trend = trends.read(session, variant, over=over, metric=metric)
    odd = {name for point in trend.points for name in point.nonfinite}
    outputs, names = sorted(odd | set(trend.numbers)), [point.name for point in trend.points]
    output = requested.get("output", "")
    if output not in outputs:
        output = _first(
            trend,
            _worst_of(strips.outputs(session, jobs), outputs) if len(outputs) > 1 else outputs,
        )
    chosen = {
        **here,
        "build": requested.get("build"),
        "output": output,
        "metric": metric,
        "over": over,
        ranges.PARAMETER: requested.get(ranges.PARAMETER),
    }
    of_any_build = urls.history(variant.test_key, {**chosen, "build": None})
    declared = _declared(canonical, output)
    events = of_builds = _events(session, variant, jobs, names, over)
    if over != "builds":
        of_builds = _events(session, variant, jobs, _in_order(jobs), "builds")
    metrics = error_curve.metrics(declared)
    gauge = gauges.last(session, variant.test_key, variant.branch, variant.arch, variant.board)
    advised = gauge.report.advice.tolerance if gauge else {}
    cause, raised = (
        status.attribution,
        flags.newest(session, test=variant.test_key, limit=MAX_FLAGS).items,
    )
    newest = newest_builds(session, [variant]).get(variant)
    of_variant = [
        flag for flag in raised if (flag.branch, flag.arch, flag.board) == tuple(here.values())
    ]

    def choices(name: str, values: Sequence[str], labels: Mapping[str, str]) -> tuple[Choice, ...]:
        return tuple(
            Choice(
                labels.get(value, value),
                urls.history(variant.test_key, {**chosen, name: value}),
                value == chosen[name],
            )
            for value in values
        )

    of_build = [job for job in jobs if job.build == status.build]
    seeds = Counter[str]()
    for job in of_build:
        seeds.update(job.counts)
    # as on the job's page: a build on which seeds hung is no pass
    verdict = next((name for name in words.ordered(seeds) if seeds[name]), None)
    hollow = bool(seeds[build_cells.HOLLOW])
    return {
        "variant": here,
        "verdict": verdict,
        "hollow": hollow,
        "reason": _reason(session, of_build, of_variant, verdict),
        "decided": comparators_view.of_job(session, of_build[0].id, canonical.get("tolerance", {}))
        if of_build
        else "",
        "advice": advice.steps(
            variant.test_key,
            here,
            status.build,
            verdict,
            hollow,
            of_build[0].id,
            canonical,
            gauge.report.sharpness if gauge else None,
            advised,
            trend.steps,
            status.grade.tail.largest if status.grade.tail else None,
        )
        if status.build and verdict
        else (),
        "range": period,
        "variant_words": words.variant_of(variant),
        "badges": badges(status.grade),
        "build": status.build,
        "grade_words": tuple(_ALL_OF.sub("", part) for part in status.grade.words.split("; ")),
        "failures": _interval(status.grade.failures),
        "assessed": f"assessed {words.since(status.assessed.at, now)}, from {status.extent.words}"
        if status.assessed.at
        else f"from {status.extent.words}",
        "builds": tuple(
            _build_line(
                build,
                of_any_build + urls.further("build", build.build),
                build.build == status.build,
                now,
            )
            for build in assessments.builds(charted, MAX_BUILDS)
        ),
        "more_builds": max(0, len({(job.sequence, job.build) for job in charted}) - MAX_BUILDS),
        "cause": cause.cause.label,
        "steady": cause.cause is Cause.stable,
        "cause_words": cause.words,
        "factors": tuple(
            FactorLine(finding.cause.label, finding.holds, finding.words)
            for finding in cause.findings
        ),
        "contexts": tuple(_row_line(row) for row in cause.contexts),
        "devices": tuple(_row_line(row) for row in cause.devices),
        "strip": strips.read(session, charted, output, canonical, advised, here, of_builds)
        if output and charted
        else None,
        "tail": tails.read(
            session, status.grade.tail, [job for job in jobs if job.build == status.build]
        ),
        "gauge": urls.gauge(gauge.gauge) if gauge else None,
        "curve": error_curve.read(trend, output, declared, events) if output else None,
        "outputs": choices("output", outputs, {}),
        "metrics": choices("metric", metrics, {name: error_curve.label(name) for name in metrics}),
        "overs": choices("over", ("builds", "days"), {"builds": "by build", "days": "by day"}),
        "changes": tuple(
            ChangeLine(
                words.tamed(f"{name}: {change.words}", names),
                urls.history(variant.test_key, {**chosen, "output": name, "build": change.at})
                if over == "builds"
                else None,
            )
            for name in sorted(trend.numbers)
            for change in trend.numbers[name].changes
        ),
        "rate_changes": words.tamed(trend.rates.words, names),
        "steps": tuple(_step_line(step) for step in reversed(trend.steps)),
        "arithmetic": _arithmetic(session, jobs, status.build, noun_of(canonical)),
        "flags": tuple(flag_page.line(flag, canonical, now, newest) for flag in of_variant),
        "links": {
            "attribution": urls.of_test(
                variant.test_key, "attribution", {**here, "build": status.build}
            ),
            "changes": urls.of_test(
                variant.test_key, "changes", {**here, "over": over, "metric": metric}
            ),
            "comparison": urls.of_test(variant.test_key, "comparison", here),
        },
        "json_url": urls.history(variant.test_key, chosen, as_json=True),
    }


def _in_order(jobs: Sequence[JobFacts]) -> list[str]:
    """Return the builds in the branch's order."""
    return list(
        dict.fromkeys(job.build for job in sorted(jobs, key=lambda job: (job.sequence, job.build)))
    )


def _events(
    session: Session, variant: Variant, jobs: Sequence[JobFacts], names: Sequence[str], over: str
) -> tuple[AxisEvent, ...]:
    """Return the changes between the builds or days of an axis."""
    by_name: dict[str, list[JobFacts]] = {name: [] for name in names}
    for job in jobs:
        day = (job.finished_at or job.created_at).date().isoformat()
        by_name.get(job.build if over == "builds" else day, []).append(job)
    places = [
        AxisPlace(
            tuple(_in_order(group)) or ((name,) if over == "builds" else ()),
            tuple(job.id for job in group),
            min((job.created_at for job in group), default=None),
        )
        for name, group in ((name, by_name[name]) for name in names)
    ]
    changes = axis_changes.of_tests(session, {variant.test_key: places})[variant.test_key]
    return axis_events.of_builds(changes, names)


def _reason(
    session: Session, jobs: Sequence[JobFacts], raised: Sequence[FlagRow], verdict: str | None
) -> str:
    """Return why a build has its verdict; `jobs` are the build's, newest first."""
    if not jobs or verdict in (None, Verdict.pass_):
        return ""
    if verdict in build_cells.LOST:  # a diagnosis is of seeds with numbers
        job = jobs[0].id
        worst = worst_seeds.read(session, job, 1)
        return comparators_view.stopped(worst)
    words_found = stored_jobs.diagnosis_words(session, [job.id for job in jobs[:MAX_DIAGNOSED]])
    if words_found:
        return words_found
    of_build = [flag for flag in raised if flag.build == jobs[0].build]
    return next(
        (text for flag in of_build if (text := str(flag.evidence.get("diagnosis") or ""))), ""
    )


def _arithmetic(
    session: Session, jobs: Sequence[JobFacts], build: str | None, noun: str
) -> tuple[ArithmeticLine, ...]:
    """Return the arithmetics of a build's newest job."""
    newest = next((job.id for job in jobs if job.build == build), None)
    if newest is None:
        return ()
    return arithmetic_view.of_job(arithmetics.of_job(session, newest), noun)


def _declared(canonical: Mapping[str, Any], output: str) -> Tolerance | None:
    """Return the tolerance of an output; None where none is declared, or each test has its own."""
    if is_selection(canonical):
        return None
    return for_output(canonical.get("tolerance", {}), output)


def _deciding(declared: Tolerance | None) -> str:
    """Return the statistic of the curve that nobody chose: what decides, where allclose doesn't."""
    decides = declared is not None and declared.allclose is None
    return error_curve.metrics(declared)[0] if decides else trends.DEFAULT_METRIC


def _worst_of(worst: Sequence[str], outputs: Sequence[str]) -> Sequence[str]:
    """Return the outputs with the worst verdict that have numbers to show; else all."""
    return [output for output in outputs if output in worst] or outputs


def _first(trend: Trend, outputs: Sequence[str]) -> str:
    """Return the output to show: one that changed, else the one whose error varies most.

    "" where there is none.
    """

    def interest(output: str) -> tuple[int, float]:
        spreads = [point.numbers[output] for point in trend.points if output in point.numbers]
        edges = [edge for spread in spreads for edge in (spread.low, spread.high) if edge > 0]
        changes = trend.numbers[output].changes if output in trend.numbers else ()
        return len(changes), max(edges) / min(edges) if edges else 0.0

    return max(outputs, key=interest) if outputs else ""


def _build_line(build: BuildHistory, url: str, chosen: bool, now: datetime) -> BuildLine:
    return from_object(
        BuildLine,
        build,
        url=url,
        chosen=chosen,
        counts=counts(build.counts, max(build.seeds, 1)),
        failures=_interval(build.failures),
        hollow=_interval(build.hollow),
        lost=_interval(build.infrastructure),
        job_url=urls.job(build.last_job),
        at=timestamp(build.last_at),
        age=words.since(build.last_at, now),
    )


def _row_line(row: Configuration) -> RowLine:
    text = (
        f"{percent(row.pass_rate)}, {percent(row.pass_low)} to {percent(row.pass_high)}"
        if row.pass_low is not None
        else "Unknown"
    )
    passes = Interval(text, row.pass_rate, row.pass_low, row.pass_high)
    return from_object(RowLine, row, passes=passes)


def _step_line(step: BuildChange) -> StepLine:
    change = step.change
    looks = change.label, change.mark
    text = words.tamed(step.words, (step.before, step.after))
    return StepLine(step.before, step.after, *looks, change not in _QUIET, text)


def _interval(rate: Rate) -> Interval:
    share = rate.failures / rate.runs if rate.runs else None
    return Interval(rate_words(vars(rate)), share, rate.low, rate.high)


def _named(variant: Variant) -> dict[str, str]:
    return {"branch": variant.branch, "arch": variant.arch, "board": variant.board}


def _of_variant(query: Mapping[str, str]) -> dict[str, str]:
    return {name: query[name] for name in ("branch", "arch", "board") if name in query}
