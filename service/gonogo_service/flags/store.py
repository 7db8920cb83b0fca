"""Flags: findings about a test, one per kind, test, branch and board, with their evidence."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from gonogo.flakiness.classes import ACCEPTED
from gonogo.flakiness.waivers import day
from gonogo.spec.executors import EMULATOR
from gonogo_service.flags import flag_history
from gonogo_service.flags.evidence_kinds import FlagEvidence, OpeningDetail
from gonogo_service.flags.flag_history import FlagEntry
from gonogo_service.flags.model import FlagRow
from gonogo_service.jobs.model import JobRow
from gonogo_service.kit.database.dialect import insert_once
from gonogo_service.kit.database.ids import is_id, new_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import Documented, from_object
from gonogo_service.kit.database.states import FlagKind, FlagState, JobState
from gonogo_service.tests.variants import Variant, graded_job


@dataclass(frozen=True)
class FlagSummary:
    """A flag without its evidence."""

    id: str
    kind: FlagKind
    state: FlagState
    test_key: str
    workload_key: str
    kernel: str
    build: str
    branch: str
    arch: str
    board: str
    owner: str | None
    reason: str | None
    first_job: str
    last_job: str
    jobs: int
    version: int
    opened_at: datetime
    updated_at: datetime
    expires_at: datetime | None
    effect: str | None
    """The effect of its acknowledgement on commits, and until when; null unless acknowledged"""


@dataclass(frozen=True)
class Flag(FlagSummary):
    """A flag with its evidence."""

    evidence: Annotated[dict[str, Any], Documented(FlagEvidence)]


@dataclass(frozen=True)
class FlagWithHistory(Flag):
    """A flag with its history, newest first."""

    history: list[FlagEntry]


@dataclass(frozen=True)
class Finding:
    """A finding of an ended job; the first five fields are the flag's identity."""

    kind: FlagKind
    test_key: str
    branch: str
    arch: str
    board: str
    workload_key: str
    kernel: str
    build: str
    job: str
    evidence: dict[str, Any]

    @classmethod
    def of(cls, job: JobRow, kind: FlagKind, evidence: dict[str, Any]) -> Finding:
        """Return a finding of a job about its own variant."""
        return from_object(cls, job, kind=kind, job=job.id, evidence=evidence)


def upsert(session: Session, finding: Finding, *, now: datetime) -> tuple[Flag, bool]:
    """Open or reopen a flag, or renew its evidence; return it, and whether it opened or reopened.

    An opening goes into the flag's history and, as `flag.opened`, into the outbox. The same job,
    judged or assessed again, is no new evidence: it counts once, and doesn't reopen a flag that was
    resolved since. Evidence of an older build than the variant's newest, and of a job that ended
    before the resolution, reopens nothing. Evidence of an older build doesn't replace newer one.
    """
    new_row = {
        "id": new_id(),
        "kind": finding.kind.value,
        "state": FlagState.open.value,
        "test_key": finding.test_key,
        "workload_key": finding.workload_key,
        "kernel": finding.kernel,
        "build": finding.build,
        "branch": finding.branch,
        "arch": finding.arch,
        "board": finding.board,
        "evidence": finding.evidence,
        "first_job": finding.job,
        "last_job": finding.job,
        "jobs": 0,
        "version": 0,
        "opened_at": now,
        "updated_at": now,
    }
    insert_once(session, FlagRow, [new_row])
    identity = (FlagRow.kind, FlagRow.test_key, FlagRow.branch, FlagRow.arch, FlagRow.board)
    values = (finding.kind.value, finding.test_key, finding.branch, finding.arch, finding.board)
    query = select(FlagRow).where(
        *(column == value for column, value in zip(identity, values, strict=True))
    )
    row = session.execute(
        query.with_for_update().execution_options(populate_existing=True)
    ).scalar_one()
    again = row.version > 0 and row.last_job == finding.job
    if again and (row.state == FlagState.resolved or row.evidence == finding.evidence):
        return of_row(row), False
    if row.version > 0 and not again and _is_outdated(session, row, finding):
        return of_row(row), False
    before = None if row.version == 0 else row.state
    opened = before in (None, FlagState.resolved)
    if before == FlagState.resolved:
        row.state, row.opened_at = FlagState.reopened, now
    row.evidence, row.build, row.last_job, row.updated_at = (
        finding.evidence,
        finding.build,
        finding.job,
        now,
    )
    row.quiet_after = _newest_job(session, finding)
    row.jobs += not again
    row.version += 1
    if opened:
        what, words = (
            "opened" if before is None else "reopened",
            finding.evidence.get("words") or finding.evidence.get("sentence"),
        )
        detail = asdict(OpeningDetail(finding.job, finding.build, finding.evidence.get("check")))
        flag_history.note(
            session,
            row,
            what,
            before,
            actor=flag_history.BACKGROUND,
            now=now,
            reason=words,
            detail=detail,
        )
        flag_history.publish(session, row, "flag.opened", now=now)
    session.flush()
    return of_row(row), opened


def _is_outdated(session: Session, row: FlagRow, finding: Finding) -> bool:
    """Return whether newer results, or the flag's resolution, say more than a finding does."""
    job = session.get(JobRow, finding.job)
    if job is None:
        return False
    ordered = finding.branch != EMULATOR  # the emulator's builds are no series
    if row.state != FlagState.resolved:
        last = session.get(JobRow, row.last_job)
        return ordered and last is not None and job.build_sequence < last.build_sequence
    resolved_at = flag_history.resolved_at(session, row.id)
    if job.finished_at and resolved_at and job.finished_at <= resolved_at:
        return True
    # a gauge measures the test, whatever the build
    if finding.kind is FlagKind.blunt_test or not ordered:
        return False
    newest = graded_job(session, Variant.of(finding))
    return newest is not None and job.build_sequence < newest.sequence


def _newest_job(session: Session, finding: Finding) -> str:
    """Return the larger id: of the variant's newest job, or of the finding's job.

    So a clock that went back doesn't make jobs before the evidence look later.
    """
    table = JobRow
    query = select(table.id).where(
        table.test_key == finding.test_key, table.branch == finding.branch
    )
    query = query.where(table.arch == finding.arch, table.board == finding.board)
    query = query.where(table.state.in_((JobState.finished, JobState.cancelled)))
    return max(finding.job, session.scalar(query.order_by(table.id.desc()).limit(1)) or finding.job)


def list_(
    session: Session,
    *,
    kind: str | None = None,
    state: str | None = None,
    test: str | None = None,
    job: str | None = None,
    owner: str | None = None,
    build: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[Flag]:
    """Return flags, newest first.

    `state="open"` includes reopened flags. `job` and `build` are those of the newest evidence.
    Raises BadCursor.
    """
    if job is not None and not is_id(job):
        return Page((), None)
    table = FlagRow
    query = select(table)
    if state is not None:
        states = (FlagState.open, FlagState.reopened) if state == FlagState.open else (state,)
        query = query.where(table.state.in_(states))
    columns = {
        table.kind: kind,
        table.test_key: test,
        table.owner: owner,
        table.build: build,
        table.last_job: job,
    }
    return newest_first(
        session, query, table.id, of_row, limit=limit, cursor=cursor, filters=columns
    )


def get(session: Session, flag_id: str) -> Flag | None:
    """Return a flag, or None."""
    row = session.get(FlagRow, flag_id) if is_id(flag_id) else None
    return None if row is None else of_row(row)


def look(session: Session, flag_id: str) -> FlagWithHistory | None:
    """Return a flag with its history (gonogo_service.flags.flag_history.of), or None."""
    flag = get(session, flag_id)
    if flag is None:
        return None
    return from_object(FlagWithHistory, flag, history=flag_history.of(session, flag_id))


def active(session: Session, variant: Variant) -> list[tuple[Flag, str]]:
    """Return the unresolved flags of a variant.

    With each comes the variant's newest job at the time of its last evidence.
    """
    query = select(FlagRow).where(
        FlagRow.test_key == variant.test_key, FlagRow.branch == variant.branch
    )
    query = query.where(
        FlagRow.arch == variant.arch,
        FlagRow.board == variant.board,
        FlagRow.state != FlagState.resolved,
    )
    return [
        (of_row(row), row.quiet_after or row.last_job)
        for row in session.scalars(query.order_by(FlagRow.kind))
    ]


def acknowledged(
    session: Session, *, now: datetime, test: str | None = None, limit: int
) -> list[Flag]:
    """Return the flags whose acknowledgement is in force, the first to end first."""
    table = FlagRow
    query = select(table).where(table.state == FlagState.acknowledged, table.expires_at > now)
    if test is not None:
        query = query.where(table.test_key == test)
    return [
        of_row(row)
        for row in session.scalars(query.order_by(table.expires_at, table.id).limit(limit))
    ]


def effect(flag: Flag | FlagRow, end: str) -> str:
    """Return what an acknowledgement does to commits; `end` begins the sentence: "Until Monday"."""
    accepted = next((words for kinds, words in ACCEPTED.items() if flag.kind in kinds), None)
    if accepted is None:
        return f"{end}, it is not an open flag. It blocks no commit anyway."
    where = f"{flag.arch} {flag.board}"
    return (
        f"{end}, {accepted} of this test on {where} block no commit of the branch {flag.branch},"
        " and none compared with it."
    )


def of_row(row: FlagRow) -> Flag:
    """Return a flag (for modules of storage)."""
    state, end = FlagState(row.state), row.expires_at
    return from_object(
        Flag,
        row,
        kind=FlagKind(row.kind),
        state=state,
        effect=None if end is None else effect(row, f"Until {day(end)}"),
    )
