"""How a test stands on one variant: grade and attribution, as assessed in the background or, where that is missing or old, from its seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.flakiness import grades
from gonogo.flakiness.attribution import attribute
from gonogo.flakiness.rates import Rate, rate, rate_of
from gonogo.flakiness.tails import tail
from gonogo.verdicts import Verdict
from storage import samples
from storage.encoding import timestamp
from storage.variants import JobFacts, Variant, failures_of, jobs_of, variants_of

_GREEN = (Verdict.pass_, Verdict.suspect, Verdict.pass_by_tolerance)


@dataclass(frozen=True)
class Standing:
    """What is known of a variant. `grade` and `attribution` are the plain JSON of gonogo.flakiness."""

    variant: Variant
    build: str | None
    """The build that the grade is of: the newest one, or the one that was asked for; None while nothing ran."""
    grade: Mapping[str, Any]
    attribution: Mapping[str, Any]
    looked: Mapping[str, Any]
    """Which part of the history was read (storage.samples.Looked)."""
    source: str
    """`stored`: by the background's assessment; `computed`: for this answer."""
    at: str | None
    """When it was assessed; None when computed for this answer."""


def variants(session: Session, key: str) -> tuple[Variant, ...]:
    """The variants of a test, the one whose job was submitted last first; empty for a test that doesn't exist."""
    last = {each: next((job.id for job in jobs_of(session, each, limit=1)), "") for each in variants_of(session, key)}
    return tuple(sorted(last, key=lambda each: (last[each], each), reverse=True))


def read(session: Session, variant: Variant, *, build: str | None = None) -> Standing:
    """Grade and attribution of a variant; of one of its builds, if named."""
    return _computed(session, variant, build)


def _computed(session: Session, variant: Variant, build: str | None) -> Standing:
    history = samples.read(session, variant, build=build)
    newest = build or newest_build(history.jobs)
    runs = tuple(run for run in history.runs if run.job.build == newest)
    graded = samples.History(variant, tuple(job for job in history.jobs if job.build == newest), runs, history.looked)
    failures, _ = rate_of(each.outcome for each in samples.samples(graded))
    foretold = tail(samples.ratios(graded)) if any(run.ratio is not None for run in runs) else None
    grade = grades.grade(failures, foretold, {}, grades.hollow(run.verdict for run in runs))
    found = attribute(samples.samples(history))
    return Standing(variant, newest, grade.to_json(), found.to_json(), history.looked.to_json(), "computed", None)


def newest_build(jobs: Sequence[JobFacts]) -> str | None:
    """The last build of the line that has run: by its sequence, among equals the one that ran last."""
    return max(jobs, key=lambda job: (job.sequence, job.id)).build if jobs else None


def builds(jobs: Sequence[JobFacts]) -> list[dict[str, Any]]:
    """What each build of a variant did, in the order of the line, newest first: counts, and rates with intervals.

    [{"build", "sequence", "jobs", "seeds", "counts", "failures", "infrastructure", "hollow", "last_job", "last_at"}]
    """
    groups: dict[tuple[int, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault((job.sequence, job.build), []).append(job)
    return [_build(groups[place]) for place in sorted(groups, reverse=True)]


def rates(jobs: Sequence[JobFacts]) -> dict[str, Any]:
    """{"failures", "infrastructure", "hollow"} of some jobs, each a rate with its interval, in plain JSON."""
    failures, lost = failures_of(tuple(jobs))
    return {"failures": failures.to_json(), "infrastructure": lost.to_json(), "hollow": _hollow(jobs).to_json()}


def _build(jobs: Sequence[JobFacts]) -> dict[str, Any]:
    last = max(jobs, key=lambda job: job.id)
    counts: dict[str, int] = {}
    for job in jobs:
        for verdict, number in job.counts.items():
            counts[verdict] = counts.get(verdict, 0) + number
    about = {"build": last.build, "sequence": last.sequence, "jobs": len(jobs), "seeds": sum(job.done for job in jobs), "counts": counts}
    return {**about, **rates(jobs), "last_job": last.id, "last_at": timestamp(last.finished_at)}


def _hollow(jobs: Sequence[JobFacts]) -> Rate:
    """How many green seeds are unexplained: what gonogo.flakiness.grades.hollow says, from counters, however many seeds there are."""
    counts = {verdict: sum(job.counts.get(verdict, 0) for job in jobs) for verdict in _GREEN}
    return rate(counts[Verdict.pass_by_tolerance], sum(counts.values()))
