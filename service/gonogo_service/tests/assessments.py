"""The stored assessments, one per variant, and what they say now: grade, causes and rates.

`conclude` writes them with the flags that follow from one; the API and the pages read them. The
statistics are in gonogo_service.tests.assessing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from sqlalchemy import and_, case, func, select
from sqlalchemy.orm import Session

from gonogo.flakiness import grades
from gonogo.flakiness.attribution import Attribution, attribute
from gonogo.flakiness.grades import Grade
from gonogo.flakiness.policy import POLICY
from gonogo.flakiness.rates import Outcome, Rate, rate
from gonogo_service.flags import store as flags
from gonogo_service.flags.evidence_kinds import ReadExtent
from gonogo_service.flags.evidence_kinds import stored as as_stored
from gonogo_service.flags.expiry import Quiet
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.records import from_json
from gonogo_service.kit.database.states import LISTED_KINDS
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests import assessing, samples
from gonogo_service.tests.model import AssessmentRow
from gonogo_service.tests.variants import (
    ENDED,
    MAIN,
    NAMES,
    JobFacts,
    Variant,
    graded_job,
    jobs_of,
)

if TYPE_CHECKING:
    from gonogo_service.tests.assessing import Assessment

ASSESS = "assess"
"""Topic of the message that requests the assessment of a closed job's variant."""


@dataclass(frozen=True)
class AssessmentSource:
    """The source of an assessment."""

    source: Literal["stored", "computed"]
    """Stored by the background process, or computed for this answer"""
    at: datetime | None
    """Time of the assessment; null if computed for this answer"""


@dataclass(frozen=True)
class VariantStatus:
    """The grade and attribution of a variant."""

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


def request_assessment(session: Session, variant: Variant, reason: str, *, now: datetime) -> bool:
    """Request a new assessment of a variant, by the job that its grade is based on.

    Returns False where no job of it is over. reason: makes the message unique, for example
    `gauge:<id>`. A second request with the same reason is ignored.
    """
    newest = graded_job(session, variant)
    if newest is not None:
        outbox.add(session, ASSESS, f"{ASSESS}:{newest.id}:{reason}", {"job": newest.id}, now=now)
    return newest is not None


def catch_up(session: Session, *, now: datetime) -> int:
    """Request assessments of variants with jobs but no assessment; return their number.

    There are some after an upgrade from a version that made none.
    """
    columns = [getattr(JobRow, name) for name in NAMES]
    assessed = select(AssessmentRow.test_key).where(
        *(getattr(AssessmentRow, column.key) == column for column in columns)
    )
    query = select(*columns).where(ENDED, ~assessed.exists()).distinct().order_by(*columns)
    jobs = (graded_job(session, Variant(*row)) for row in session.execute(query).all())
    messages = {f"{ASSESS}:{job.id}": job.id for job in jobs if job is not None}
    # messages of jobs that have just been closed exist already
    missing = sorted(messages.keys() - outbox.known(session, list(messages)))
    for dedupe in missing:
        outbox.add(session, ASSESS, dedupe, {"job": messages[dedupe]}, now=now)
    return len(missing)


def conclude(
    session: Session,
    assessment: Assessment,
    raised: Sequence[FlagRow],
    quiet: Sequence[tuple[str, int, Quiet]],
    *,
    now: datetime,
    message_id: str | None = None,
) -> bool:
    """Store an assessment, open or renew its flags, and resolve the quiet ones.

    quiet: (flag id, version that was read, quiet period) of each flag to resolve. message_id: the
    outbox message that requested it; it is marked as delivered in the same transaction. Returns
    False, and writes nothing, when another process has done so already. So each message counts
    once, whichever process dies.
    """
    if message_id is not None and not outbox.delivered(session, [message_id], now=now):
        return False
    put(session, assessment, now=now)
    for finding in raised:
        flags.upsert(session, finding, now=now)
    for flag_id, version, quiet_period in quiet:
        detail = quiet_period.detail
        why, stored_detail = str(detail.words), as_stored(detail)
        flags.resolve(session, flag_id, version=version, why=why, detail=stored_detail, now=now)
    return True


def put(session: Session, assessment: Assessment, *, now: datetime) -> None:
    """Store the assessment in the variant's row, which describes the branch's newest build.

    An assessment of an older build renews only the trends.
    """
    job, grade, failures = assessment.job, assessment.grade, assessment.attribution.failures
    content = assessment.to_json()
    fresh = {
        "build": job.build,
        "build_sequence": job.sequence,
        "job_id": job.id,
        "stability": grade.stability.value,
        "sharpness": grade.sharpness.value,
        "change": None if assessment.change is None else assessment.change.change.value,
        "failures": failures.failures,
        "runs": failures.runs,
        "content": content,
        "policy": POLICY.version,
        "assessed_at": now,
    }
    key = asdict(assessment.variant)
    insert_once(session, AssessmentRow, [{**key, **fresh, "version": 0}])
    row = session.get_one(
        AssessmentRow, tuple(key.values()), with_for_update=True, populate_existing=True
    )
    if row.version and job.sequence < row.build_sequence:
        fresh = {"content": {**row.content, "trends": content["trends"]}, "assessed_at": now}
    for name, value in fresh.items():
        setattr(row, name, value)
    row.version += 1
    session.flush()


def get(session: Session, variant: Variant) -> AssessmentRow | None:
    """Return the assessment of a variant, or None."""
    return session.get(AssessmentRow, (variant.test_key, *variant.place.values()))


def variants(session: Session, key: str) -> tuple[Variant, ...]:
    """Return the variants of a test: those of the main branch, then the one that ran last, first.

    Variants of which no job has ended come last.
    """
    columns = [getattr(JobRow, name) for name in NAMES]
    last = func.max(case((ENDED, JobRow.created_at)))
    is_main = case((and_(JobRow.branch.in_(MAIN), last.is_not(None)), 1), else_=0)
    listed = JobRow.test_key == key, JobRow.kind.in_(LISTED_KINDS)
    query = select(*columns).where(*listed).group_by(*columns)
    query = query.order_by(is_main.desc(), last.desc().nulls_last(), *columns)
    return tuple(Variant(*row) for row in session.execute(query))


def status(
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
    jobs = jobs_of(session, variant) if jobs is None else jobs
    name = build or newest_build(jobs)
    of_build = [job.id for job in jobs if job.build == name]
    if name and not of_build:
        of_build = [job.id for job in jobs_of(session, variant, build=name, limit=1)]
    newest = max(of_build, default="")
    stored = get(session, variant)
    if stored is not None and newest and stored.build == name and stored.job_id >= newest:
        content = stored.content
        with suppress(ValueError):  # another version stored it
            return VariantStatus(
                name,
                from_json(Grade, content["grade"]),
                from_json(Attribution, content["attribution"]),
                from_json(ReadExtent, content["extent"]),
                AssessmentSource("stored", stored.assessed_at),
            )
    assessment = None
    if newest:
        assessment = assessing.assess(session, newest)
    computed = AssessmentSource("computed", None)
    if assessment is None:
        nothing = ReadExtent.of(0, 0, 0, more_jobs=False)
        return VariantStatus(name, grades.grade(rate(0, 0)), attribute([]), nothing, computed)
    parts = assessment.grade, assessment.attribution, assessment.extent
    return VariantStatus(name, *parts, computed)


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


def _build(jobs: Sequence[JobFacts]) -> BuildHistory:
    last, of_build = max(jobs, key=lambda job: job.id), rates(jobs)
    counts: Counter[str] = Counter()
    for job in jobs:
        counts.update(job.counts)
    return BuildHistory(
        **vars(of_build),
        build=last.build,
        sequence=last.sequence,
        jobs=len(jobs),
        seeds=sum(job.done for job in jobs),
        counts=dict(counts),
        last_job=last.id,
        last_at=last.finished_at,
    )


def rates(jobs: Sequence[JobFacts]) -> Rates:
    """Return the rates of some jobs with their intervals."""
    lost = sum(samples.outcomes_of(job)[Outcome.infrastructure] for job in jobs)
    failures, hollow = samples.failures_of(jobs), grades.hollow([job.counts for job in jobs])
    return Rates(failures, rate(lost, lost + failures.runs), hollow)
