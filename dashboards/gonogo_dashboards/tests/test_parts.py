"""The parts of a test's page that need runs: grade, charts, and what to do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy.orm import Session

from gonogo import urls
from gonogo.flakiness.attribution import Cause
from gonogo.spec.selections import is_selection
from gonogo.spec.tolerances import Tolerance, for_output
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.flags import flag_page
from gonogo_dashboards.kit import (
    arithmetic_view,
    build_cells,
    comparators_view,
    ranges,
    words,
)
from gonogo_dashboards.kit.list_rows import counts, noun_of
from gonogo_dashboards.kit.tolerance_advice import Advice
from gonogo_dashboards.tests import advice, error_curve
from gonogo_dashboards.tests import strip as strips
from gonogo_dashboards.tests.test_lines import badges, interval, row_line
from gonogo_service.flags import store as flags
from gonogo_service.gauges import store as gauges
from gonogo_service.jobs import store as stored_jobs
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.results import arithmetics
from gonogo_service.results import worst as worst_seeds
from gonogo_service.tests import assessments, trends
from gonogo_service.tests.build_series import Over
from gonogo_service.tests.trends import METRICS, Trend
from gonogo_service.tests.variants import Variant, jobs_of, newest_builds

MAX_FLAGS = 20
MAX_DIAGNOSED = 8
"""The newest jobs of a build among which one with a diagnosis is looked for."""
MAX_BUILDS = 20
"""Builds in the table of a page; the API's answer has all of them."""
_ALL_OF = re.compile(r" (\d+) of \1 \(100%[^)]*\)(?! seeds)")
"""A rate of 100 % after the name of a mutant that passes; the gauge has its interval."""


class VariantPage:
    """The parts of a page about a variant that ran."""

    def __init__(
        self,
        session: Session,
        variant: Variant,
        query: Mapping[str, str],
        canonical: Mapping[str, Any],
        now: datetime,
    ) -> None:
        self.session, self.variant, self.query, self.now = session, variant, query, now
        self.canonical, self.here, self.key = canonical, variant.place, variant.test_key
        self.jobs = jobs_of(session, variant)
        self.period = ranges.of(
            query, now, lambda value: urls.history(self.key, {**query, ranges.PARAMETER: value})
        )
        since = self.period.since
        self.charted = [job for job in self.jobs if since is None or job.created_at >= since]
        self.status = assessments.status(session, variant, build=query.get("build"), jobs=self.jobs)
        self.of_build = [job for job in self.jobs if job.build == self.status.build]
        seeds = sum((Counter(job.counts) for job in self.of_build), Counter[str]())
        # as on the job's page: a build on which seeds hung is no pass
        self.verdict = next(iter(words.ordered(seeds)), None)
        self.hollow = bool(seeds[build_cells.HOLLOW])
        metric = query.get("metric", "")
        if metric not in METRICS:
            metric = _deciding(self.declared(query.get("output", "")))
        self.over: Over = "days" if query.get("over") == "days" else "builds"
        self.trend = trends.read(session, variant, over=self.over, metric=metric)
        self.gauge = gauges.last(session, self.key, *self.here.values())
        self.advised = self.gauge.report.advice.tolerance if self.gauge else {}
        self.flags = [
            flag
            for flag in flags.newest(session, test=self.key, limit=MAX_FLAGS).items
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
        status, cause, now = self.status, self.status.attribution, self.now
        extent = f"from {status.extent.words}"
        return {
            "variant": self.here,
            "variant_words": words.variant_of(self.variant),
            "range": self.period,
            "build": status.build,
            "badges": badges(status.grade),
            "verdict": self.verdict,
            "hollow": self.hollow,
            "reason": self._reason(),
            "decided": self._decided(),
            "grade_words": tuple(_ALL_OF.sub("", part) for part in status.grade.words.split("; ")),
            "failures": interval(status.grade.failures),
            "assessed": f"assessed {words.since(status.assessed.at, now)}, {extent}"
            if status.assessed.at
            else extent,
            "cause": cause.cause.label,
            "steady": cause.cause is Cause.stable,
            "cause_words": cause.words,
            "factors": [
                {
                    "words": finding.cause.label,
                    "holds": finding.holds,
                    "evidence": finding.words,
                }
                for finding in cause.findings
            ],
            "contexts": list(map(row_line, cause.contexts)),
            "devices": list(map(row_line, cause.devices)),
        }

    def builds(self) -> dict[str, Any]:
        """Return the table of builds."""
        of_any_build = urls.history(self.key, {**self.chosen, "build": None})
        older = len({(job.sequence, job.build) for job in self.charted}) - MAX_BUILDS
        lines = [
            {
                "build": build.build,
                "url": of_any_build + urls.further("build", build.build),
                "chosen": build.build == self.status.build,
                "seeds": build.seeds,
                "jobs": build.jobs,
                "counts": counts(build.counts, max(build.seeds, 1)),
                "failures": interval(build.failures),
                "hollow": interval(build.hollow),
                "lost": interval(build.infrastructure),
                "job_url": urls.job(build.last_job),
                "at": timestamp(build.last_at),
                "age": words.since(build.last_at, self.now),
            }
            for build in assessments.builds(self.charted, MAX_BUILDS)
        ]
        return {"builds": lines, "more_builds": max(0, older)}

    def actions(self) -> dict[str, Any]:
        """Return what to do, the flags, the last gauge and the arithmetic of the newest job."""
        newest = newest_builds(self.session, [self.variant]).get(self.variant)
        steps: tuple[Advice, ...] = ()
        if self.status.build and self.verdict:
            tail = self.status.grade.tail
            steps = advice.steps(
                self.key,
                self.here,
                self.verdict,
                self.hollow,
                self.of_build[0].id,
                self.canonical,
                self.gauge.report.sharpness if self.gauge else None,
                self.advised,
                self.trend.steps,
                tail.largest if tail else None,
            )
        return {
            "advice": steps,
            "gauge": urls.gauge(self.gauge.gauge) if self.gauge else None,
            "arithmetic": arithmetic_view.of_job(
                arithmetics.of_job(self.session, self.of_build[0].id), noun_of(self.canonical)
            )
            if self.of_build
            else (),
            "flags": tuple(
                flag_page.line(flag, self.canonical, self.now, newest) for flag in self.flags
            ),
        }

    def _reason(self) -> str:
        """Return why the build has its verdict."""
        if not self.of_build or self.verdict in (None, Verdict.pass_):
            return ""
        ids = [job.id for job in self.of_build[:MAX_DIAGNOSED]]
        if self.verdict in build_cells.LOST:  # a diagnosis is of seeds with numbers
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
        tolerance = self.canonical.get("tolerance", {})
        return comparators_view.of_job(self.session, self.of_build[0].id, tolerance)

    def declared(self, output: str) -> Tolerance | None:
        """Return an output's tolerance; None without one, or where each test has its own."""
        if is_selection(self.canonical):
            return None
        return for_output(self.canonical.get("tolerance", {}), output)


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
