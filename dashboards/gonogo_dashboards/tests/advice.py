"""Advice about a test: the steps that its verdict, its gauge and its changes suggest. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gonogo import urls
from gonogo.flakiness.grades import Sharpness
from gonogo.flakiness.masking import BuildChange, Change
from gonogo.gauge.advice import spelled
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.tolerance_advice import Advice, of_false_alarm, with_tolerance

_BROKEN = (Change.broken, Change.fix_masked, Change.wrong_otherwise)


def steps(
    key: str,
    variant: Mapping[str, str],
    verdict: str,
    hollow: bool,
    job: str,
    test: Mapping[str, Any],
    sharpness: str | None,
    advised: Mapping[str, Any],
    changes: Sequence[BuildChange],
    largest: float | None = None,
) -> tuple[Advice, ...]:
    """Return the steps for a test on a build, the most urgent first; none where all is well.

    verdict: the worst of its seeds; hollow: some seed is a hollow pass. job: the newest job of the
    build. test: its canonical form. sharpness, advised: the last gauge's finding, None without a
    gauge, and its tolerance, {} for none. changes: those from build to build, the newest last.
    largest: the largest error of the build, divided by the tolerance.
    """
    steps = []
    if hollow or verdict == Verdict.fail:
        steps.append(
            Advice(
                "The kernel is wrong. Its worst seeds name the fault, or say where it shows.",
                "Show the worst seeds",
                urls.job(job),
            )
        )
        changed = next((step for step in reversed(changes) if step.change in _BROKEN), None)
        if changed is not None:
            where = f"between {words.brief(changed.before)} and {words.brief(changed.after)}"
            steps.append(
                Advice(
                    f"It changed {where}.",
                    "Compare these builds",
                    urls.compare(changed.before, changed.after),
                )
            )
            span = {"branch": variant["branch"], "first": changed.before, "last": changed.after}
            steps.append(
                Advice(
                    "A bisection finds the build that did it.",
                    "Bisect between these builds",
                    urls.form(urls.NEW_BISECTION, {"test": key, **span}),
                )
            )
    if verdict in (Verdict.crash, Verdict.hang, Verdict.error):
        why = "Some seeds have no result: the log shows what stopped them."
        steps.append(Advice(why, "Show its log", urls.job(job)))
    if advised and (hollow or sharpness == Sharpness.blunt):
        steps.append(
            Advice(
                f"The tolerance is loose. The gauge advises {spelled(advised)}.",
                "Submit with this tolerance",
                with_tolerance(key, test, advised),
            )
        )
    if verdict == Verdict.fail_by_tolerance:
        steps.append(of_false_alarm(key, test, advised, largest))
    if sharpness is None:
        steps.append(
            Advice(
                "No gauge has measured whether this test would notice a wrong kernel.",
                "Gauge this test",
                urls.form(urls.NEW_GAUGE, {"test": key, **variant}),
            )
        )
    if verdict in (Verdict.suspect, Verdict.inconclusive):
        steps.append(
            Advice("A few seeds can't decide.", "Run more seeds", urls.new_job({"from": job}))
        )
    return tuple(steps)
