"""Schedules: cron lines that submit stored suites."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from sqlalchemy.orm import Session

from gonogo.ci.cron import CronLine
from gonogo_service.kit import idempotency, rows
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.resource import Act, Resource
from gonogo_service.people import idempotency_keys
from gonogo_service.people.context import Ctx, Submitter
from gonogo_service.schedules import noun, store
from gonogo_service.schedules.model import DueRow, ScheduleRow
from gonogo_service.schedules.noun import ScheduleIn
from gonogo_service.suites import runs_api, submission

RETIMING = ("cron", "timezone", "paused")
"""The fields whose change sets the next due time."""
_DUE: Any = rows.answer_of(DueRow)
SCHEDULE = rows.extended_answer(
    ScheduleRow,
    "ScheduleOut",
    upcoming=(list[datetime], "Its next due times; none while it is paused"),
    last=(list[_DUE], "Its last due times, newest first"),
)


def _with_last(_context: object, session: Session, schedule: ScheduleRow) -> ScheduleRow:
    store.read_last(session, [schedule])
    return schedule


SCHEDULES = Resource(
    noun.SCHEDULES,
    ScheduleRow,
    answer=SCHEDULE,
    line=SCHEDULE,
    show=_with_last,
    complete=store.read_last,
)
router = SCHEDULES.router


@SCHEDULES.on_create
def create(act: Act, body: ScheduleIn) -> ScheduleRow:
    """Create a schedule. Its jobs belong to the user who creates it.

    Its suite is checked on its builds as a run of now would be.
    """
    now, line = utcnow(), CronLine.parse(body.cron, body.timezone)
    _check(act, body.suite, body.builds)
    row = ScheduleRow(
        id=new_id(),
        owner=act.who.name,
        created_at=now,
        updated_at=now,
        next_at=None if body.paused else line.after(now),
        **body.model_dump(),
    )
    act.session.add(row)
    return row


@SCHEDULES.on_change
def change(act: Act, schedule: ScheduleRow, given: dict[str, Any]) -> dict[str, Any]:
    """Change any of its fields.

    Due times during a pause are not made up for. A new cron line or time zone counts from now.
    """
    after = {name: getattr(schedule, name) for name in ScheduleIn.model_fields} | given
    line = CronLine.parse(after["cron"], after["timezone"])
    if "suite" in given or "builds" in given:
        _check(act, after["suite"], after["builds"])
    if any(after[name] != getattr(schedule, name) for name in RETIMING):
        given["next_at"] = None if after["paused"] else line.after(utcnow())
    return given


@SCHEDULES.on_remove
def archive(act: Act, schedule: ScheduleRow) -> None:
    """Archive a schedule. Its runs stay."""
    schedule.archived_at = schedule.updated_at = utcnow()
    schedule.next_at = None


@idempotency_keys.once_at(
    router,
    "/schedules/{schedule_id}:run-now",
    runs_api.RunAccepted,
    "Submit a schedule's suite now",
)
def run_now(
    context: Ctx, who: Submitter, request: Request, schedule_id: str, key: idempotency.Key = None
) -> Response:
    """Submit the suite now, even if the schedule is paused or a run is open.

    The due times do not change.
    """

    def make(session: Session) -> runs_api.RunAccepted:
        schedule = SCHEDULES.require(session, who, schedule_id, lock=True)
        order = replace(submission.order_of(schedule), actor=who.actor)
        run = submission.submit_stored(session, schedule.suite, order, context.settings, who.name)
        return runs_api.accepted(run)

    return idempotency_keys.created(context, request, who, key, None, make)


def _check(act: Act, suite: str, builds: list[str]) -> None:
    submission.check_order(act.session, suite, builds, act.context.settings, act.who.name)
