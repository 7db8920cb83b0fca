"""The grade and attribution of a test on a variant.

They are stored by the background's assessment or, where that is missing or old, computed from the
seeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from sqlalchemy.orm import Session

from gonogo.flakiness import grades
from gonogo.flakiness.attribution import Attribution, attribute
from gonogo.flakiness.grades import Grade
from gonogo.flakiness.rates import Outcome, Rate, rate
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.kit.database.records import from_json, from_object
from gonogo_service.tests import assessments, samples
from gonogo_service.tests.variants import JobFacts, Variant, jobs_of, variants_of

NOTHING_READ = ReadExtent.of(0, 0, 0, more_jobs=False)


@dataclass(frozen=True)
class AssessmentSource:
    """The source of an assessment."""

    source: Literal["stored", "computed"]
    """Stored by the background process, or computed for this answer"""
    at: datetime | None
    """Time of the assessment; null if computed for this answer"""


COMPUTED = AssessmentSource("computed", None)


@dataclass(frozen=True)
class VariantStatus:
    """The grade and attribution of a variant."""

    variant: Variant
    build: str | None
    """The build that is graded: the newest, or the requested one; None while nothing has run."""
    grade: Grade
    attribution: Attribution
    extent: ReadExtent
    assessed: AssessmentSource


@dataclass(frozen=True)
class Rates:
    """The rates of some jobs, from their counters."""

    failures: Rate
    infrastructure: Rate
    """Rate of hangs, crashes and errors among all runs"""
    hollow: Rate
    """Rate of passing seeds that rounding doesn't explain"""


@dataclass(frozen=True)
class BuildHistory(Rates):
    """The results of a test on one build of a variant."""

    build: str
    sequence: int
    jobs: int
    seeds: int
    counts: dict[str, int]
    last_job: str
    last_at: datetime | None


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
        and stored.build == build_name
        and newest is not None
        and stored.job >= newest
    ):
        content = stored.content
        with suppress(ValueError):  # another version stored it
            return VariantStatus(
                variant,
                build_name,
                from_json(Grade, content["grade"]),
                from_json(Attribution, content["attribution"]),
                from_json(ReadExtent, content["extent"]),
                AssessmentSource("stored", stored.assessed_at),
            )
    return _computed(session, variant, build_name, newest)


def _computed(
    session: Session, variant: Variant, build: str | None, job: str | None
) -> VariantStatus:
    from gonogo_service.tests import assessing

    assessment = assessing.assess(session, job) if job is not None else None
    parts = (
        (grades.grade(rate(0, 0)), attribute([]), NOTHING_READ)
        if assessment is None
        else (assessment.grade, assessment.attribution, assessment.extent)
    )
    return VariantStatus(variant, build, *parts, COMPUTED)


def newest_build(jobs: Sequence[JobFacts]) -> str | None:
    """Return the last build of the branch that has run.

    It is the one with the highest sequence; among equal ones, the one that ran last.
    """
    return max(jobs, key=lambda job: (job.sequence, job.id)).build if jobs else None


def builds(jobs: Sequence[JobFacts], most: int | None = None) -> list[BuildHistory]:
    """Return the results of a variant's builds, newest first; at most this many builds."""
    groups: dict[tuple[int, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault((job.sequence, job.build), []).append(job)
    return [_build(groups[place]) for place in sorted(groups, reverse=True)[:most]]


def rates(jobs: Sequence[JobFacts]) -> Rates:
    """Return the rates of some jobs with their intervals."""
    outcomes = [samples.outcomes_of(job) for job in jobs]
    lost = sum(counts[Outcome.infrastructure] for counts in outcomes)
    failures = samples.failures_of(jobs)
    return Rates(
        failures, rate(lost, lost + failures.runs), grades.hollow([job.counts for job in jobs])
    )


def _build(jobs: Sequence[JobFacts]) -> BuildHistory:
    last = max(jobs, key=lambda job: job.id)
    counts: Counter[str] = Counter()
    for job in jobs:
        counts.update(job.counts)
    return from_object(
        BuildHistory,
        rates(jobs),
        last,
        jobs=len(jobs),
        seeds=sum(job.done for job in jobs),
        counts=dict(counts),
        last_job=last.id,
        last_at=last.finished_at,
    )
