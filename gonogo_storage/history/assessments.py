"""The stored assessments, one per full variant: written by `conclude` with the flags that follow
from one, read by the API and the pages.

The API process imports this: no numpy here (the statistics are in gonogo_storage.history.assessing).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from gonogo_storage.db.dialect import insert_once
from gonogo_storage.db.encoding import timestamp
from gonogo_storage.db.paging import BadCursor, Page
from gonogo_storage.db.states import JobState
from gonogo_storage.flags import flag_changes, flags
from gonogo_storage.flags.flag_expiry import Quiet
from gonogo_storage.flags.flags import Finding
from gonogo_storage.history import trends
from gonogo_storage.history.assessment_requests import ASSESS
from gonogo_storage.messages import outbox
from gonogo_storage.rollups.variants import COUNTED, Variant, graded_job
from gonogo_storage.tables import AssessmentRow, JobRow, TrendRow

if TYPE_CHECKING:
    from gonogo_storage.history.assessing import Assessment

_KEY = ("test_key", "branch", "arch", "board")
_SUMMARY = (
    *_KEY, "workload_key", "kernel", "build", "build_sequence", "stability", "sharpness", "hollow", "cause", "change", "failures", "runs",
    "predicted", "seeds", "policy", "version",
)  # fmt: skip


def catch_up(session: Session, *, now: datetime) -> int:
    """Ask for the variants that have jobs and no assessment, or no trends of this form, as after an
    upgrade from a version that made none or others; how many.
    """
    unassessed = _without(session, AssessmentRow)
    trendless = _without(session, TrendRow, TrendRow.form == trends.FORM) - unassessed
    letters = {f"{ASSESS}:{job}": job for job in _newest(session, unassessed)}
    letters |= {f"{ASSESS}:{job}:trends:{trends.FORM}": job for job in _newest(session, trendless)}
    missing = letters.keys() - outbox.known(
        session, list(letters)
    )  # those of jobs that have just been closed are on their way
    for dedupe in sorted(missing):
        outbox.add(session, ASSESS, dedupe, {"job": letters[dedupe]}, now=now)
    return len(missing)


def _without(session: Session, table: Any, *wheres: ColumnElement[bool]) -> set[Variant]:
    """The variants with jobs that are over and no row of a table."""
    columns = [getattr(JobRow, name) for name in _KEY]
    over = COUNTED & JobRow.state.in_((JobState.finished, JobState.cancelled)) & (JobRow.done > 0)
    there = select(table.test_key).where(
        *(getattr(table, each.key) == each for each in columns), *wheres
    )
    return {
        Variant(*key)
        for key in session.execute(select(*columns).where(over, ~there.exists()).distinct())
    }


def _newest(session: Session, variants: Iterable[Variant]) -> list[str]:
    return [job.id for each in sorted(variants) if (job := graded_job(session, each)) is not None]


def conclude(
    session: Session,
    found: Assessment,
    raised: Sequence[Finding],
    quiet: Sequence[tuple[str, int, Quiet]],
    *,
    now: datetime,
    letter: str | None = None,
) -> bool:
    """Store an assessment, open or renew its flags, and resolve the quiet ones (id, version that
    was looked at, what was quiet).

    letter: the outbox letter that asked for it, ticked off in the same transaction; False, and
    nothing is written, when another process has done so already. So each letter counts once,
    whoever dies when.
    """
    if letter is not None and not outbox.claim(session, letter):
        return False
    put(session, found, now=now)
    trends.keep(session, found.trends, now=now)
    for finding in raised:
        flags.upsert(session, finding, now=now)
    for flag_id, version, each in quiet:
        flag_changes.resolve(
            session, flag_id, version=version, why=each.words, detail=each.to_json(), now=now
        )
    if letter is not None:
        outbox.delivered(session, [letter], now=now)
    return True


def put(session: Session, found: Assessment, *, now: datetime) -> None:
    """Store it. The row tells of the newest build of the branch: of an older build only `builds` and
    `changes` are renewed.
    """
    content = found.to_json()
    key = found.variant.to_json()
    fresh = _columns(found) | {"content": content, "version": 0, "assessed_at": now}
    insert_once(session, AssessmentRow, [key | fresh])
    row = session.get_one(
        AssessmentRow,
        tuple(key[name] for name in _KEY),
        with_for_update=True,
        populate_existing=True,
    )
    if row.version == 0 or found.job.sequence >= row.build_sequence:
        for name, value in fresh.items():
            if name != "version":
                setattr(row, name, value)
    else:
        row.content = {**row.content, "builds": content["builds"], "changes": content["changes"]}
    row.version += 1
    row.assessed_at = now
    session.flush()


def get(session: Session, variant: Variant) -> dict[str, Any] | None:
    """The assessment of a variant, or None: the columns, `assessed_at`, and `content`
    (Assessment.to_json).
    """
    row = session.get(
        AssessmentRow, (variant.test_key, variant.branch, variant.arch, variant.board)
    )
    return None if row is None else {**_summary(row), "content": row.content}


def of_test(session: Session, test_key: str, *, limit: int = 100) -> list[dict[str, Any]]:
    """The assessments of all variants of a test, as `get` gives them, in order."""
    query = select(AssessmentRow).where(AssessmentRow.test_key == test_key)
    query = query.order_by(AssessmentRow.branch, AssessmentRow.arch, AssessmentRow.board).limit(
        limit
    )
    return [{**_summary(row), "content": row.content} for row in session.scalars(query)]


def list_(
    session: Session,
    *,
    test: str | None = None,
    stability: str | None = None,
    sharpness: str | None = None,
    hollow: bool | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[dict[str, Any]]:
    """Summaries (no `content`) in the order of test, branch, arch, board. Raises BadCursor."""
    table = AssessmentRow
    columns = [getattr(table, name) for name in (*_SUMMARY, "job_id", "assessed_at")]
    query = select(*columns).order_by(table.test_key, table.branch, table.arch, table.board)
    for column, value in (
        (table.test_key, test),
        (table.stability, stability),
        (table.sharpness, sharpness),
        (table.hollow, hollow),
    ):
        if value is not None:
            query = query.where(column == value)
    start = _place(cursor)
    return Page.cut(
        [_summary(row) for row in session.execute(query.offset(start).limit(limit + 1))],
        limit,
        lambda _: str(start + limit),
    )


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 10):
        raise BadCursor(cursor)
    return int(cursor)


def _summary(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _SUMMARY} | {
        "job": row.job_id,
        "assessed_at": timestamp(row.assessed_at),
    }


def _columns(found: Assessment) -> dict[str, Any]:
    given = found.grade
    return {
        "workload_key": found.job.workload_key,
        "kernel": found.job.kernel,
        "build": found.job.build,
        "build_sequence": found.job.sequence,
        "job_id": found.job.id,
        "stability": given.stability.value,
        "sharpness": given.sharpness.value,
        "hollow": given.hollow,
        "cause": found.attribution.cause.value,
        "change": None if found.change is None else found.change.change.value,
        "failures": found.attribution.failures.failures,
        "runs": found.attribution.failures.runs,
        "predicted": None if given.tail is None else given.tail.predicted,
        "seeds": found.looked.seeds,
        "policy": found.policy.version,
    }
