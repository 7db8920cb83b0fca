"""Advice about a test: the steps that its verdict, its gauge and its changes suggest. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gonogo import urls
from gonogo.flakiness.classes import LOST
from gonogo.flakiness.grades import Sharpness
from gonogo.flakiness.masking import BuildChange, Change
from gonogo.gauge.advice import spelled
from gonogo.spec.verdicts import Verdict
from gonogo_dashboards.kit import words
from gonogo_dashboards.kit.advice import (
    Advice,
    of_false_alarm,
    to_bisect,
    to_gauge,
    with_tolerance,
)

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
) -> Iterator[Advice]:
    """Yield the steps for a test on a build, the most urgent first; none where all is well.

    verdict: the worst of its seeds; hollow: some seed is a hollow pass. job: the newest job of the
    build. test: its canonical form. sharpness, advised: the last gauge's finding, None without a
    gauge, and its tolerance, {} for none. changes: those from build to build, the newest last.
    largest: the largest error of the build, divided by the tolerance.
    """
    if hollow or verdict == Verdict.fail:
        text = "The kernel is wrong. Its worst seeds name the fault, or say where it shows."
        yield Advice(text, "Show the worst seeds", urls.job(job))
        changed = next((step for step in reversed(changes) if step.change in _BROKEN), None)
        if changed is not None:
            ends = changed.before, changed.after
            text = f"It changed between {words.brief(ends[0])} and {words.brief(ends[1])}."
            yield Advice(text, "Compare these builds", urls.compare(*ends))
            yield to_bisect(key, variant["branch"], *ends)
    if verdict in LOST:
        text = "Some seeds have no result: the log shows what stopped them."
        yield Advice(text, "Show its log", urls.job(job))
    if advised and (hollow or sharpness == Sharpness.blunt):
        text = f"The tolerance is loose. The gauge advises {spelled(advised)}."
        yield Advice(text, "Submit with this tolerance", with_tolerance(key, test, advised))
    if verdict == Verdict.fail_by_tolerance:
        yield of_false_alarm(key, test, advised, largest)
    if sharpness is None:
        yield to_gauge(key, variant)
    if verdict in (Verdict.suspect, Verdict.inconclusive):
        yield Advice("A few seeds can't decide.", "Run more seeds", urls.new_job({"from": job}))
