"""Schedules: cron lines that submit a stored suite."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any, Literal

from fastapi import Request, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from gonogo.ci.cron import CronLine
from gonogo_service.access.context import Ctx, Reader, Submitter
from gonogo_service.api import idempotency_keys
from gonogo_service.api.suites import runs
from gonogo_service.api.suites.schemas import Builds, Labels, RunAccepted, SuiteName
from gonogo_service.kit.answers import (
    Cursor,
    Filter,
    Limit,
    answer,
    answer_page,
    make_router,
    missing,
)
from gonogo_service.kit.problems import BadField
from gonogo_service.kit.strict import Strict
from gonogo_service.submission import suites
from gonogo_storage.access import audit
from gonogo_storage.automation import schedules as stored
from gonogo_storage.automation.schedules import Schedule
from gonogo_storage.db.encoding import timestamp, utcnow
from gonogo_storage.db.states import DueOutcome

router = make_router("schedules")
UPCOMING = 5
Overlap = Literal["skip", "allow"]


class ScheduleIn(Strict):
    """A schedule."""

    name: str = Field(min_length=1, max_length=200)
    suite: SuiteName
    cron: str = Field(
        min_length=1, max_length=200, description="minute, hour, day of month, month, day of week"
    )
    timezone: str = Field(
        "UTC",
        min_length=1,
        max_length=100,
        description="a name of the IANA database, such as Europe/Berlin",
    )
    overlap: Overlap = Field(
        "skip", description="skip: no run while the one before is open; allow: a run nevertheless"
    )
    builds: Builds = Field([], description="none: the suite's own")
    labels: Labels = Field({})
    paused: bool = False


class ScheduleChange(Strict):
    """What to change; what is left out stays."""

    name: str = Field("", min_length=1, max_length=200)
    suite: SuiteName = ""
    cron: str = Field("", min_length=1, max_length=200)
    timezone: str = Field("UTC", min_length=1, max_length=100)
    overlap: Overlap = "skip"
    builds: Builds = Field([])
    labels: Labels = Field({})
    paused: bool = False


class DueOut(BaseModel):
    """A due time, and what became of it."""

    due_at: str
    outcome: DueOutcome
    run: str | None
    reason: str | None
    at: str


class ScheduleOut(BaseModel):
    """A schedule with its next due times (none while it is paused) and its last ones."""

    id: str
    name: str
    suite: str
    cron: str
    timezone: str
    overlap: Overlap
    builds: list[str]
    labels: dict[str, str]
    owner: str
    version: int
    paused: bool
    next_at: str | None
    upcoming: list[str]
    last: list[DueOut]
    created_at: str
    updated_at: str
    archived_at: str | None


class SchedulePage(BaseModel):
    """A page of schedules, newest first."""

    items: list[ScheduleOut]
    next: str | None


@router.post(
    "/schedules",
    status_code=201,
    responses={201: {"model": ScheduleOut}},
    response_class=Response,
    summary="Make a schedule",
)
def create(context: Ctx, who: Submitter, body: ScheduleIn) -> Response:
    """Its jobs are those of whoever makes it."""
    now = utcnow()
    values = body.model_dump()
    line = CronLine.parse(body.cron, body.timezone)
    values["next_at"] = None if body.paused else line.after(now)
    with context.session() as session:
        suites.usable(session, body.suite)
        made = stored.create(session, values, owner=who.name, now=now)
        audit.record(
            session,
            actor=who.actor,
            action="schedule.created",
            subject=made["id"],
            detail=body.model_dump(),
        )
        return answer(_shown(session, made), 201)


@router.get(
    "/schedules",
    responses={200: {"model": SchedulePage}},
    response_class=Response,
    summary="List schedules, newest first",
)
def list_schedules(
    context: Ctx, _who: Reader, suite: Filter = None, limit: Limit = 50, cursor: Cursor = None
) -> Response:
    """Those in use, of a suite by its name."""
    with context.reading() as session:
        page = stored.list_(session, suite=suite, limit=limit, cursor=cursor)
        return answer_page(page, lambda schedule: _shown(session, schedule))


@router.get(
    "/schedules/{schedule_id}",
    responses={200: {"model": ScheduleOut}},
    response_class=Response,
    summary="Look at a schedule",
)
def look(context: Ctx, _who: Reader, schedule_id: str) -> Response:
    """With its next and its last due times."""
    with context.reading() as session:
        return answer(_shown(session, _found(stored.get(session, schedule_id), schedule_id)))


@router.patch(
    "/schedules/{schedule_id}",
    responses={200: {"model": ScheduleOut}},
    response_class=Response,
    summary="Change a schedule",
)
def change(context: Ctx, who: Submitter, schedule_id: str, body: ScheduleChange) -> Response:
    """Any of its fields. What falls due while it is paused is not made up for; a new line or zone
    counts from now.
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
        before = _found(stored.lock(session, schedule_id), schedule_id)
        after = {**before, **values}
        line = CronLine.parse(after["cron"], after["timezone"])
        if "suite" in values:
            suites.usable(session, after["suite"])
        if any(after[name] != before[name] for name in ("cron", "timezone", "paused")):
            values["next_at"] = None if after["paused"] else line.after(now)
        made = stored.change(session, schedule_id, values, now=now)
        if made["version"] != before["version"]:
            detail = body.model_dump(exclude_unset=True)
            audit.record(
                session,
                actor=who.actor,
                action="schedule.changed",
                subject=schedule_id,
                detail=detail,
            )
        return answer(_shown(session, made))


@router.delete(
    "/schedules/{schedule_id}",
    responses={200: {"model": ScheduleOut}},
    response_class=Response,
    summary="End a schedule",
)
def archive(context: Ctx, who: Submitter, schedule_id: str) -> Response:
    """Its runs stay."""
    with context.session() as session:
        made = _found(stored.archive(session, schedule_id, now=utcnow()), schedule_id)
        audit.record(session, actor=who.actor, action="schedule.archived", subject=schedule_id)
        return answer(_shown(session, made))


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
    """Whatever its line says, paused or not, and also while a run of it is open. Its due times stay
    as they are.
    """

    def make(session: Session) -> idempotency_keys.Answer:
        schedule = _found(stored.lock(session, schedule_id), schedule_id)
        suite = suites.usable(session, schedule["suite"])
        order = replace(suites.order_of(schedule), suite_version=suite["version"])
        return runs.accepted(
            suites.submit(session, suite["content"], order, context.settings, who.name)
        )

    response, new = idempotency_keys.once(context, request, who, key, None, make)
    if new:
        context.notifier.notify()
    return response


def _found(schedule: Schedule | None, schedule_id: str) -> Schedule:
    if schedule is None:
        raise missing("schedule", schedule_id)
    return schedule


def _shown(session: Session, schedule: Schedule) -> dict[str, Any]:
    upcoming: list[datetime] = []
    if schedule["next_at"] is not None:
        line = CronLine(schedule["cron"], schedule["timezone"])
        upcoming = [schedule["next_at"], *line.next(schedule["next_at"], UPCOMING - 1)]
    times = {name: timestamp(schedule[name]) for name in stored.TIMES}
    told = {
        "upcoming": [timestamp(each) for each in upcoming],
        "last": stored.dues(session, schedule["id"]),
    }
    return {**schedule, **times, **told}
