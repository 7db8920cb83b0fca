"""The stored assessments, one per full variant.

`conclude` writes them with the flags that follow from one; the API and the pages read them. The API
process imports this module, so it must not load numpy: the statistics are in
gonogo_service.tests.assessing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gonogo.flakiness.policy import POLICY
from gonogo_service.flags import store as flags
from gonogo_service.flags.evidence_kinds import stored
from gonogo_service.flags.expiry import Quiet
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import JobState
from gonogo_service.kit.outbox import outbox
from gonogo_service.tests import trends
from gonogo_service.tests.assessment_requests import ASSESS
from gonogo_service.tests.model import AssessmentRow, TrendRow
from gonogo_service.tests.variants import COUNTED, Variant, graded_job

if TYPE_CHECKING:
    from gonogo_service.tests.assessing import Assessment

_KEY = ("test_key", "branch", "arch", "board")


@dataclass(frozen=True)
class StoredAssessment:
    """The assessment of a variant, as it is stored."""

    test_key: str
    branch: str
    arch: str
    board: str
    workload_key: str
    kernel: str
    build: str
    build_sequence: int
    job: str
    stability: str
    sharpness: str
    hollow: bool
    cause: str
    change: str | None
    failures: int
    runs: int
    predicted: float | None
    seeds: int
    content: Mapping[str, Any]
    """Assessment.to_json of the version that stored it"""
    policy: str
    version: int
    assessed_at: datetime


def catch_up(session: Session, *, now: datetime) -> int:
    """Request assessments of variants with jobs but no assessment, or no trends of this form.

    This happens after an upgrade from a version that made none or others. Returns their number.
    """
    unassessed = _without(session, AssessmentRow)
    trendless = _without(session, TrendRow, TrendRow.form == trends.FORM) - unassessed
    messages = {f"{ASSESS}:{job}": job for job in _newest(session, unassessed)}
    messages |= {f"{ASSESS}:{job}:trends:{trends.FORM}": job for job in _newest(session, trendless)}
    # messages of jobs that have just been closed exist already
    missing = messages.keys() - outbox.known(session, list(messages))
    for dedupe in sorted(missing):
        outbox.add(session, ASSESS, dedupe, {"job": messages[dedupe]}, now=now)
    return len(missing)


def _without(session: Session, table: Any, *wheres: ColumnElement[bool]) -> set[Variant]:
    """Return the variants with finished jobs and no row in a table."""
    columns = [getattr(JobRow, name) for name in _KEY]
    over = COUNTED & JobRow.state.in_((JobState.finished, JobState.cancelled)) & (JobRow.done > 0)
    rows = select(table.test_key).where(
        *(getattr(table, column.key) == column for column in columns), *wheres
    )
    return {
        Variant(*key)
        for key in session.execute(select(*columns).where(over, ~rows.exists()).distinct())
    }


def _newest(session: Session, variants: Iterable[Variant]) -> list[str]:
    return [
        job.id for variant in sorted(variants) if (job := graded_job(session, variant)) is not None
    ]


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
    trends.store(session, assessment.trends, now=now)
    for finding in raised:
        flags.upsert(session, finding, now=now)
    for flag_id, version, quiet_period in quiet:
        flags.resolve(
            session,
            flag_id,
            version=version,
            why=str(quiet_period.detail.words),
            detail=stored(quiet_period.detail),
            now=now,
        )
    return True


def put(session: Session, assessment: Assessment, *, now: datetime) -> None:
    """Store the assessment in the variant's row, which describes the branch's newest build.

    An assessment of an older build renews only `builds` and `changes`.
    """
    content = assessment.to_json()
    key = asdict(assessment.variant)
    fresh = _columns(assessment) | {"content": content, "version": 0, "assessed_at": now}
    insert_once(session, AssessmentRow, [key | fresh])
    row = session.get_one(
        AssessmentRow,
        tuple(key[name] for name in _KEY),
        with_for_update=True,
        populate_existing=True,
    )
    if row.version == 0 or assessment.job.sequence >= row.build_sequence:
        for name, value in fresh.items():
            if name != "version":
                setattr(row, name, value)
    else:
        row.content = {**row.content, "builds": content["builds"], "changes": content["changes"]}
    row.version += 1
    row.assessed_at = now
    session.flush()


def get(session: Session, variant: Variant) -> StoredAssessment | None:
    """Return the assessment of a variant, or None."""
    row = session.get(
        AssessmentRow, (variant.test_key, variant.branch, variant.arch, variant.board)
    )
    return None if row is None else from_object(StoredAssessment, row, job=row.job_id)


def _columns(assessment: Assessment) -> dict[str, Any]:
    grade = assessment.grade
    return {
        "workload_key": assessment.job.workload_key,
        "kernel": assessment.job.kernel,
        "build": assessment.job.build,
        "build_sequence": assessment.job.sequence,
        "job_id": assessment.job.id,
        "stability": grade.stability.value,
        "sharpness": grade.sharpness.value,
        "hollow": grade.hollow,
        "cause": assessment.attribution.cause.value,
        "change": None if assessment.change is None else assessment.change.change.value,
        "failures": assessment.attribution.failures.failures,
        "runs": assessment.attribution.failures.runs,
        "predicted": None if grade.tail is None else grade.tail.predicted,
        "seeds": assessment.extent.seeds,
        "policy": POLICY.version,
    }
