"""The charts of a test's page: every seed by build, the tail, and a statistic over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gonogo import urls
from gonogo_dashboards.kit import axis_events, words
from gonogo_dashboards.kit.axis_events import AxisEvent
from gonogo_dashboards.tests import error_curve
from gonogo_dashboards.tests import strip as strips
from gonogo_dashboards.tests import tail as tails
from gonogo_dashboards.tests.test_lines import choice, step_line
from gonogo_dashboards.tests.test_parts import VariantPage
from gonogo_service.tests import axis_changes
from gonogo_service.tests.axis_changes import AxisPlace
from gonogo_service.tests.build_series import Over, by_place
from gonogo_service.tests.variants import JobFacts


def charts(page: VariantPage) -> dict[str, Any]:
    """Return the strip, the tail and the curve, and what can be chosen for them."""
    key, chosen, trend, output = page.key, page.chosen, page.trend, page.output
    declared, names = page.declared(output), [point.name for point in trend.points]
    metrics = error_curve.metrics(declared)
    events = of_builds = _events(page, names, page.over)
    if page.over != "builds":
        of_builds = _events(page, _in_order(page.jobs), "builds")

    def choices(name: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        return [
            choice(label, urls.history(key, {**chosen, name: value}), value == chosen[name])
            for value, label in labels.items()
        ]

    def change_url(output: str, build: str) -> str | None:
        of_change = {**chosen, "output": output, "build": build}
        return urls.history(key, of_change) if page.over == "builds" else None

    return {
        "strip": strips.read(
            page.session,
            page.charted,
            output,
            page.canonical,
            page.advised,
            page.here,
            of_builds,
        )
        if output and page.charted
        else None,
        "tail": tails.read(page.session, page.status.grade.tail, page.of_build),
        "curve": error_curve.read(trend, output, declared, events) if output else None,
        "outputs": choices("output", {name: name for name in page.outputs}),
        "metrics": choices("metric", {name: error_curve.label(name) for name in metrics}),
        "overs": choices("over", {"builds": "by build", "days": "by day"}),
        "changes": [
            {
                "words": words.tamed(f"{name}: {one.words}", names),
                "url": change_url(name, one.at),
            }
            for name in sorted(trend.numbers)
            for one in trend.numbers[name].changes
        ],
        "rate_changes": words.tamed(trend.rates.words, names),
        "steps": list(map(step_line, reversed(trend.steps))),
        "links": {
            what: urls.of_test(key, what, {**page.here, **more})
            for what, more in (
                ("attribution", {"build": page.status.build}),
                ("changes", {"over": page.over, "metric": trend.metric}),
                ("comparison", {}),
            )
        },
        "json_url": urls.history(key, chosen, as_json=True),
    }


def _events(page: VariantPage, names: Sequence[str], over: Over) -> tuple[AxisEvent, ...]:
    """Return the changes between the builds or days of an axis."""
    jobs = {name: group for (_, name), group in by_place(page.jobs, over).items()}
    places = [
        AxisPlace(
            tuple(_in_order(group)) or ((name,) if over == "builds" else ()),
            tuple(job.id for job in group),
            min((job.created_at for job in group), default=None),
        )
        for name, group in ((name, jobs.get(name, [])) for name in names)
    ]
    changes = axis_changes.of_tests(page.session, {page.key: places})[page.key]
    return axis_events.of_builds(changes, names)


def _in_order(jobs: Sequence[JobFacts]) -> list[str]:
    """Return the builds in the branch's order."""
    return [build for _, build in sorted({(job.sequence, job.build) for job in jobs})]
