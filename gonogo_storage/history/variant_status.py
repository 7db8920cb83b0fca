"""The grade and attribution of a test on a variant.

They are stored by the background's assessment or, where that is missing or old, computed from the
seeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from gonogo.flakiness import grades
from gonogo.flakiness.attribution import attribute
from gonogo.flakiness.rates import Outcome, Rate, rate
from gonogo.spec.verdicts import Verdict
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.history import assessments, samples
from gonogo_storage.history.samples import ReadExtent
from gonogo_storage.rollups.variants import JobFacts, Variant, jobs_of, variants_of

NOTHING_READ = ReadExtent(0, 0, 0, False)

_GREEN = (Verdict.pass_, Verdict.suspect, Verdict.pass_by_tolerance)


@dataclass(frozen=True)
class VariantStatus:
    """The grade and attribution of a variant, as the plain JSON of gonogo.flakiness."""

    variant: Variant
    build: str | None
    """The build that is graded: the newest, or the requested one; None while nothing has run."""
    grade: Mapping[str, Any]
    attribution: Mapping[str, Any]
    extent: Mapping[str, Any]
    """The part of the history that was read (gonogo_storage.history.samples.ReadExtent)."""
    source: str
    """`stored` by the background's assessment, or `computed` for this call."""
    at: str | None
    """The time of the assessment; None when computed for this call."""


def variants(session: Session, key: str) -> tuple[Variant, ...]:
    """Return the variants of a test, the one with the newest job first.

    Empty for a test that doesn't exist.
    """
    variants_found = variants_of(session, key)
    if len(variants_found) < 2:
        return variants_found
    last = {
        variant: next((job.id for job in jobs_of(session, variant, limit=1)), "")
        for variant in variants_found
    }
    return tuple(sorted(last, key=lambda variant: (last[variant], variant), reverse=True))


def read(
    session: Session,
    variant: Variant,
    *,
    build: str | None = None,
    jobs: Sequence[JobFacts] | None = None,
) -> VariantStatus:
    """Return the grade and attribution of a variant's build: the newest, or the named one.

    jobs: the variant's `jobs_of`, if the caller has it.

    The stored assessment counts where it has seen the newest job of that build. Otherwise the
    result is computed here from the newest seeds (bounded), by the same function that the
    background uses.
    """
    stored = assessments.get(session, variant)
    jobs = jobs_of(session, variant) if jobs is None else jobs
    build_name = build or newest_build(jobs)
    build_jobs = [job for job in jobs if job.build == build_name] or list(
        jobs_of(session, variant, build=build_name, limit=1) if build_name else ()
    )
    newest = max((job.id for job in build_jobs), default=None)
    if (
        stored is not None
        and stored["build"] == build_name
        and newest is not None
        and stored["job"] >= newest
    ):
        content = stored["content"]
        parts = content["grade"], content["attribution"], content["looked"]
        return VariantStatus(variant, build_name, *parts, "stored", stored["assessed_at"])
    return _computed(session, variant, build_name, newest)


def _computed(
    session: Session, variant: Variant, build: str | None, job: str | None
) -> VariantStatus:
    from gonogo_storage.history import (
        assessing,  # loads numpy, which an API that finds everything assessed never needs
    )

    assessment = assessing.assess(session, job) if job is not None else None
    if assessment is None:
        unknown = grades.grade(rate(0, 0)).to_json(), attribute([]).to_json()
        return VariantStatus(variant, build, *unknown, NOTHING_READ.to_json(), "computed", None)
    return VariantStatus(
        variant,
        build,
        assessment.grade.to_json(),
        assessment.attribution.to_json(),
        assessment.extent.to_json(),
        "computed",
        None,
    )


def newest_build(jobs: Sequence[JobFacts]) -> str | None:
    """Return the last build of the branch that has run.

    It is the one with the highest sequence; among equal ones, the one that ran last.
    """
    return max(jobs, key=lambda job: (job.sequence, job.id)).build if jobs else None


def builds(jobs: Sequence[JobFacts], most: int | None = None) -> list[dict[str, Any]]:
    """Return the results of a variant's builds, newest first: counts, and rates with intervals.

    most: at most this many builds. [{"build", "sequence", "jobs", "seeds", "counts", "failures",
    "infrastructure", "hollow", "last_job", "last_at"}]
    """
    groups: dict[tuple[int, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault((job.sequence, job.build), []).append(job)
    return [_build(groups[place]) for place in sorted(groups, reverse=True)[:most]]


def rates(jobs: Sequence[JobFacts]) -> dict[str, Any]:
    """Return {"failures", "infrastructure", "hollow"} of some jobs.

    Each is a rate with its interval, in plain JSON.
    """
    outcomes = [samples.outcomes_of(job) for job in jobs]
    lost = sum(counts[Outcome.infrastructure] for counts in outcomes)
    failures = samples.failures_of(jobs)
    return {
        "failures": failures.to_json(),
        "infrastructure": rate(lost, lost + failures.runs).to_json(),
        "hollow": _hollow(jobs).to_json(),
    }


def _build(jobs: Sequence[JobFacts]) -> dict[str, Any]:
    last = max(jobs, key=lambda job: job.id)
    counts: dict[str, int] = {}
    for job in jobs:
        for verdict, number in job.counts.items():
            counts[verdict] = counts.get(verdict, 0) + number
    about = {
        "build": last.build,
        "sequence": last.sequence,
        "jobs": len(jobs),
        "seeds": sum(job.done for job in jobs),
        "counts": counts,
    }
    return {**about, **rates(jobs), "last_job": last.id, "last_at": timestamp(last.finished_at)}


def _hollow(jobs: Sequence[JobFacts]) -> Rate:
    """Return the rate of unexplained seeds among the green ones.

    It equals gonogo.flakiness.grades.hollow, but comes from counters, however many seeds there are.
    """
    counts = {verdict: sum(job.counts.get(verdict, 0) for job in jobs) for verdict in _GREEN}
    return rate(counts[Verdict.pass_by_tolerance], sum(counts.values()))
