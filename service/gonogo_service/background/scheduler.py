"""The scheduler: submits due schedules, and concludes runs whose jobs have all ended.

A due time is handled exactly once: under the schedule's lock, by a row with a unique key. After a
downtime of any length there is one run, for the first missed time, and the next due time is
computed from now.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from gonogo.ci.cron import CronLine
from gonogo.errors import JobError
from gonogo.settings import Settings
from gonogo_service.kit.background_context import BackgroundContext, log
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.database.states import DueOutcome
from gonogo_service.kit.problems import Problem
from gonogo_service.people import quotas
from gonogo_service.schedules import store as schedules
from gonogo_service.schedules.model import DueRow, ScheduleRow
from gonogo_service.suites import runs
from gonogo_service.suites import submission as suites


def run_once(context: BackgroundContext, clock: Callable[[], datetime] = utcnow) -> int:
    """Run one pass; return the number of submitted runs.

    Raises the AWAY errors. The next pass does what this one did not.
    """
    now = clock()
    for run_id in context.reading(runs.all_ended):
        finished = context.session(partial(runs.finish, run_id=run_id, now=now))
        if finished is not None:
            log.info("run ended", run=run_id, verdict=finished.verdict)

    def submit_one(schedule_id: str) -> bool:
        outcome = context.session(
            partial(submit_due, schedule_id=schedule_id, settings=context.settings, now=now)
        )
        log.info("schedule was due", schedule=schedule_id, outcome=outcome)
        return outcome is DueOutcome.submitted

    due = context.reading(partial(schedules.due, now=now))
    submitted = context.handle_each("schedule", due, submit_one)
    if submitted:
        context.notify()
    return submitted


def submit_due(
    session: Session, schedule_id: str, settings: Settings, now: datetime
) -> DueOutcome | None:
    """Handle a schedule's due time in the caller's transaction.

    Returns None when it isn't due any more: another process was faster, or it was paused. A suite
    that can't be submitted is an outcome with a reason, and the schedule continues.
    """
    schedule = schedules.lock(session, schedule_id)
    if schedule is None or schedule.next_at is None or schedule.next_at > now:
        return None
    due_at = schedule.next_at
    row = schedules.claim(session, schedule_id, due_at, now=now)
    if row is not None:
        _submit(session, schedule, row, settings)
    schedule.next_at = CronLine(schedule.cron, schedule.timezone).after(now)
    return None if row is None else row.outcome


def _submit(session: Session, schedule: ScheduleRow, due: DueRow, settings: Settings) -> None:
    """Submit the suite of a schedule, and set the outcome of its due time."""
    if schedule.overlap == "skip" and (open_run := runs.open_of(session, schedule.id)) is not None:
        due.outcome, due.reason = DueOutcome.skipped, f"run {open_run} was still open"
        return
    try:
        order = suites.order_of(schedule, due.due_at)
        # a schedule must not get its owner past a quota; what is beyond it is taken back
        with session.begin_nested(), quotas.guard(session, settings, schedule.owner):
            run = suites.submit_stored(session, schedule.suite, order, settings, schedule.owner)
    except (JobError, Problem) as problem:
        due.reason = str(problem)
        return
    due.outcome, due.run = DueOutcome.submitted, run.id
