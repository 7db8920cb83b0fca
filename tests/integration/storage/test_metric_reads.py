"""The numbers that /metrics reads from the database."""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy.orm import Session

import stored_jobs
import stored_webhooks
from database_params import BOTH_ENGINES
from gonogo_service.devices import workers
from gonogo_service.kit.database.encoding import utcnow
from gonogo_service.kit.outbox import leases
from gonogo_service.operate import metrics


def look(session: Session, *, later_s: float = 0.0) -> metrics.State:
    """Read the state as of `later_s` seconds from now."""
    now = utcnow() + timedelta(seconds=later_s)
    return metrics.read(session, heartbeat_timeout_s=30.0, now=now)


@BOTH_ENGINES
def test_devices_webhooks_queues_and_background_are_counted(current: Session) -> None:
    empty = look(current)
    assert (empty["device_drained"], empty["webhook_lag_seconds"]) == ({}, {(): 0.0})
    assert (empty["background_processes"], empty["queue_workers"]) == ({(): 0}, {})
    job, device = stored_jobs.submit(current), "lab-2/emulator:0"
    stored_jobs.fleet(current, job)
    workers.heard(current, "w-1", queues=[job.queue], device=device, attempt=None, now=utcnow())
    stored_webhooks.with_messages(current, 1)
    for name in ("dispatcher", "presence/host/1/a", "presence/host/2/b", "api/c"):
        leases.acquire(current, name, "host/1/a", 60)
    state = look(current)
    counted = {key: number for key, number in state["devices"].items() if number}
    kinds = (("busy", "good"), ("idle", "good"), ("idle", "suspect"), ("idle", "bad"))
    assert counted == dict.fromkeys(kinds, 1)
    assert state["device_health"]["lab-1/wormhole:2", "n150", "suspect"] == 1
    assert state["device_temperature_celsius"]["lab-1/wormhole:0"] == 45.2
    assert (state["webhooks"], state["webhook_pending"]) == ({"active": 1}, {(): 1})
    assert (state["background_processes"], state["duty_held"]) == ({(): 2}, {"dispatcher": 1})
    assert state["queue_workers"] == {job.queue: 1}
    later = look(current, later_s=100)
    for name in ("webhook_lag_seconds", "webhook_age_seconds"):
        assert 95 < later[name][()] < 160
    assert later["queue_workers"] == {job.queue: 0}
    assert {state for (state, _), number in later["devices"].items() if number} == {"offline"}
    assert later["device_temperature_celsius"] == {}


@BOTH_ENGINES
def test_a_queue_is_as_old_as_its_oldest_waiting_job(current: Session) -> None:
    first, _ = stored_jobs.submit(current), stored_jobs.submit(current)
    first.created_at = utcnow() - timedelta(seconds=500)
    assert 500 <= look(current)["queue_age_seconds"][first.queue] < 560


@BOTH_ENGINES
def test_jobs_and_seeds_are_counted(current: Session) -> None:
    for seeds in (8, 3):
        stored_jobs.finished(current, seeds=seeds)
    stored_jobs.submit(current, build="correct")
    totals = metrics.totals(current)
    assert totals["jobs"] == {"finished": 2, "queued": 1}
    assert totals["seeds"] == {"pass_by_tolerance": 11}
