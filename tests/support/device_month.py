"""A month in the life of one device, made through the storage functions that ingest and the reaper
use, with clocks of their own."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

import stored_jobs
from gonogo_service.devices import changes, goldens, heartbeats, periods
from gonogo_service.devices import store as devices
from gonogo_service.jobs.model import AttemptRow
from gonogo_service.kit.database.ids import new_id
from gonogo_service.kit.database.states import AttemptState

HOST, NAME = "lab-7", "wormhole:0"
DEVICE = f"{HOST}/{NAME}"
FACTS = stored_jobs.facts_of(HOST, NAME, serial="0100018611902017")
OUTAGE = timedelta(hours=3)
WORK = timedelta(minutes=30)
"""At work in each hour that it worked in."""


def heard(session: Session, now: datetime) -> None:
    heartbeats.heard(session, FACTS, worker=f"{DEVICE}/1", attempt=None, now=now)


def attempt(device: str, began: datetime, ended: datetime, **changes: Any) -> AttemptRow:
    """An attempt that is over, not stored: what `periods.record_attempt` reads of it."""
    times = {"started_at": began, "heard_at": ended, "finished_at": ended}
    done = {"id": new_id(), "device": device, "state": AttemptState.done}
    return AttemptRow(**{**done, **times, **changes})


def sing(session: Session, bits: str, now: datetime) -> None:
    """A canary that passed with these bits."""
    evidence = {"executor": "ttnn", "canary": "ttnn", "digests": {"dx": bits}}
    body = {"device": DEVICE, "health": "good", "reason": "the canary passed", "routine": True}
    body |= {"evidence": evidence, "worker": "w"}
    goldens.report(session, body, now=now)


def month(
    session: Session,
    now: datetime,
    *,
    days: int = 20,
    working: Callable[[int], bool] = lambda hour: True,
) -> None:
    """From `days` before `now` on: work, telemetry and a canary in every hour that `working` says;
    on the fifth day before now an outage, the day after that bad for an hour (each recovery
    step was tried), the day after suspect for six."""
    began = now.replace(minute=0, second=0, microsecond=0) - timedelta(days=days)
    heard(session, began)
    away = now.replace(minute=0, second=0, microsecond=0) - timedelta(days=5)
    events: dict[datetime, Callable[[datetime], object]] = {
        away + timedelta(minutes=1): lambda at: heartbeats.went_offline(session, now=at),
        away + OUTAGE: lambda at: heard(session, at),
        away + timedelta(days=1): lambda at: goldens.report(session, bad(), now=at),
        away + timedelta(days=1, hours=1): lambda at: goldens.report(
            session, {**bad(), **well()}, now=at
        ),
        away + timedelta(days=2): lambda at: changes.suspect(
            session, DEVICE, "9 of 10 tests fail here only", {}, now=at
        ),
        away + timedelta(days=2, hours=6): lambda at: person(session, at),
    }
    for place in range(24 * days):
        hour = began + timedelta(hours=place)
        if working(place) and not away <= hour < away + OUTAGE:
            for size in range(2):
                periods.record_seeds(session, DEVICE, 40, now=hour + timedelta(minutes=10 + size))
            periods.record_attempt(session, attempt(DEVICE, hour, hour + WORK), now=hour + WORK)
            at = hour + timedelta(minutes=20)
            heartbeat = {
                "temperature_c": 44.0 + place % 24 / 2,
                "clock_mhz": 1000.0,
                "power_w": 30.0 + place % 5,
                "at": at.timestamp(),
            }
            heartbeats.measured(session, DEVICE, heartbeat, now=at)
            heartbeats.measured(
                session, DEVICE, {**heartbeat, "power_w": heartbeat["power_w"] + 6}, now=at
            )  # an hour has a range
            sing(session, "c0ffee", at)
        for at, act in events.items():
            if hour <= at < hour + timedelta(hours=1):
                act(at)
    heard(session, now)


def bad() -> dict[str, Any]:
    """Return a worker's report after every recovery step failed."""
    steps = ("as it is", "re-open", "reset_device")
    report = stored_jobs.bad(DEVICE, "it hung, and tt-smi -r did not help", *steps)
    report["evidence"] |= {"executor": "ttnn", "canary": "ttnn", "digests": {}}
    return report


def well() -> dict[str, Any]:
    """Record that the canary passes again."""
    steps = [{"rung": "as it is", "outcome": "the canary passed", "output": ""}]
    evidence = {"steps": steps, "executor": "ttnn", "canary": "ttnn", "digests": {"dx": "c0ffee"}}
    return {
        "health": "good",
        "reason": "the canary passed; it was tested because it was bad before",
        "evidence": evidence,
    }


def person(session: Session, now: datetime) -> None:
    (record,) = [device for device in devices.list_(session, now=now) if device.device == DEVICE]
    changes.patch(
        session, record.id, {"health": "good", "reason": "looked at"}, actor="ada", now=now
    )
