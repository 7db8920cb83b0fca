"""Waivers: failures that someone accepts until a date.

Each read compares the clock with that date. Ended waivers stay stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from gonogo.errors import FieldError
from gonogo.flakiness.classes import Class
from gonogo.flakiness.waivers import Waiver, words
from gonogo_service.flags.store import Outdated, check_end
from gonogo_service.jobs.model import JobLabelRow, JobRow
from gonogo_service.kit import audit
from gonogo_service.kit.database.encoding import timestamp
from gonogo_service.kit.database.ids import is_id
from gonogo_service.kit.database.paging import Page, newest_first
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.database.states import WaiverState
from gonogo_service.results.model import ResultRow
from gonogo_service.suites.model import RunJobRow
from gonogo_service.tests import test_specs
from gonogo_service.waivers.model import WaiverRow

MAX_ACTIVE = 500
"""Maximum number of active waivers.

More would be a policy, and a comparison checks each of them for every bad test.
"""
MAX_WITHOUT_KEY = 1000
"""Newest waivers without a test's key that are checked against a test."""
MAX_JOBS = 200
"""Newest jobs of a test whose names and labels count as the test's."""
MAX_NAMES = 2000
MAX_ITERATIONS = 10
"""First iterations of a job whose tests count as the names of its test."""
_AT_ONCE = 500


@dataclass(frozen=True, kw_only=True)
class StoredWaiver(Waiver):
    """A waiver with its current `state`."""

    state: WaiverState
    version: int
    created_by: str
    created_at: datetime
    updated_at: datetime
    ended_at: datetime | None
    ended_by: str | None
    words: str


def create(
    session: Session, new: Waiver, *, actor: str, now: datetime, longest: timedelta
) -> StoredWaiver:
    """Store a waiver; it is active at once.

    Raises FieldError for an unknown test, an end that is past or too far away, or too many active
    waivers.
    """
    check_end(new.expires_at, now, longest)
    if new.test is not None and test_specs.get(session, new.test) is None:
        raise FieldError(
            "test", new.test, "there is no test with this key", limit="a key of GET /api/v1/tests"
        )
    active_count = (
        session.scalar(
            select(func.count()).select_from(WaiverRow).where(_is(WaiverState.active, now))
        )
        or 0
    )
    if active_count >= MAX_ACTIVE:
        raise FieldError(
            "body",
            None,
            "too many active waivers",
            limit=f"{MAX_ACTIVE}: end one first",
        )
    row = WaiverRow(
        id=new.id,
        test_key=new.test,
        names=list(new.names),
        labels=dict(new.labels),
        builds=list(new.builds),
        classes=[waiver_class.value for waiver_class in new.classes],
        owner=new.owner,
        reason=new.reason,
        version=1,
        created_by=actor,
        created_at=now,
        updated_at=now,
        expires_at=new.expires_at,
    )
    session.add(row)
    session.flush()
    waiver = _stored(row, now)
    audited = ("test", "names", "labels", "builds", "classes", "owner", "reason", "expires_at")
    audit.record(
        session,
        actor=actor,
        action="waiver.created",
        subject=row.id,
        detail={name: getattr(waiver, name) for name in audited},
    )
    return waiver


def change(
    session: Session,
    waiver_id: str,
    fields: Mapping[str, Any],
    *,
    actor: str,
    now: datetime,
    longest: timedelta,
    version: int | None = None,
) -> StoredWaiver | None:
    """Set any of owner, reason, classes and expires of an active waiver.

    Returns None when there is none of that id. Equal values make no new version. Raises FieldError
    for a waiver that is over, and for an end that is past or too far away. Raises Outdated when
    `version` isn't the present one.
    """
    row = (
        session.get(WaiverRow, waiver_id, with_for_update=True, populate_existing=True)
        if is_id(waiver_id)
        else None
    )
    if row is None:
        return None
    if version is not None and version != row.version:
        raise Outdated(version, row.version, "the waiver was changed")
    state = _state(row, now)
    if state is not WaiverState.active:
        raise FieldError(
            "state",
            state.value,
            "the waiver is over: create a new one",
            limit=WaiverState.active.value,
        )
    values = {"expires_at" if name == "expires" else name: value for name, value in fields.items()}
    if "expires_at" in values:
        check_end(values["expires_at"], now, longest)
    if "classes" in values:
        values["classes"] = [waiver_class.value for waiver_class in values["classes"]]
    changed = {name: value for name, value in values.items() if getattr(row, name) != value}
    if changed:
        for name, value in changed.items():
            setattr(row, name, value)
        row.version += 1
        row.updated_at = now
        detail = {
            name: timestamp(value) if isinstance(value, datetime) else value
            for name, value in changed.items()
        }
        audit.record(
            session, actor=actor, action="waiver.changed", subject=waiver_id, detail=detail
        )
        session.flush()
    return _stored(row, now)


def end(session: Session, waiver_id: str, *, actor: str, now: datetime) -> StoredWaiver | None:
    """End a waiver now; None when there is none of that id.

    One that is over already stays as it is.
    """
    row = (
        session.get(WaiverRow, waiver_id, with_for_update=True, populate_existing=True)
        if is_id(waiver_id)
        else None
    )
    if row is None:
        return None
    if _state(row, now) is WaiverState.active:
        row.ended_at = row.updated_at = now
        row.ended_by = actor
        row.version += 1
        audit.record(
            session,
            actor=actor,
            action="waiver.ended",
            subject=waiver_id,
            detail={"owner": row.owner, "reason": row.reason},
        )
        session.flush()
    return _stored(row, now)


def get(session: Session, waiver_id: str, *, now: datetime) -> StoredWaiver | None:
    """Return one waiver, or None."""
    row = session.get(WaiverRow, waiver_id) if is_id(waiver_id) else None
    return None if row is None else _stored(row, now)


def list_(
    session: Session,
    *,
    now: datetime,
    test: str | None = None,
    state: WaiverState | None = None,
    owner: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> Page[StoredWaiver]:
    """Return waivers, newest first. Raises BadCursor.

    test: those that name its key and, of the newest MAX_WITHOUT_KEY others, those that match it.
    """
    table = WaiverRow
    query = select(table)
    if state is not None:
        query = query.where(_is(state, now))
    if test is not None:
        without_key = _concerning(
            session, test, _without_key(session, None if state is None else _is(state, now))
        )
        query = query.where(
            or_(table.test_key == test, table.id.in_([waiver.id for waiver in without_key]))
        )
    return newest_first(
        session,
        query,
        table.id,
        lambda row: _stored(row, now),
        limit=limit,
        cursor=cursor,
        filters={table.owner: owner},
    )


def of_test(session: Session, key: str, *, now: datetime) -> list[StoredWaiver]:
    """Return the active waivers that concern a test on any build, the first to end first."""
    active = _is(WaiverState.active, now)
    named = list(session.scalars(select(WaiverRow).where(WaiverRow.test_key == key, active)))
    rows = [*named, *_concerning(session, key, _without_key(session, active))]
    return [_stored(row, now) for row in sorted(rows, key=lambda row: (row.expires_at, row.id))]


@dataclass(frozen=True)
class InForce:
    """All active waivers at a moment, with the labels of the jobs that they may name."""

    waivers: tuple[Waiver, ...]
    labels: Mapping[str, Mapping[str, str]]
    """Job -> its labels, if a waiver names them."""

    def of(
        self, test: str, names: Collection[str], jobs: Iterable[str], build: str
    ) -> list[Waiver]:
        """Return those that concern a test on head: by its names, jobs and build there."""
        labels = [self.labels[job] for job in jobs if job in self.labels]
        return [waiver for waiver in self.waivers if waiver.concerns(test, names, labels, build)]


def in_force(session: Session, job_ids: Iterable[str], *, now: datetime) -> InForce:
    """Return the active waivers, for a comparison whose head has these jobs."""
    rows = session.scalars(
        select(WaiverRow).where(_is(WaiverState.active, now)).order_by(WaiverRow.id)
    ).all()
    active = tuple(_waiver(row) for row in rows)
    names = sorted({name for waiver in active for name in waiver.labels})
    return InForce(active, _labels(session, sorted(job_ids), names) if names else {})


def _stored(row: WaiverRow, now: datetime) -> StoredWaiver:
    """Return a waiver; its state is that of `now`."""
    waiver = _waiver(row)
    return from_object(StoredWaiver, waiver, row, state=_state(row, now), words=words(waiver))


def _state(row: WaiverRow, now: datetime) -> WaiverState:
    if row.ended_at is not None:
        return WaiverState.ended
    return WaiverState.active if row.expires_at > now else WaiverState.expired


def _is(state: WaiverState, now: datetime) -> ColumnElement[bool]:
    """Return the SQL condition for a state at a moment, like `_state`."""
    ended_at, expires_at = WaiverRow.ended_at, WaiverRow.expires_at
    if state is WaiverState.ended:
        return ended_at.is_not(None)
    return and_(
        ended_at.is_(None), expires_at > now if state is WaiverState.active else expires_at <= now
    )


def _waiver(row: WaiverRow) -> Waiver:
    classes = [Class(name) for name in row.classes]
    return from_object(Waiver, row, test=row.test_key, classes=classes)


def _without_key(session: Session, condition: ColumnElement[bool] | None) -> Sequence[WaiverRow]:
    """Return the newest waivers that name tests only by patterns or labels."""
    query = (
        select(WaiverRow)
        .where(WaiverRow.test_key.is_(None))
        .order_by(WaiverRow.id.desc())
        .limit(MAX_WITHOUT_KEY)
    )
    return session.scalars(query if condition is None else query.where(condition)).all()


def _concerning(session: Session, key: str, rows: Sequence[WaiverRow]) -> list[WaiverRow]:
    """Return the waivers that concern a test, by the names and labels of its newest jobs."""
    test = test_specs.get(session, key) if rows else None
    if test is None:
        return []
    jobs = list(
        session.scalars(
            select(JobRow.id)
            .where(JobRow.test_key == key)
            .order_by(JobRow.id.desc())
            .limit(MAX_JOBS)
        )
    )
    names = {test_specs.name_of(test.kernel, test.test)}
    names |= set(
        session.scalars(select(RunJobRow.name).where(RunJobRow.job_id.in_(jobs)).distinct())
    )
    table = ResultRow
    of_newest = table.job_id.in_(jobs[:1]), table.outcome.is_not(None)
    within = select(table.output).where(*of_newest, table.arrival <= MAX_ITERATIONS).distinct()
    names |= set(session.scalars(within.order_by(table.output).limit(MAX_NAMES)))
    label_names = sorted({name for row in rows for name in row.labels})
    labels = _labels(session, jobs, label_names).values() if label_names else ()
    return [row for row in rows if _waiver(row).concerns(key, names, labels)]


def _labels(
    session: Session, job_ids: Sequence[str], names: Sequence[str]
) -> dict[str, dict[str, str]]:
    labels_by_job: dict[str, dict[str, str]] = {}
    table = JobLabelRow
    for start in range(0, len(job_ids), _AT_ONCE):
        query = select(table.job_id, table.name, table.value)
        query = query.where(
            table.job_id.in_(job_ids[start : start + _AT_ONCE]), table.name.in_(names)
        )
        for job_id, name, value in session.execute(query):
            labels_by_job.setdefault(job_id, {})[name] = value
    return labels_by_job
