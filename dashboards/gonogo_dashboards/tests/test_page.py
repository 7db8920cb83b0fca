"""Read model of a test's page: one test on one variant, with the rows and results as they are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.classes import LOST
from gonogo.flakiness.grades import Grade
from gonogo.spec.described import Described
from gonogo.spec.selections import is_selection
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.kit import (
    arithmetic_view,
    axis_events,
    comparators_view,
    ranges,
    words,
)
from gonogo_dashboards.kit.advice import Advice
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.kit.list_rows import details_of, noun_of, shape_of, tolerance_of
from gonogo_dashboards.kit.ranges import Choice
from gonogo_dashboards.tests import advice, error_curve
from gonogo_dashboards.tests import strip as strips
from gonogo_dashboards.tests import tail as tails
from gonogo_dashboards.tests.waivers import waivers_of_test
from gonogo_service.flags.api import FLAGS
from gonogo_service.gauges import store as gauges
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.results import arithmetics
from gonogo_service.results import worst as worst_seeds
from gonogo_service.tests import (
    assessments,
    axis_changes,
    device_times,
    entry_names,
    matrices,
    trends,
)
from gonogo_service.tests.axis_changes import AxisPlace
from gonogo_service.tests.build_series import Over, by_place
from gonogo_service.tests.matrices import Place
from gonogo_service.tests.model import TestSpecRow
from gonogo_service.tests.trends import METRICS, Trend
from gonogo_service.tests.variants import PLACE, JobFacts, Variant, jobs_of, newest_builds

CHOICES = (*PLACE, "build", "output", "metric", "over", ranges.PARAMETER)
MAX_FLAGS = 20
MAX_DIAGNOSED = 8
"""The newest jobs of a build among which one with a diagnosis is looked for."""
MAX_BUILDS = 20
"""Builds in the table of a page; the API's answer has all of them."""
_ALL_OF = re.compile(r" (\d+) of \1 \(100%[^)]*\)(?! seeds)")
"""A rate of 100 % after the name of a mutant that passes; the gauge has its interval."""


class Badge(Described):
    """The facts of a grade besides its two axes."""

    hollow = (
        "hollow pass",
        "On this build it passes only by tolerance: rounding doesn't explain the error.",
        "",
        Verdict.pass_by_tolerance,
    )
    latent = (
        "latent flake",
        "Green, but the tail of its errors predicts failures.",
        "",
        Verdict.suspect,
    )


def badges(grade: Grade) -> tuple[Described, ...]:
    """Return both axes of a grade, and whether it is hollow or latent."""
    hollow = (Badge.hollow,) if grade.hollow else ()
    latent = (Badge.latent,) if grade.latent else ()
    return words.GRADES[grade.stability], words.GRADES[grade.sharpness], *hollow, *latent


def one(
    session: Session, key: str, query: Mapping[str, str], now: datetime
) -> dict[str, Any] | None:
    """Return the page of a test; None where there is no such test.

    It shows the variant that the query names, where it exists, else that of the main branch, else
    the one that ran last. Where no job of the test has ended, `variant` is None, and what needs a
    run is missing.
    """
    test = session.get(TestSpecRow, key)
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
            Choice("", words.variant_of(one), urls.history(key, one.place), one == variant)
            for one in variants
        ),
        "waivers": waivers_of_test(session, key, now),
        "at": timestamp(now),
    }
    if variant is None:
        period = ranges.of({}, now, lambda _: urls.history(key))
        return {**about, "variant": None, "badges": (), "range": period}
    page = _VariantPage(session, variant, chosen, test.test, now)
    return {**about, **page.grade(), **page.charts(), **page.actions()}


class _VariantPage:
    """The parts of the page about a variant that ran."""

    def __init__(
        self,
        session: Session,
        variant: Variant,
        query: Mapping[str, str],
        test: Mapping[str, Any],
        now: datetime,
    ) -> None:
        self.session, self.variant = session, variant
        self.test, self.here, self.key = test, variant.place, variant.test_key
        self.jobs = jobs_of(session, variant)
        self.period = ranges.of(
            query, now, lambda value: urls.history(self.key, {**query, ranges.PARAMETER: value})
        )
        since = self.period.since
        self.charted = [job for job in self.jobs if since is None or job.created_at >= since]
        self.status = assessments.status(session, variant, build=query.get("build"), jobs=self.jobs)
        self.of_build = [job for job in self.jobs if job.build == self.status.build]
        build = self.status.build or ""
        results = matrices.cells(session, [self.key], Place([build], **self.here))
        result = results.get((variant, build))
        self.verdict = None if result is None else result.verdict
        self.hollow = result is not None and result.hollow
        metric = query.get("metric", "")
        if metric not in METRICS:
            metric = _deciding(self._declared(query.get("output", "")))
        self.over: Over = "days" if query.get("over") == "days" else "builds"
        self.trend = trends.read(session, variant, over=self.over, metric=metric)
        self.gauge = gauges.last(session, self.key, *self.here.values())
        self.advised = self.gauge.report.advice.tolerance if self.gauge else {}
        self.flags = [
            flag
            for flag in FLAGS.page(session, test=self.key, limit=MAX_FLAGS).items
            if Variant.of(flag) == variant
        ]
        odd = {name for point in self.trend.points for name in point.nonfinite}
        self.outputs = sorted(odd | set(self.trend.numbers))
        self.output = query.get("output", "")
        if self.output not in self.outputs:
            worst = strips.outputs(session, self.jobs) if len(self.outputs) > 1 else ()
            shown = [output for output in self.outputs if output in worst] or self.outputs
            self.output = max(shown, key=lambda name: _interest(self.trend, name), default="")
        self.chosen: dict[str, str | None] = {
            **self.here,
            "build": query.get("build"),
            "output": self.output,
            "metric": metric,
            "over": self.over,
            ranges.PARAMETER: query.get(ranges.PARAMETER),
        }

    def grade(self) -> dict[str, Any]:
        """Return the grade of the build, its causes, and the table of builds."""
        status = self.status
        older = len({(job.sequence, job.build) for job in self.charted}) - MAX_BUILDS
        return {
            "variant": self.here,
            "variant_words": words.variant_of(self.variant),
            "chosen": self.chosen,
            "range": self.period,
            "status": status,
            "badges": badges(status.grade),
            "verdict": self.verdict,
            "hollow": self.hollow,
            "reason": self._reason(),
            "decided": self._decided(),
            "grade_words": tuple(_ALL_OF.sub("", part) for part in status.grade.words.split("; ")),
            "builds": assessments.builds(self.charted, MAX_BUILDS),
            "more_builds": max(0, older),
        }

    def charts(self) -> dict[str, Any]:
        """Return the strip, the tail and the curve, and what can be chosen for them."""
        trend, output = self.trend, self.output
        declared, names = self._declared(output), [point.name for point in trend.points]
        events = of_builds = self._events(names, self.over)
        if self.over != "builds":
            of_builds = self._events(_in_order(self.jobs), "builds")
        charted = self.charted if output else ()
        return {
            "strip": strips.read(
                self.session, charted, output, self.test, self.advised, self.here, of_builds
            )
            if charted
            else None,
            "tail": tails.read(self.session, self.status.grade.tail, self.of_build),
            "curve": error_curve.read(trend, output, declared, events) if output else None,
            "outputs": self._choices("output", {name: name for name in self.outputs}),
            "metrics": self._choices(
                "metric", {name: error_curve.label(name) for name in error_curve.metrics(declared)}
            ),
            "times": device_times.series(self.session, self.charted),
            "overs": self._choices("over", {"builds": "by build", "days": "by day"}),
            "changes": [
                {
                    "words": words.tamed(f"{name}: {change.words}", names),
                    "url": self._address(output=name, build=change.at)
                    if self.over == "builds"
                    else None,
                }
                for name in sorted(trend.numbers)
                for change in trend.numbers[name].changes
            ],
            "rate_changes": words.tamed(trend.rates.words, names),
            "steps": trend.steps[::-1],
        }

    def actions(self) -> dict[str, Any]:
        """Return what to do, the flags, the last gauge and the arithmetic of the newest job."""
        newest = newest_builds(self.session, [self.variant]).get(self.variant)
        steps: Iterable[Advice] = ()
        if self.status.build and self.verdict:
            tail = self.status.grade.tail
            steps = advice.steps(
                self.key,
                self.here,
                self.verdict,
                self.hollow,
                self.of_build[0].id,
                self.test,
                self.gauge.report.sharpness if self.gauge else None,
                self.advised,
                self.trend.steps,
                tail.largest if tail else None,
            )
        return {
            "advice": tuple(steps),
            "gauge": urls.gauge(self.gauge.gauge) if self.gauge else None,
            "arithmetic": arithmetic_view.of_job(
                arithmetics.of_job(self.session, self.of_build[0].id), noun_of(self.test)
            )
            if self.of_build
            else (),
            "flags": tuple(flag_page.line(flag, self.test, newest) for flag in self.flags),
        }

    def _address(self, **changed: str) -> str:
        return urls.history(self.key, {**self.chosen, **changed})

    def _choices(self, name: str, labels: Mapping[str, str]) -> list[Choice]:
        return [
            Choice(value, label, self._address(**{name: value}), value == self.chosen[name])
            for value, label in labels.items()
        ]

    def _events(self, names: Sequence[str], over: Over) -> tuple[AxisEvent, ...]:
        """Return the changes between the builds or days of an axis."""
        jobs = {name: group for (_, name), group in by_place(self.jobs, over).items()}
        places = [
            AxisPlace(
                tuple(_in_order(group)) or ((name,) if over == "builds" else ()),
                tuple(job.id for job in group),
                min((job.created_at for job in group), default=None),
            )
            for name, group in ((name, jobs.get(name, [])) for name in names)
        ]
        changes = axis_changes.of_tests(self.session, {self.key: places})[self.key]
        return axis_events.of_builds(changes, names)

    def _reason(self) -> str:
        """Return why the build has its verdict."""
        if not self.of_build or self.verdict in (None, Verdict.pass_):
            return ""
        ids = [job.id for job in self.of_build[:MAX_DIAGNOSED]]
        if self.verdict in LOST:  # a diagnosis is of seeds with numbers
            return comparators_view.stopped(worst_seeds.read(self.session, ids[0], 1))
        diagnoses = (
            str(flag.evidence.get("diagnosis") or "")
            for flag in self.flags
            if flag.build == self.status.build
        )
        return stored_jobs.diagnosis_words(self.session, ids) or next(filter(None, diagnoses), "")

    def _decided(self) -> str:
        if not self.of_build:
            return ""
        tolerance = self.test.get("tolerance", {})
        return comparators_view.of_job(self.session, self.of_build[0].id, tolerance)

    def _declared(self, output: str) -> Tolerance | None:
        """Return an output's tolerance; None without one, or where each test has its own."""
        if is_selection(self.test):
            return None
        return for_output(self.test.get("tolerance", {}), output)


def _in_order(jobs: Iterable[JobFacts]) -> list[str]:
    """Return the builds in the branch's order."""
    return [build for _, build in sorted({(job.sequence, job.build) for job in jobs})]


def _deciding(declared: Tolerance | None) -> str:
    """Return the statistic of the curve that nobody chose: what decides, where allclose doesn't."""
    decides = declared is not None and declared.allclose is None
    return error_curve.metrics(declared)[0] if decides else trends.DEFAULT_METRIC


def _interest(trend: Trend, output: str) -> tuple[int, float]:
    """Return how much an output has to show: its changes, then how much its error varies."""
    spreads = [point.numbers[output] for point in trend.points if output in point.numbers]
    edges = [edge for spread in spreads for edge in (spread.low, spread.high) if edge > 0]
    changes = trend.numbers[output].changes if output in trend.numbers else ()
    return len(changes), max(edges) / min(edges) if edges else 0.0
