"""The scheduler: submits what is due, and concludes runs whose jobs have all ended.

A due time is dealt with once for ever: under the schedule's lock, by the row that its key allows
once. After an absence of any length there is one run, for the first time that was missed, and the
next one is counted from now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from sqlalchemy.orm import Session

from gonogo.ci.cron import CronLine
from gonogo.errors import JobError
from gonogo_service.kit.background_context import AWAY, Core, log
from gonogo_service.submission import suites
from gonogo_settings import Settings
from gonogo_storage.automation import runs, schedules
from gonogo_storage.db.encoding import utcnow
from gonogo_storage.db.states import DueOutcome


def run_once(core: Core, clock: Callable[[], datetime] = utcnow) -> int:
    """One pass; how many runs were made. Raises core.AWAY errors: what was not done is found by the
    next pass.
    """
    now = clock()
    for run_id in core.reading(runs.over):
        finished = core.session(partial(runs.finish, run_id=run_id, now=now))
        if finished is not None:
            log.info("run ended", run=run_id, verdict=finished.verdict)
    made = 0
    for schedule_id in core.reading(partial(schedules.due, now=now)):
        try:
            outcome = core.session(
                partial(submit_due, schedule_id=schedule_id, settings=core.settings, now=now)
            )
        except AWAY:
            raise
        except Exception:  # one schedule must not keep the others from their times; it stays due
            log.exception("a schedule could not be dealt with; trying again", schedule=schedule_id)
            continue
        made += outcome is DueOutcome.submitted
        log.info("schedule was due", schedule=schedule_id, outcome=outcome)
    if made:
        core.ring()
    return made


def submit_due(
    session: Session, schedule_id: str, settings: Settings, now: datetime
) -> DueOutcome | None:
    """Deal with a schedule's due time in the caller's transaction; None when it isn't due any more:
    another copy was faster, or it was paused. A suite that can't be submitted is an outcome with a
    reason, and the schedule goes on.
    """
    schedule = schedules.lock(session, schedule_id)
    if schedule is None or schedule["next_at"] is None or schedule["next_at"] > now:
        return None
    due_at: datetime = schedule["next_at"]
    outcome = None
    if schedules.claim(session, schedule_id, due_at, now=now):
        outcome = _settle(session, schedule, due_at, settings)
    line = CronLine(schedule["cron"], schedule["timezone"])
    schedules.move_on(session, schedule_id, line.after(now))
    return outcome


def _settle(
    session: Session, schedule: schedules.Schedule, due_at: datetime, settings: Settings
) -> DueOutcome:
    settled = partial(schedules.settled, session, schedule["id"], due_at)
    if (
        schedule["overlap"] == "skip"
        and (still := runs.open_of(session, schedule["id"])) is not None
    ):
        settled(DueOutcome.skipped, reason=f"run {still} was still open")
        return DueOutcome.skipped
    try:
        suite = suites.usable(session, schedule["suite"])
        order = replace(suites.order_of(schedule, due_at), suite_version=suite["version"])
        run = suites.submit(session, suite["content"], order, settings, schedule["owner"])
    except JobError as problem:  # raised before anything is written
        settled(DueOutcome.failed, reason=str(problem))
        return DueOutcome.failed
    settled(DueOutcome.submitted, run_id=run.id)
    return DueOutcome.submitted
