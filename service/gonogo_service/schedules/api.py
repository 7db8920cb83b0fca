"""Schedules: cron lines that submit stored suites."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Annotated

from fastapi import Request, Response
from pydantic import Field
from sqlalchemy.orm import Session

from gonogo.ci.cron import CronLine
from gonogo_service.jobs.bodies import Labels
from gonogo_service.kit import audit
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    extend_page,
    make_router,
    require,
)
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.paging import Page
from gonogo_service.kit.database.records import from_object
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_service.people import idempotency_keys
from gonogo_service.people.context import Ctx, Reader, Submitter
from gonogo_service.schedules import store as stored
from gonogo_service.schedules.store import Due, Overlap, Schedule
from gonogo_service.suites import runs_api as runs
from gonogo_service.suites import submission as suites
from gonogo_service.suites.schemas import Builds, RunAccepted, SuiteName

router = make_router("schedules")
UPCOMING = 5
RETIMING = ("cron", "timezone", "paused")
"""The fields whose change sets the next due time."""


Name = Annotated[str, Field(min_length=1, max_length=200)]
Cron = Annotated[
    str,
    Field(
        min_length=1, max_length=200, description="Minute, hour, day of month, month, day of week"
    ),
]


class ScheduleIn(Strict):
    """A schedule."""

    name: Name
    suite: SuiteName
    cron: Cron
    timezone: str = Field(
        "UTC",
        min_length=1,
        max_length=100,
        description="A name of the IANA database, such as Europe/Berlin",
    )
    overlap: Overlap = Field(
        "skip", description="skip: no run while the last one is open; allow: run anyway"
    )
    builds: Builds = Field([], description="Empty: the suite's builds")
    labels: Labels = Field({})
    paused: bool = False


class ScheduleChange(ScheduleIn):
    """The fields to change; omitted fields stay."""

    name: Name = ""
    suite: SuiteName = ""
    cron: Cron = ""


@dataclass(frozen=True)
class ScheduleOut(Schedule):
    """A schedule with its last due times, and its next ones (none while it is paused)."""

    upcoming: list[datetime]
    last: list[Due]


@router.post(
    "/schedules",
    status_code=201,
    summary="Create a schedule",
)
def create(context: Ctx, who: Submitter, body: ScheduleIn) -> ScheduleOut:
    """Create a schedule. Its jobs belong to the user who creates it.

    Its suite is checked on its builds as a run of now would be.
    """
    now = utcnow()
    values = body.model_dump()
    line = CronLine.parse(body.cron, body.timezone)
    values["next_at"] = None if body.paused else line.after(now)
    with context.session() as session:
        suites.check_order(session, body.suite, body.builds, context.settings, who.name)
        schedule = stored.create(session, values, owner=who.name, now=now)
        audit.record(
            session,
            actor=who.actor,
            action="schedule.created",
            subject=schedule.id,
            detail=body.model_dump(),
        )
        return _public(session, schedule)


@router.get(
    "/schedules",
    summary="List schedules, newest first",
)
def list_schedules(
    context: Ctx, _who: Reader, suite: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Page[ScheduleOut]:
    """List schedules in use; `suite` is a suite's name."""
    with context.reading() as session:
        page = stored.list_(session, suite=suite, limit=limit, cursor=cursor)
        return extend_page(page, lambda schedule: _public(session, schedule))


@router.get(
    "/schedules/{schedule_id}",
    summary="Show a schedule",
)
def look(context: Ctx, _who: Reader, schedule_id: str) -> ScheduleOut:
    """Show a schedule with its next and last due times."""
    with context.reading() as session:
        return _public(session, require(stored.get(session, schedule_id), "schedule", schedule_id))


@router.patch(
    "/schedules/{schedule_id}",
    summary="Change a schedule",
)
def change(context: Ctx, who: Submitter, schedule_id: str, body: ScheduleChange) -> ScheduleOut:
    """Change any of its fields.

    Due times during a pause are not made up for. A new cron line or time zone counts from now.
    """
    values = body.model_dump(exclude_unset=True)
    if not values:
        raise BadField(
            "body",
            {},
            "nothing to change",
            limit="any of " + ", ".join(ScheduleChange.model_fields),
        )
    now = utcnow()
    with context.session() as session:
        before = require(stored.lock(session, schedule_id), "schedule", schedule_id)
        after = replace(before, **values)
        line = CronLine.parse(after.cron, after.timezone)
        if "suite" in values or "builds" in values:
            suites.check_order(session, after.suite, after.builds, context.settings, who.name)
        if any(getattr(after, name) != getattr(before, name) for name in RETIMING):
            values["next_at"] = None if after.paused else line.after(now)
        changed = stored.change(session, schedule_id, values, now=now)
        if changed.version != before.version:
            detail = body.model_dump(exclude_unset=True)
            audit.record(
                session,
                actor=who.actor,
                action="schedule.changed",
                subject=schedule_id,
                detail=detail,
            )
        return _public(session, changed)


@router.delete(
    "/schedules/{schedule_id}",
    summary="Archive a schedule",
)
def archive(context: Ctx, who: Submitter, schedule_id: str) -> ScheduleOut:
    """Archive a schedule. Its runs stay."""
    with context.session() as session:
        archived = require(
            stored.archive(session, schedule_id, now=utcnow()), "schedule", schedule_id
        )
        audit.record(session, actor=who.actor, action="schedule.archived", subject=schedule_id)
        return _public(session, archived)


@router.post(
    "/schedules/{schedule_id}:run-now",
    status_code=202,
    responses={202: {"model": RunAccepted}},
    response_class=Response,
    summary="Submit a schedule's suite now",
)
def run_now(
    context: Ctx,
    who: Submitter,
    request: Request,
    schedule_id: str,
    key: idempotency_keys.Key = None,
) -> Response:
    """Submit the suite now, even if the schedule is paused or a run is open.

    The due times do not change.
    """

    def make(session: Session) -> RunAccepted:
        schedule = require(stored.lock(session, schedule_id), "schedule", schedule_id)
        order = replace(suites.order_of(schedule), actor=who.actor)
        return runs.accepted(
            suites.submit_stored(session, schedule.suite, order, context.settings, who.name)
        )

    return idempotency_keys.created(context, request, who, key, None, make)


def _public(session: Session, schedule: Schedule) -> ScheduleOut:
    upcoming: list[datetime] = []
    if schedule.next_at is not None:
        line = CronLine(schedule.cron, schedule.timezone)
        upcoming = [schedule.next_at, *line.next(schedule.next_at, UPCOMING - 1)]
    return from_object(
        ScheduleOut, schedule, upcoming=upcoming, last=stored.dues(session, schedule.id)
    )
