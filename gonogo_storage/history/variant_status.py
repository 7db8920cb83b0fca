"""How a test stands on a variant: grade and attribution, as assessed in the background or, where
that is missing or old, from its seeds.
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
from gonogo_storage.history.samples import Looked
from gonogo_storage.rollups.variants import JobFacts, Variant, jobs_of, variants_of

NOTHING = Looked(0, 0, 0, False)

_GREEN = (Verdict.pass_, Verdict.suspect, Verdict.pass_by_tolerance)


@dataclass(frozen=True)
class Standing:
    """What is known of a variant. `grade` and `attribution` are the plain JSON of
    gonogo.flakiness.
    """

    variant: Variant
    build: str | None
    """The build that the grade is of: the newest one, or the one that was asked for; None while
    nothing ran."""
    grade: Mapping[str, Any]
    attribution: Mapping[str, Any]
    looked: Mapping[str, Any]
    """Which part of the history was read (gonogo_storage.history.samples.Looked)."""
    source: str
    """`stored`: by the background's assessment; `computed`: for this answer."""
    at: str | None
    """When it was assessed; None when computed for this answer."""


def variants(session: Session, key: str) -> tuple[Variant, ...]:
    """The variants of a test, the one whose job was submitted last first; empty for a test that
    doesn't exist.
    """
    found = variants_of(session, key)
    if len(found) < 2:
        return found
    last = {each: next((job.id for job in jobs_of(session, each, limit=1)), "") for each in found}
    return tuple(sorted(last, key=lambda each: (last[each], each), reverse=True))


def read(
    session: Session,
    variant: Variant,
    *,
    build: str | None = None,
    jobs: Sequence[JobFacts] | None = None,
) -> Standing:
    """Grade and attribution of the newest build of a variant, or of the one that is named. jobs:
    what `jobs_of` gave of it, if it is known.

    The stored assessment where it has seen the newest job of that build; else it is computed here
    from the newest seeds (bounded), by the same function that the background uses.
    """
    stored = assessments.get(session, variant)
    jobs = jobs_of(session, variant) if jobs is None else jobs
    wanted = build or newest_build(jobs)
    own = [job for job in jobs if job.build == wanted] or list(
        jobs_of(session, variant, build=wanted, limit=1) if wanted else ()
    )
    newest = max((job.id for job in own), default=None)
    if (
        stored is not None
        and stored["build"] == wanted
        and newest is not None
        and stored["job"] >= newest
    ):
        content = stored["content"]
        parts = content["grade"], content["attribution"], content["looked"]
        return Standing(variant, wanted, *parts, "stored", stored["assessed_at"])
    return _computed(session, variant, wanted, newest)


def _computed(session: Session, variant: Variant, build: str | None, job: str | None) -> Standing:
    from gonogo_storage.history import (
        assessing,  # loads numpy, which an API that finds everything assessed never needs
    )

    found = assessing.assess(session, job) if job is not None else None
    if found is None:
        unknown = grades.grade(rate(0, 0)).to_json(), attribute([]).to_json()
        return Standing(variant, build, *unknown, NOTHING.to_json(), "computed", None)
    return Standing(
        variant,
        build,
        found.grade.to_json(),
        found.attribution.to_json(),
        found.looked.to_json(),
        "computed",
        None,
    )


def newest_build(jobs: Sequence[JobFacts]) -> str | None:
    """The last build of the branch that has run: by its sequence, among equals the one that ran
    last.
    """
    return max(jobs, key=lambda job: (job.sequence, job.id)).build if jobs else None


def builds(jobs: Sequence[JobFacts], most: int | None = None) -> list[dict[str, Any]]:
    """What each build of a variant did, in the order of the branch, newest first: counts, and rates
    with intervals; the newest `most`.

    [{"build", "sequence", "jobs", "seeds", "counts", "failures", "infrastructure", "hollow",
    "last_job", "last_at"}]
    """
    groups: dict[tuple[int, str], list[JobFacts]] = {}
    for job in jobs:
        groups.setdefault((job.sequence, job.build), []).append(job)
    return [_build(groups[place]) for place in sorted(groups, reverse=True)[:most]]


def rates(jobs: Sequence[JobFacts]) -> dict[str, Any]:
    """{"failures", "infrastructure", "hollow"} of some jobs, each a rate with its interval, in
    plain JSON.
    """
    told = [samples.outcomes_of(job) for job in jobs]
    lost = sum(each[Outcome.infrastructure] for each in told)
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
    """How many green seeds are unexplained: what gonogo.flakiness.grades.hollow says, from
    counters, however many seeds there are.
    """
    counts = {verdict: sum(job.counts.get(verdict, 0) for job in jobs) for verdict in _GREEN}
    return rate(counts[Verdict.pass_by_tolerance], sum(counts.values()))
